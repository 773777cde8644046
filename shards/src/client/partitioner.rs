//! Which partition a key belongs to: the hash of the Java client, so that all clients agree.

/// murmur2 with the Java client's seed.
fn murmur2(bytes: &[u8]) -> i32 {
    const M: u32 = 0x5bd1_e995;
    const SEED: u32 = 0x9747_b28c;
    // Keys are shorter than 4 GiB, and the reference takes the length as 32 bits as well.
    let mut hash = SEED ^ bytes.len() as u32;
    let mut words = bytes.chunks_exact(4);
    for word in &mut words {
        let mut k = u32::from_le_bytes(word.try_into().expect("four bytes")).wrapping_mul(M);
        k ^= k >> 24;
        hash = hash.wrapping_mul(M) ^ k.wrapping_mul(M);
    }
    let tail = words.remainder();
    if !tail.is_empty() {
        let word = tail.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte));
        hash = (hash ^ word).wrapping_mul(M);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(M);
    (hash ^ (hash >> 15)) as i32
}

/// Index into the partitions of a topic that has `count` of them.
pub fn partition_of(key: &[u8], count: usize) -> usize {
    let positive = murmur2(key) & 0x7fff_ffff;
    usize::try_from(positive).expect("the sign is masked") % count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_the_java_clients() {
        // Values of Apache Kafka's own test of its murmur2.
        for (key, hash) in [
            ("21", -973_932_308),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
        ] {
            assert_eq!(murmur2(key.as_bytes()), hash, "{key}");
        }
    }

    #[test]
    fn every_key_has_a_partition() {
        for byte in 0..=255 {
            assert!(partition_of(&[byte, 1, 2], 3) < 3);
        }
    }
}
