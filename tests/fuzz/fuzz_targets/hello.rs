//! Reads what a parent tells its child first.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    (tensorferry_kit::decoders::named("hello").run)(bytes);
});
