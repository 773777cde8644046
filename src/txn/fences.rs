//! Fences of one shard, and on shard 0 the broker's fence log.
//!
//! The log is a file of lines like those of slot journals, `<data>/__cluster/producer_fences/<broker>.log`. A fence is
//! durable in it before it is acknowledged; those that come during a write go out with the next one. It is written anew
//! when it has outgrown what is alive in it, behind a torn end, and after a failed write.
//! Failure: a log that cannot be written is tried again after a pause, and what waits for it waits on; a line of
//! another version refuses the start.

use std::cell::RefCell;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use oncilla_shards::code::ErrorCode;
use oncilla_shards::ids::{ProducerEpoch, ProducerId, ShardId};
use oncilla_shards::slot::Position;
use oncilla_shards::slot::line::{Lines, write_line};
use oncilla_shards::txn::{Fence, FenceEntry, Fences};

use crate::config::Config;
use crate::ctx::Ctx;
use crate::disk::layout::DataDir;
use crate::disk::replace::{create_directory_blocking, read_blocking, replace_blocking, sync_parent};
use crate::disk::{DiskError, context};
use crate::rt::file::blocking;
use crate::rt::{Notify, sleep, spawn};

/// Pause after a failed write.
const PAUSE_MS: u64 = 1_000;

/// What is to be written, and how far the log is durable.
#[derive(Debug, Default)]
struct Log {
    /// Lines that are not written.
    lines: Vec<u8>,
    /// Position of the last line, counted anew with each file.
    last: Position,
    /// Fences handed to the log since the start, and how many of them are durable.
    taken: u64,
    durable: u64,
    is_writing: bool,
    /// Whether the file cannot be continued.
    starts_anew: bool,
}

/// The fences of one shard.
#[derive(Debug)]
pub(super) struct FenceTable {
    path: PathBuf,
    fences: RefCell<Fences>,
    log: RefCell<Log>,
    written: Notify,
}

impl FenceTable {
    pub fn new(config: &Config) -> Self {
        let path = DataDir::new(&config.data_dir).producer_fences(config.broker_id);
        Self { path, fences: RefCell::default(), log: RefCell::default(), written: Notify::new() }
    }

    pub fn check(&self, producer_id: ProducerId, epoch: ProducerEpoch) -> Result<(), ErrorCode> {
        self.fences.borrow().check(producer_id, epoch)
    }

    pub fn load_blocking(&self, ctx: &Ctx) -> Result<(), DiskError> {
        let Some(bytes) = read_blocking(&self.path)? else { return Ok(()) };
        let (entries, is_whole) = read_log(&bytes, &self.path)?;
        if !is_whole && ctx.id == ShardId(0) {
            tracing::warn!(path = %self.path.display(), "the end of the fence log is torn and will be written anew");
        }
        let mut log = self.log.borrow_mut();
        (log.last, log.starts_anew) = (Position(entries.len() as u64), !is_whole);
        self.fences.borrow_mut().restore(entries);
        Ok(())
    }

    /// Whether everything that was put into the log is durable.
    #[cfg(test)]
    pub fn is_durable(&self) -> bool {
        let log = self.log.borrow();
        log.durable == log.taken
    }

    /// Puts what is new into the log; the number of fences that must be durable for it to be.
    fn take(&self, fence: Fence) -> u64 {
        let is_new = self.fences.borrow_mut().set(fence);
        let mut log = self.log.borrow_mut();
        if is_new {
            let position = log.last.next();
            write_line(position, &FenceEntry::from(fence), &mut log.lines);
            (log.last, log.taken) = (position, log.taken + 1);
        }
        log.taken
    }

    /// What is to be written now: the bytes, whether they are the whole file, and what is durable then.
    fn next_write(&self) -> Option<(Vec<u8>, bool, u64)> {
        let mut log = self.log.borrow_mut();
        let mut fences = self.fences.borrow_mut();
        if log.taken == log.durable {
            log.is_writing = false;
            return None;
        }
        let lines = std::mem::take(&mut log.lines);
        let is_whole = log.starts_anew || fences.compaction_due();
        if !is_whole {
            return Some((lines, false, log.taken));
        }
        let (mut whole, mut last) = (Vec::new(), Position::default());
        for entry in fences.entries() {
            last = last.next();
            write_line(last, &entry, &mut whole);
        }
        log.last = last;
        fences.compacted();
        Some((whole, true, log.taken))
    }

    async fn write_all(&self, ctx: &Ctx) {
        while let Some((bytes, is_whole, taken)) = self.next_write() {
            let path = self.path.clone();
            let written = blocking(move || write_blocking(&path, &bytes, is_whole)).await;
            {
                let mut log = self.log.borrow_mut();
                log.starts_anew = written.is_err();
                if written.is_ok() {
                    log.durable = taken;
                }
            }
            self.written.notify();
            if let Err(error) = written {
                tracing::error!("the fence log cannot be written, InitProducerId waits for it: {error}");
                sleep(Duration::from_millis(PAUSE_MS)).await;
                if ctx.stopping.get() {
                    self.log.borrow_mut().is_writing = false;
                    return;
                }
            }
        }
    }
}

/// Puts a fence up on this shard; on shard 0 it is durable in the log when this returns.
pub(super) async fn set(ctx: &Rc<Ctx>, fence: Fence) {
    let table = &ctx.txn.fences;
    if ctx.id != ShardId(0) {
        table.fences.borrow_mut().set(fence);
        return;
    }
    // Also one that was up before may still be on its way to the disk.
    let taken = table.take(fence);
    let must_start = table.log.borrow().durable < taken && !table.log.borrow().is_writing;
    if must_start {
        table.log.borrow_mut().is_writing = true;
        let ctx = ctx.clone();
        spawn(async move { ctx.txn.fences.write_all(&ctx).await });
    }
    loop {
        let written = table.written.notified();
        if table.log.borrow().durable >= taken {
            return;
        }
        written.await;
    }
}

/// The entries of a log, and whether nothing follows them. A torn write ends it: nothing of it was acknowledged.
fn read_log(bytes: &[u8], path: &Path) -> Result<(Vec<FenceEntry>, bool), DiskError> {
    let (mut entries, mut scratch) = (Vec::new(), Vec::new());
    let mut lines = Lines::new(bytes);
    for line in lines.by_ref() {
        let entry = line.decode(&mut scratch).map_err(|why| DiskError::invalid("read the fence log", path, why))?;
        entries.push(entry);
    }
    let is_whole = lines.bytes() == bytes.len();
    Ok((entries, is_whole))
}

fn write_blocking(path: &Path, bytes: &[u8], is_whole: bool) -> Result<(), DiskError> {
    if !is_whole && path.exists() {
        let mut file = context("open", path, OpenOptions::new().append(true).open(path))?;
        context("write", path, file.write_all(bytes))?;
        return context("sync", path, file.sync_data());
    }
    if let Some(directory) = path.parent() {
        create_directory_blocking(directory)?;
    }
    replace_blocking(path, bytes)?;
    sync_parent(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::testing::{block_on, ctx, restarted};

    fn fence(producer_id: i64, below: i32) -> Fence {
        Fence { producer_id: ProducerId(producer_id), below }
    }

    fn refuses(ctx: &Ctx, producer_id: i64, epoch: i16) -> bool {
        ctx.txn.check_fence(ProducerId(producer_id), ProducerEpoch(epoch)).is_err()
    }

    #[test]
    fn f35_a_fence_is_durable_before_it_is_acknowledged_and_a_start_finds_it() {
        let (ctx, _dir) = ctx();
        block_on(async {
            set(&ctx, fence(7, 3)).await;
            assert_eq!(ctx.txn.fences.log.borrow().durable, 1);
            set(&ctx, fence(8, 1)).await;
            set(&ctx, fence(7, 2)).await;
        });
        let next = restarted(&ctx);
        assert!(refuses(&next, 7, 2) && !refuses(&next, 7, 3) && refuses(&next, 8, 0));
        block_on(set(&next, fence(9, 5)));
        assert!(refuses(&restarted(&next), 9, 4) && refuses(&restarted(&next), 7, 2));
    }

    #[test]
    fn a_torn_end_is_cut_and_what_follows_is_not_lost_behind_it() {
        let (ctx, _dir) = ctx();
        block_on(set(&ctx, fence(7, 3)));
        let path = ctx.txn.fences.path.clone();
        let mut torn = std::fs::read(&path).expect("written");
        torn.extend_from_slice(b"0123abcd 2 {\"produ");
        std::fs::write(&path, torn).expect("written");
        let next = restarted(&ctx);
        assert!(refuses(&next, 7, 2));
        block_on(set(&next, fence(8, 1)));
        let third = restarted(&next);
        assert!(refuses(&third, 7, 2) && refuses(&third, 8, 0));
        assert!(!third.txn.fences.log.borrow().starts_anew);
    }

    #[test]
    fn a_log_that_outgrows_its_fences_is_written_anew() {
        let (ctx, _dir) = ctx();
        for below in 1..=1_100 {
            ctx.txn.fences.take(fence(7, below));
        }
        block_on(set(&ctx, fence(7, 2_000)));
        let bytes = std::fs::read(&ctx.txn.fences.path).expect("written");
        let (entries, is_whole) = read_log(&bytes, &ctx.txn.fences.path).expect("its own");
        assert_eq!((entries, is_whole), (vec![FenceEntry { producer_id: ProducerId(7), below: 2_000 }], true));
        assert!(refuses(&restarted(&ctx), 7, 1_999));
    }

    #[test]
    fn a_line_of_another_version_refuses_the_start() {
        let mut bytes = Vec::new();
        write_line(Position(1), &"something else", &mut bytes);
        let error = read_log(&bytes, Path::new("fences/0.log")).expect_err("refused").to_string();
        assert!(error.contains("fences/0.log"), "{error}");
    }
}
