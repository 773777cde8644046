//! The one writer of one growing file, a segment or a slot's journal: each append is one operation that is durable when
//! it completes.
//!
//! Owner: the task that writes the file. Writes are whole blocks: the tail block stays in memory and is written again
//! as it fills, its durable bytes with the values they have, so that a torn write cannot change them; zeros follow the
//! tail, and recovery stops there. Ahead of the tail a background task allocates and zeroes a window, because a
//! durable write over written blocks costs about half of one that extends the file. The window starts at the second
//! append with `ZERO_AHEAD_BYTES_MIN` and doubles each time, so a file with one record owns one block.
//!
//! Large appends would write every byte twice that way. Ahead of them blocks are only allocated, as much as the file
//! has already, up to `ALLOCATE_AHEAD_BYTES_MAX`. An append that extends the file cannot be begun without waiting, so
//! io_uring hands it to a worker thread that sleeps through it; one into allocated blocks is begun at once. Against
//! extending, a sustained load by librdkafka over 16 partitions took 18 % less of the broker's processor time and was
//! 12 % faster (medians of three in turns, ext4).
//!
//! A shard zeroes one window at a time. Files that grow alike, as the partitions of one transaction do, come to the end
//! of their windows together: 100 of them at once are 25 MB in front of the next acknowledgement. An append that has
//! outrun its window meanwhile extends the file, which costs it some 0.2 ms.
//!
//! Two writes never overlap: the window starts at or behind the end of every append before it, one window is in work
//! at a time, and an append that would reach into it waits until it is done. An append is `&mut`, so there is one.
//!
//! Why O_DIRECT | O_DSYNC is the default: to 16 files at once it wrote 1.2 to 4 times as often as O_DIRECT with an
//! fdatasync and 3 to 9 times as often as through the page cache, to 64 files 2.6 to 7 and 3 to 6 times
//! (`benches/disk_modes.rs`, ext4 on a virtual disk, three runs beside busy builds). One file alone is the exception
//! there: p50 of 4 ms against 0.1 ms with an fdatasync. Our explanation, not proven: a device without FUA has the sync
//! of an O_DSYNC write done by a kernel worker, which waits for a core like any thread. Idle, O_DSYNC wins alone too.
//!
//! Failure: the first failed write, sync or abandoned append poisons the writer, and every later call returns that
//! error: what the device holds is unknown until recovery has read it. A failed window only makes appends slower.

use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};

use bytes::Bytes;
use oncilla_shards::limits::{
    ALLOCATE_AHEAD_BYTES_MAX, ZERO_AHEAD_APPEND_BYTES_MAX, ZERO_AHEAD_BYTES_MAX, ZERO_AHEAD_BYTES_MIN,
    ZERO_WRITE_BYTES_MAX,
};

use super::DiskError;
use crate::rt::file::{
    Access, AlignedBuffer, BLOCK_BYTES, DurableFile, FaultPlan, FileMode, FileOptions, background_turn,
    spawn_background, sync_directory,
};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// How a file is written.
#[derive(Clone, Debug)]
pub struct AppendOptions {
    /// Past the page cache or through it.
    pub mode: FileMode,
    /// Whether each append is durable when it returns; otherwise [`AppendFile::sync`] decides.
    pub durable: bool,
    /// Size of the file that is expected: nothing is zeroed beyond.
    pub file_bytes: u64,
    /// Faults to inject; `None` outside tests.
    pub faults: Option<Arc<FaultPlan>>,
}

/// What an append wrote.
#[derive(Clone, Debug)]
pub struct Written {
    /// Where it starts in the file.
    pub position: u64,
    /// Its length.
    pub bytes: usize,
    /// The bytes themselves, for the tail cache.
    pub buffer: Bytes,
}

/// Zeroing ahead of the tail, shared with the task that does it.
#[derive(Default)]
struct Ahead {
    /// Everything below is written or zeroed.
    ready_end: Cell<u64>,
    /// End of the window in work, which starts at `ready_end`; 0 if there is none.
    working_end: Cell<u64>,
    /// A window waits for its turn.
    is_queued: Cell<bool>,
    /// No window is wanted any more: one has failed, or the file has its final size.
    is_over: Cell<bool>,
    /// Everything below has blocks, whatever is in them.
    allocated_end: Cell<u64>,
    /// More is being allocated: the file may still grow.
    is_allocating: Cell<bool>,
    waiting: RefCell<Option<Waker>>,
}

/// A file that only grows.
pub struct AppendFile {
    file: Rc<DurableFile>,
    file_bytes: u64,
    end: u64,
    /// The bytes of the last, partly filled block.
    tail: Vec<u8>,
    ahead: Rc<Ahead>,
    window_bytes: u64,
    appends: u64,
    poison: Option<DiskError>,
    is_appending: bool,
}

impl AppendFile {
    /// Creates the file, its name durable; an error if the name exists.
    pub async fn create(path: &Path, options: AppendOptions) -> Result<Self, DiskError> {
        let file_options = FileOptions { mode: options.mode, durable: options.durable, faults: options.faults };
        let file = DurableFile::open(path, Access::Create, &file_options).await?;
        sync_directory(path.parent().expect("a file to create is in a directory")).await?;
        Ok(Self {
            file: Rc::new(file),
            file_bytes: options.file_bytes,
            end: 0,
            tail: Vec::new(),
            ahead: Rc::default(),
            window_bytes: ZERO_AHEAD_BYTES_MIN,
            appends: 0,
            poison: None,
            is_appending: false,
        })
    }

    /// Whether each append is durable when it returns.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        self.file.is_durable()
    }

    /// Where the file is.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Bytes appended so far.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Appends `len` bytes that `fill` puts into a buffer of that length, as one write.
    pub async fn append_with(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> Result<Written, DiskError> {
        self.check()?;
        assert!(len > 0, "an append of nothing to {}", self.path().display());
        let kept = self.tail.len();
        let buffer = AlignedBuffer::filled(kept + len, |bytes| {
            bytes[..kept].copy_from_slice(&self.tail);
            fill(&mut bytes[kept..]);
        });

        let start = self.end - kept as u64;
        let write_end = start + buffer.as_slice().len() as u64;
        self.is_appending = true;
        self.wait_for_window(write_end).await;
        if self.ahead.working_end.get() == 0 && self.ahead.ready_end.get() < write_end {
            self.ahead.ready_end.set(write_end);
        }
        let written = self.file.write_aligned(buffer, start).await;
        self.is_appending = false;
        let buffer = written.map_err(|error| self.poisoned_by(error))?;

        let position = self.end;
        self.end += len as u64;
        self.appends += 1;
        let filled = kept + len;
        self.tail.clear();
        self.tail.extend_from_slice(&buffer.as_slice()[filled - filled % BLOCK_BYTES..filled]);
        if len < ZERO_AHEAD_APPEND_BYTES_MAX {
            self.zero_ahead();
        } else {
            self.allocate_ahead();
        }
        Ok(Written { position, bytes: len, buffer: share(buffer, kept, len) })
    }

    /// Makes every append before it durable; needed only where appends are not.
    pub async fn sync(&mut self) -> Result<(), DiskError> {
        self.check()?;
        self.file.sync().await.map_err(|error| self.poisoned_by(error))
    }

    /// Cuts the file to what was appended, durably; returns its bytes.
    pub async fn cut(&mut self) -> Result<u64, DiskError> {
        self.check()?;
        self.ahead.is_over.set(true);
        self.wait_until(|ahead| ahead.working_end.get() == 0 && !ahead.is_allocating.get()).await;
        self.file.truncate(self.end).await?;
        self.file.sync().await?;
        Ok(self.end)
    }

    /// Closes the file; dropping it does so too, without saying whether it worked.
    pub async fn close(self) -> Result<(), DiskError> {
        match Rc::try_unwrap(self.file) {
            Ok(file) => file.close().await,
            Err(_) => Ok(()),
        }
    }

    /// An error if an earlier operation has failed or was abandoned.
    pub(super) fn check(&mut self) -> Result<(), DiskError> {
        if self.is_appending {
            let error = DiskError::invalid("write", self.path(), "an append was abandoned while in flight");
            self.is_appending = false;
            self.poison.get_or_insert(error);
        }
        self.poison.clone().map_or(Ok(()), Err)
    }

    fn poisoned_by(&mut self, error: DiskError) -> DiskError {
        self.poison.get_or_insert(error).clone()
    }

    /// Waits while a window is in work that a write up to `write_end` would reach into.
    async fn wait_for_window(&self, write_end: u64) {
        self.wait_until(|ahead| ahead.working_end.get() == 0 || write_end <= ahead.ready_end.get()).await;
    }

    async fn wait_until(&self, is_so: impl Fn(&Ahead) -> bool) {
        let ahead = &self.ahead;
        std::future::poll_fn(|context| {
            if is_so(ahead) {
                return Poll::Ready(());
            }
            *ahead.waiting.borrow_mut() = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Allocates blocks for more large appends when less than half of what was allocated last is left.
    fn allocate_ahead(&mut self) {
        let allocated_end = self.ahead.allocated_end.get().max(self.end);
        let wanted = self.end.min(ALLOCATE_AHEAD_BYTES_MAX);
        let window_end = (allocated_end + wanted).min(self.file_bytes).next_multiple_of(BLOCK);
        let is_wanted = self.appends >= 2 && allocated_end - self.end < wanted / 2 && window_end > allocated_end;
        if !is_wanted || self.ahead.is_allocating.get() || self.ahead.is_over.get() {
            return;
        }
        self.ahead.is_allocating.set(true);
        spawn_background(allocate(self.file.clone(), self.ahead.clone(), window_end));
    }

    /// Starts the next window when less than half of the last one is left.
    fn zero_ahead(&mut self) {
        let ready_end = self.ahead.ready_end.get();
        let left = ready_end.saturating_sub(self.end);
        let is_wanted = self.appends >= 2 && left < self.window_bytes / 2;
        let is_under_way = self.ahead.is_queued.get() || self.ahead.working_end.get() != 0;
        let limit = self.file_bytes.next_multiple_of(BLOCK);
        if !is_wanted || is_under_way || self.ahead.is_over.get() || ready_end >= limit {
            return;
        }
        self.ahead.is_queued.set(true);
        spawn_background(zero_window(self.file.clone(), self.ahead.clone(), self.window_bytes, limit));
        self.window_bytes = (self.window_bytes * 2).min(ZERO_AHEAD_BYTES_MAX);
    }
}

async fn allocate(file: Rc<DurableFile>, ahead: Rc<Ahead>, window_end: u64) {
    match file.preallocate(window_end).await {
        Ok(()) => ahead.allocated_end.set(window_end),
        Err(error) => {
            tracing::warn!(%error, "nothing more is allocated ahead in this file: appends extend it from now on");
            ahead.is_over.set(true);
        }
    }
    ahead.is_allocating.set(false);
    wake(&ahead);
}

/// Allocates and zeroes a window from `ready_end` on, not beyond `limit`; moves `ready_end` along with what is done.
async fn zero_window(file: Rc<DurableFile>, ahead: Rc<Ahead>, window_bytes: u64, limit: u64) {
    let _turn = background_turn().await;
    ahead.is_queued.set(false);
    // Appends may have gone on while it waited.
    let window_end = (ahead.ready_end.get() + window_bytes).min(limit);
    if ahead.is_over.get() || window_end <= ahead.ready_end.get() {
        return;
    }
    ahead.working_end.set(window_end);
    let mut result = file.preallocate(window_end).await;
    while result.is_ok() && ahead.ready_end.get() < window_end {
        let at = ahead.ready_end.get();
        let bytes = (window_end - at).min(ZERO_WRITE_BYTES_MAX);
        result = file.write_aligned(AlignedBuffer::zeroed(bytes as usize), at).await.map(drop);
        if result.is_ok() {
            ahead.ready_end.set(at + bytes);
            wake(&ahead);
        }
    }
    if let Err(error) = result {
        tracing::warn!(%error, "zeroing ahead stops for this file: appends extend the file from now on");
        ahead.is_over.set(true);
    }
    ahead.working_end.set(0);
    wake(&ahead);
}

fn wake(ahead: &Ahead) {
    if let Some(waker) = ahead.waiting.borrow_mut().take() {
        waker.wake();
    }
}

/// The appended part of a buffer. Where it is less than half of it, a copy: the cache should not hold mostly padding.
fn share(buffer: AlignedBuffer, from: usize, len: usize) -> Bytes {
    if len * 2 < buffer.as_slice().len() {
        Bytes::copy_from_slice(&buffer.as_slice()[from..from + len])
    } else {
        buffer.into_bytes().slice(from..from + len)
    }
}

#[cfg(test)]
#[path = "append_file_tests.rs"]
mod tests;
