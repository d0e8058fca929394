//! Reads dtypes and strategies by name.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    (tensorferry_kit::decoders::named("names").run)(bytes);
});
