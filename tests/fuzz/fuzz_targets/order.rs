//! Reads which function a child is to call.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    (tensorferry_kit::decoders::named("order").run)(bytes);
});
