//! See `oncilla_fuzz::fetch`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| oncilla_fuzz::fetch(data));
