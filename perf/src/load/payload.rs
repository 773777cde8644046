//! Contents of records: bytes that do not compress, and in front of them, where a reader checks, who they are.

/// Bytes of a [`Stamp`].
pub const STAMP_BYTES: usize = 24;

/// Beyond the largest record, so that records differ by where they begin.
const POOL_EXTRA_BYTES: usize = 64 << 10;

/// Which record it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The run it belongs to: a topic may hold the records of others.
    pub run: u64,
    /// Its number.
    pub number: u64,
    /// When it was to be sent.
    pub intended_ns: u64,
}

impl Stamp {
    fn write(self, value: &mut [u8]) {
        for (part, of) in value.chunks_exact_mut(8).zip([self.run, self.number, self.intended_ns]) {
            part.copy_from_slice(&of.to_be_bytes());
        }
    }

    /// Reads it from a record; `None` if it is of another run.
    pub fn read(run: u64, value: Option<&[u8]>) -> Option<Self> {
        let (parts, _) = value?.get(..STAMP_BYTES)?.as_chunks::<8>();
        let [of, number, intended_ns] = [0, 1, 2].map(|part| u64::from_be_bytes(parts[part]));
        (of == run).then_some(Self { run, number, intended_ns })
    }
}

/// A stock of bytes from which records are cut.
pub struct Payload {
    pool: Vec<u8>,
    record_bytes: usize,
    next: usize,
}

impl Payload {
    /// The same bytes for the same seed.
    pub fn new(record_bytes: usize, seed: u64) -> Self {
        let mut state = seed | 1;
        let mut random = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let words = (record_bytes + POOL_EXTRA_BYTES).div_ceil(8);
        Self { pool: (0..words).flat_map(|_| random().to_le_bytes()).collect(), record_bytes, next: 0 }
    }

    /// Fills the value of the next record.
    pub fn fill(&mut self, value: &mut Vec<u8>) {
        value.clear();
        value.extend_from_slice(&self.pool[self.next..self.next + self.record_bytes]);
        // A step without a common factor with the pool, so that beginnings repeat late.
        self.next = (self.next + 7919) % POOL_EXTRA_BYTES;
    }

    /// The same with a stamp in front.
    pub fn fill_stamped(&mut self, value: &mut Vec<u8>, stamp: Stamp) {
        self.fill(value);
        stamp.write(&mut value[..STAMP_BYTES]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_read_back_and_that_of_another_run_is_not() {
        let mut value = Vec::new();
        let stamp = Stamp { run: 7, number: 1 << 40, intended_ns: 3 };
        Payload::new(STAMP_BYTES, 1).fill_stamped(&mut value, stamp);
        assert_eq!(Stamp::read(7, Some(&value)), Some(stamp));
        assert_eq!(Stamp::read(8, Some(&value)), None);
        assert_eq!(Stamp::read(7, Some(&value[1..])), None, "too short");
        assert_eq!(Stamp::read(7, None), None);
    }

    #[test]
    fn records_differ_and_have_their_length() {
        let mut payload = Payload::new(100, 1);
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..1000 {
            let mut value = Vec::new();
            payload.fill(&mut value);
            assert_eq!(value.len(), 100);
            seen.insert(value);
        }
        assert_eq!(seen.len(), 1000);
    }
}
