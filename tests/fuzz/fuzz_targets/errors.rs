//! Reads errors of other processes.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    (tensorferry_kit::decoders::named("errors").run)(bytes);
});
