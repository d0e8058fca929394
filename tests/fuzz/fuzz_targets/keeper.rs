//! Reads questions to the keeper of descriptors.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    (tensorferry_tests::decoders::named("keeper").run)(bytes);
});
