//! Reads a domain's tables, by a newcomer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    (tensorferry_kit::decoders::named("join").run)(bytes);
});
