//! See `oncilla_fuzz::produce`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| oncilla_fuzz::produce(data));
