//! Producer ids: unique in the cluster, ascending, never handed out twice over any number of restarts.
//!
//! A broker's ids are `(broker + 1) << 40 | local`. The file holds where the next block starts; it is durable before an
//! id below that leaves, so a crash skips ids and never repeats one. Owner: shard 0 has the [`ProducerIdBlocks`]; each
//! shard hands out the ids of a block of its own.
//! Failure: the file is created once, at the first start of a data directory. A missing or damaged one is refused, with
//! no fallback to 1: an id given twice breaks exactly-once. After a failed write the next block starts behind it.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::task::{Poll, Waker};

use oncilla_shards::ids::{BrokerId, ProducerId};
use oncilla_shards::limits::PRODUCER_ID_BLOCK;
use serde::{Deserialize, Serialize};

use crate::disk::DiskError;
use crate::disk::layout::DataDir;
use crate::disk::replace::{create_directory_blocking, read_json_blocking, replace_json, replace_json_blocking};

const LOCAL_BITS: u32 = 40;
const LOCAL_MAX: i64 = (1 << LOCAL_BITS) - 1;

#[derive(Serialize, Deserialize)]
struct Stored {
    broker: BrokerId,
    /// First local id that no block holds yet.
    next_local: i64,
}

/// Creates the file of a broker that has handed out no id yet; an existing one is left as it is. Blocks. Called before
/// the first boot epoch is stored (`disk::boot`), so that from then on a missing file means a lost one.
pub fn create_blocking(data: &DataDir, broker: BrokerId) -> Result<(), DiskError> {
    let path = data.producer_ids(broker);
    if read_json_blocking::<Stored>(&path)?.is_some() {
        return Ok(());
    }
    create_directory_blocking(&data.producer_ids_dir())?;
    replace_json_blocking(&path, &Stored { broker, next_local: 1 })
}

/// Ids that one shard hands out, in order.
#[derive(Debug, PartialEq, Eq)]
pub struct ProducerIdBlock {
    next: i64,
    end: i64,
}

impl ProducerIdBlock {
    /// A block without ids: what a shard starts with.
    #[must_use]
    pub fn empty() -> Self {
        Self { next: 0, end: 0 }
    }

    /// The next id; `None` when the block is used up.
    pub fn take(&mut self) -> Option<ProducerId> {
        let id = (self.next < self.end).then_some(ProducerId(self.next))?;
        self.next += 1;
        Some(id)
    }
}

/// Gives out the blocks of one broker.
pub struct ProducerIdBlocks {
    path: PathBuf,
    broker: BrokerId,
    next_local: Cell<i64>,
    is_writing: Cell<bool>,
    waiting: RefCell<VecDeque<Waker>>,
}

impl ProducerIdBlocks {
    /// Reads where the broker's next block starts; blocks.
    pub fn open_blocking(data: &DataDir, broker: BrokerId) -> Result<Self, DiskError> {
        let path = data.producer_ids(broker);
        let refuse = |message: String| DiskError::invalid("read producer ids", &path, message);
        let stored: Stored = read_json_blocking(&path)?.ok_or_else(|| {
            refuse("it is missing: restore it, or set broker.id to what this data directory was made with".into())
        })?;
        if stored.broker != broker {
            return Err(refuse(format!("it is broker {}'s, this is broker {broker}", stored.broker)));
        }
        if !(1..=LOCAL_MAX + 1).contains(&stored.next_local) {
            return Err(refuse(format!("next_local {} is not an id", stored.next_local)));
        }
        let next_local = Cell::new(stored.next_local);
        Ok(Self { path, broker, next_local, is_writing: Cell::new(false), waiting: RefCell::default() })
    }

    /// A block that nobody else has or will have, durable. Callers wait for each other: a file must never go back.
    pub async fn next_block(&self) -> Result<ProducerIdBlock, DiskError> {
        let _turn = self.turn().await;
        let start = self.next_local.get();
        let end = (start + PRODUCER_ID_BLOCK).min(LOCAL_MAX + 1);
        if start >= end {
            return Err(DiskError::invalid("give producer ids", &self.path, "this broker's ids are used up"));
        }
        self.next_local.set(end);
        replace_json(self.path.clone(), &Stored { broker: self.broker, next_local: end }).await?;
        let first = (i64::from(self.broker.0) + 1) << LOCAL_BITS;
        Ok(ProducerIdBlock { next: first + start, end: first + end })
    }

    async fn turn(&self) -> Turn<'_> {
        std::future::poll_fn(|context| {
            if !self.is_writing.replace(true) {
                return Poll::Ready(Turn(self));
            }
            self.waiting.borrow_mut().push_back(context.waker().clone());
            Poll::Pending
        })
        .await
    }
}

struct Turn<'a>(&'a ProducerIdBlocks);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.is_writing.set(false);
        // All of them: one that was dropped while it waited must not swallow the turn of the others.
        self.0.waiting.borrow_mut().drain(..).for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::rc::Rc;

    use super::*;
    use crate::rt::file::test_block_on;

    const BROKER: BrokerId = BrokerId(3);

    fn new_data() -> (tempfile::TempDir, DataDir) {
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::new(dir.path());
        create_blocking(&data, BROKER).unwrap();
        (dir, data)
    }

    #[test]
    fn ids_carry_the_broker_and_start_at_one() {
        let (_dir, data) = new_data();
        let mut block = test_block_on(ProducerIdBlocks::open_blocking(&data, BROKER).unwrap().next_block()).unwrap();
        assert_eq!(block.take(), Some(ProducerId(4 << 40 | 1)));
        assert_eq!((1..).take_while(|_| block.take().is_some()).count(), PRODUCER_ID_BLOCK as usize - 1);
        assert_eq!(ProducerIdBlock::empty().take(), None);
    }

    #[test]
    fn no_id_twice_over_a_hundred_restarts_with_and_without_a_crash() {
        let (_dir, data) = new_data();
        let mut given = HashSet::new();
        let mut largest = 0;
        test_block_on(async {
            for restart in 0..100 {
                let blocks = ProducerIdBlocks::open_blocking(&data, BROKER).unwrap();
                create_blocking(&data, BROKER).unwrap();
                for _ in 0..restart % 3 {
                    let mut block = blocks.next_block().await.unwrap();
                    for _ in 0..restart % 7 {
                        let id = block.take().unwrap();
                        assert!(given.insert(id), "{id} was given twice");
                        assert!(id.0 > largest, "{id} came after {largest}");
                        largest = id.0;
                    }
                }
                // A crash between the durable update and the hand-out: the block is lost, not reused.
                blocks.next_block().await.unwrap();
            }
        });
        assert!(given.len() > 200);
    }

    #[test]
    fn shards_that_ask_at_once_get_different_blocks() {
        let (_dir, data) = new_data();
        let blocks = Rc::new(ProducerIdBlocks::open_blocking(&data, BROKER).unwrap());
        let starts = test_block_on(async {
            let starts = Rc::new(RefCell::new(Vec::new()));
            for _ in 0..20 {
                let (blocks, starts) = (blocks.clone(), starts.clone());
                crate::rt::file::spawn_background(async move {
                    let block = blocks.next_block().await.unwrap();
                    starts.borrow_mut().push(block.next);
                });
            }
            while starts.borrow().len() < 20 {
                crate::rt::file::blocking(|| ()).await;
            }
            starts.take()
        });
        assert_eq!(starts.iter().collect::<HashSet<_>>().len(), 20);
        let reopened = ProducerIdBlocks::open_blocking(&data, BROKER).unwrap();
        assert_eq!(reopened.next_local.get(), 1 + 20 * PRODUCER_ID_BLOCK);
    }

    #[test]
    fn a_missing_or_damaged_file_refuses_and_never_starts_over() {
        let (_dir, data) = new_data();
        for damage in ["", "{", "{}", "{\"broker\":3,\"next_local\":0}", "{\"broker\":4,\"next_local\":5}"] {
            std::fs::write(data.producer_ids(BROKER), damage).unwrap();
            assert!(ProducerIdBlocks::open_blocking(&data, BROKER).is_err(), "{damage}");
        }
        std::fs::remove_file(data.producer_ids(BROKER)).unwrap();
        let error = ProducerIdBlocks::open_blocking(&data, BROKER).err().unwrap();
        assert!(error.to_string().contains("missing"), "{error}");
    }

    #[test]
    fn the_last_id_is_not_exceeded() {
        let (_dir, data) = new_data();
        let stored = Stored { broker: BROKER, next_local: LOCAL_MAX - 1 };
        replace_json_blocking(&data.producer_ids(BROKER), &stored).unwrap();
        test_block_on(async {
            let blocks = ProducerIdBlocks::open_blocking(&data, BROKER).unwrap();
            let mut block = blocks.next_block().await.unwrap();
            assert_eq!(block.take(), Some(ProducerId((4 << 40) + LOCAL_MAX - 1)));
            assert_eq!(block.take(), Some(ProducerId((4 << 40) + LOCAL_MAX)));
            assert_eq!(block.take(), None);
            assert!(blocks.next_block().await.is_err());
            assert!(ProducerIdBlocks::open_blocking(&data, BROKER).unwrap().next_block().await.is_err());
        });
    }
}
