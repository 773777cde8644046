//! Exactly once, checked: which records were acknowledged, which were refused, and which arrived how often.

use std::collections::HashMap;

/// A set of record numbers.
#[derive(Debug, Default)]
struct Numbers {
    words: Vec<u64>,
    count: u64,
}

impl Numbers {
    fn place(number: u64) -> (usize, u64) {
        (usize::try_from(number / 64).expect("numbers of one run fit into memory"), 1 << (number % 64))
    }

    /// Whether it was new.
    fn insert(&mut self, number: u64) -> bool {
        let (word, bit) = Self::place(number);
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        let new = self.words[word] & bit == 0;
        self.words[word] |= bit;
        self.count += u64::from(new);
        new
    }

    fn without<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = u64> + 'a {
        let left = self.words.iter().enumerate().map(|(at, bits)| bits & !other.words.get(at).copied().unwrap_or(0));
        let each = |(at, bits): (usize, u64)| {
            (0..64).filter(move |bit| bits >> bit & 1 == 1).map(move |bit| at as u64 * 64 + bit)
        };
        left.enumerate().flat_map(each)
    }
}

/// What happened that must not happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// Acknowledged and not there.
    pub lost: u64,
    /// There more than once: how many too many.
    pub duplicated: u64,
    /// There behind one that was sent later, in their partition.
    pub reordered: u64,
    /// There although refused or aborted.
    pub risen: u64,
}

/// The records of one run, by number. Numbers grow in the order of sends.
#[derive(Debug, Default)]
pub struct Check {
    acknowledged: Numbers,
    refused: Numbers,
    arrived: Numbers,
    newest: HashMap<i32, u64>,
    findings: Findings,
}

impl Check {
    /// It has to arrive once.
    pub fn acknowledged(&mut self, number: u64) {
        self.acknowledged.insert(number);
    }

    /// It must not arrive.
    pub fn refused(&mut self, number: u64) {
        self.refused.insert(number);
    }

    /// A reader has it; whether for the first time.
    pub fn arrived(&mut self, partition: i32, number: u64) -> bool {
        if !self.arrived.insert(number) {
            self.findings.duplicated += 1;
            return false;
        }
        let newest = self.newest.entry(partition).or_insert(number);
        if number < *newest {
            self.findings.reordered += 1;
        }
        *newest = number.max(*newest);
        true
    }

    pub fn acknowledged_count(&self) -> u64 {
        self.acknowledged.count
    }

    /// Whether every record that has to arrive has arrived.
    pub fn is_complete(&self) -> bool {
        self.acknowledged.without(&self.arrived).next().is_none()
    }

    pub fn findings(&self) -> Findings {
        let lost = self.acknowledged.without(&self.arrived).count() as u64;
        let risen = self.refused.words.iter().zip(&self.arrived.words);
        let risen = risen.map(|(refused, arrived)| u64::from((refused & arrived).count_ones())).sum();
        Findings { lost, risen, ..self.findings }
    }

    /// One sentence for each kind of fault.
    pub fn faults(&self) -> Vec<String> {
        let Findings { lost, duplicated, reordered, risen } = self.findings();
        let first = self.acknowledged.without(&self.arrived).next().unwrap_or_default();
        let of = self.acknowledged.count;
        let all = [
            (lost, format!("{lost} of {of} acknowledged records are lost; the first is number {first}")),
            (duplicated, format!("{duplicated} records arrived more than once")),
            (reordered, format!("{reordered} records arrived behind later ones of their partition")),
            (risen, format!("{risen} records arrived that were refused or aborted")),
        ];
        all.into_iter().filter(|(count, _)| *count > 0).map(|(_, text)| text).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_is_noticed_and_nothing_else() {
        let mut check = Check::default();
        (0..200).for_each(|number| check.acknowledged(number));
        assert!(!check.is_complete());
        (0..200).for_each(|number| assert!(check.arrived(i32::from(number % 2 == 1), number)));
        assert!(check.is_complete());
        assert_eq!(check.findings(), Findings::default());
        assert_eq!(check.faults(), Vec::<String>::new());

        assert!(!check.arrived(0, 100), "a second time");
        check.acknowledged(300);
        check.acknowledged(301);
        check.refused(299);
        assert!(check.arrived(0, 299));
        assert!(check.arrived(0, 250), "unknown, but behind a later one");
        assert!(check.arrived(1, 250 + 1), "in order where it is");
        assert_eq!(check.findings(), Findings { lost: 2, duplicated: 1, reordered: 1, risen: 1 });
        assert_eq!(check.faults().len(), 4);
        assert!(check.faults()[0].contains("2 of 202 acknowledged records are lost; the first is number 300"));
    }
}
