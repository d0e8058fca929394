//! Reads what a bundle says of itself.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    (tensorferry_kit::decoders::named("manifest").run)(bytes);
});
