//! Zigzag variable-length integers of the record format.
//!
//! Writing only; reading stands in `walk`, next to the bytes it comes from.

fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// Bytes that [`put_varint`] appends for `value`.
pub(crate) fn varint_bytes(value: i64) -> usize {
    let bits = u64::BITS - (zigzag(value) | 1).leading_zeros();
    bits.div_ceil(7) as usize
}

/// Appends `value` in zigzag form, at most ten bytes.
pub(crate) fn put_varint(out: &mut Vec<u8>, value: i64) {
    let mut rest = zigzag(value);
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_is_known_before_it_is_written() {
        let around = (0..63).flat_map(|bit| [-1, 0, 1].map(|by| (1i64 << bit) + by));
        for value in around.flat_map(|value| [value, -value]).chain([i64::MIN, i64::MAX]) {
            let mut out = Vec::new();
            put_varint(&mut out, value);
            assert_eq!(varint_bytes(value), out.len(), "{value}");
        }
    }
}
