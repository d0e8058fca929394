//! Reads questions to the descriptor store.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    (tensorferry_kit::decoders::named("fd_store").run)(bytes);
});
