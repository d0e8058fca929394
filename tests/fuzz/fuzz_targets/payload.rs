//! Reads a message beside its handles.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    (tensorferry_kit::decoders::named("payload").run)(bytes);
});
