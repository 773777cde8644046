//! SipHash-2-4 with a result of 128 bits: what stands for a key in the key map.
//!
//! Two keys with one hash would delete each other's records, so 64 bits are not enough, and the hash is keyed: who
//! writes records must not be able to choose keys that collide. The secret comes from the edge.

/// The secret of one clean.
#[derive(Clone, Copy, Debug)]
pub struct HashSecret(pub [u64; 2]);

struct Sip {
    v: [u64; 4],
}

impl Sip {
    fn round(&mut self) {
        let [mut v0, mut v1, mut v2, mut v3] = self.v;
        v0 = v0.wrapping_add(v1);
        v1 = v1.rotate_left(13) ^ v0;
        v0 = v0.rotate_left(32);
        v2 = v2.wrapping_add(v3);
        v3 = v3.rotate_left(16) ^ v2;
        v0 = v0.wrapping_add(v3);
        v3 = v3.rotate_left(21) ^ v0;
        v2 = v2.wrapping_add(v1);
        v1 = v1.rotate_left(17) ^ v2;
        v2 = v2.rotate_left(32);
        self.v = [v0, v1, v2, v3];
    }

    fn word(&mut self, word: u64) {
        self.v[3] ^= word;
        self.round();
        self.round();
        self.v[0] ^= word;
    }

    fn finish(&mut self) -> u64 {
        for _ in 0..4 {
            self.round();
        }
        self.v.iter().fold(0, |all, v| all ^ v)
    }
}

/// The hash of a key.
#[must_use]
pub fn hash(secret: HashSecret, key: &[u8]) -> [u64; 2] {
    let HashSecret([k0, k1]) = secret;
    let mut sip = Sip {
        v: [
            k0 ^ 0x736f_6d65_7073_6575,
            k1 ^ 0x646f_7261_6e64_6f6d ^ 0xee,
            k0 ^ 0x6c79_6765_6e65_7261,
            k1 ^ 0x7465_6462_7974_6573,
        ],
    };
    let mut words = key.chunks_exact(8);
    for word in words.by_ref() {
        sip.word(u64::from_le_bytes(word.try_into().expect("eight bytes")));
    }
    let mut last = [0; 8];
    last[..words.remainder().len()].copy_from_slice(words.remainder());
    last[7] = key.len() as u8;
    sip.word(u64::from_le_bytes(last));
    sip.v[2] ^= 0xee;
    let low = sip.finish();
    sip.v[1] ^= 0xdd;
    [low, sip.finish()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(length: u8) -> Vec<u8> {
        let key: [u8; 16] = std::array::from_fn(|i| i as u8);
        let word = |at: usize| u64::from_le_bytes(key[at..at + 8].try_into().expect("eight bytes"));
        let input: Vec<u8> = (0..length).collect();
        hash(HashSecret([word(0), word(8)]), &input).into_iter().flat_map(u64::to_le_bytes).collect()
    }

    #[test]
    fn the_hash_is_that_of_the_published_vectors() {
        assert_eq!(of(0), 0xa381_7f04_ba25_a8e6_6df6_7214_c755_0293_u128.to_be_bytes());
        assert_eq!(of(1), 0xda87_c1d8_6b99_af44_3476_5911_9b22_fc45_u128.to_be_bytes());
    }

    #[test]
    fn every_length_and_every_secret_has_its_own_hash() {
        let hashes: std::collections::BTreeSet<_> = (0..64).map(of).collect();
        assert_eq!(hashes.len(), 64);
        assert_ne!(hash(HashSecret([1, 2]), b"key"), hash(HashSecret([1, 3]), b"key"));
    }
}
