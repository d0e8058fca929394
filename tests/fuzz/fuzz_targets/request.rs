//! Reads what a fork server is to start.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    (tensorferry_kit::decoders::named("request").run)(bytes);
});
