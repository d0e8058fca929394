//! Reads a parcel and its number.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    (tensorferry_kit::decoders::named("parcel").run)(bytes);
});
