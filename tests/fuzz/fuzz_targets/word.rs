//! Reads what a fork server tells of a child.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    (tensorferry_kit::decoders::named("word").run)(bytes);
});
