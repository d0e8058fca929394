//! Reads what a child tells its parent.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    (tensorferry_kit::decoders::named("frames").run)(bytes);
});
