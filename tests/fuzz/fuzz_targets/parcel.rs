//! Reads a parcel and its number.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    (tensorferry_tests::decoders::named("parcel").run)(bytes);
});
