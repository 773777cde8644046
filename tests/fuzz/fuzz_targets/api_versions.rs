//! See `oncilla_fuzz::api_versions`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| oncilla_fuzz::api_versions(data));
