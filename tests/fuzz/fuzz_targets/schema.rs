//! See `oncilla_fuzz::schema`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| oncilla_fuzz::schema(data));
