//! Reads what two processes that meet say.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    (tensorferry_kit::decoders::named("greeting").run)(bytes);
});
