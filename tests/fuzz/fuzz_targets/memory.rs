//! Reads a domain's memory, by a member.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    (tensorferry_kit::decoders::named("memory").run)(bytes);
});
