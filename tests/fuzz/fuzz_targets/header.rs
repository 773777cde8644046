//! See `oncilla_fuzz::header`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| oncilla_fuzz::header(data));
