//! Reads a message beside its handles.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    (tensorferry_tests::decoders::named("payload").run)(bytes);
});
