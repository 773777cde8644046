//! Zigzag variable-length integers of the record format.
//!
//! Writing only; reading stands in `walk`, next to the bytes it comes from.

/// Appends `value` in zigzag form, at most ten bytes.
pub(crate) fn put_varint(out: &mut Vec<u8>, value: i64) {
    let mut rest = ((value << 1) ^ (value >> 63)) as u64;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}
