//! Files as the disk layer sees them: aligned writes that are durable when they complete, reads, and blocking helpers.
//!
//! Owner: the shard that opened the file; a `DurableFile` never leaves its thread. Buffers may: what was written is
//! shared as `Bytes` without a copy. Limits: positions and lengths of writes are multiples of `BLOCK_BYTES`.
//! Failure: every error names operation, path and position. A short write is continued with what is missing; one that
//! makes no progress is an error. Nothing here retries a failed operation.

use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};

use bytes::Bytes;
use glommio::io::{BufferedFile, Directory, DmaBuffer, DmaFile, OpenOptions};

/// Unit of segment writes: positions, lengths and memory of every write are multiples of it. Devices ask for 512 or
/// 4096; the larger one is right on both.
pub const BLOCK_BYTES: usize = 4096;

/// What the world did to a file operation.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{operation} {}{}: {message}", path.display(), at(*position))]
pub struct FileError {
    /// What was tried.
    pub operation: &'static str,
    /// On which file or directory.
    pub path: PathBuf,
    /// At which byte, where that means something.
    pub position: Option<u64>,
    /// The class of the error.
    pub kind: io::ErrorKind,
    /// The operating system's words.
    pub message: String,
}

fn at(position: Option<u64>) -> String {
    position.map(|p| format!(" at byte {p}")).unwrap_or_default()
}

impl FileError {
    /// An error of the operating system in `operation` on `path`.
    pub fn new(operation: &'static str, path: &Path, error: &io::Error) -> Self {
        Self { operation, path: path.to_path_buf(), position: None, kind: error.kind(), message: error.to_string() }
    }

    /// The same for bytes that are not what they must be.
    pub fn invalid(operation: &'static str, path: &Path, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { operation, path: path.to_path_buf(), position: None, kind: io::ErrorKind::InvalidData, message }
    }

    fn at(mut self, position: u64) -> Self {
        self.position = Some(position);
        self
    }
}

/// How a file is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileMode {
    /// O_DIRECT, past the page cache.
    Direct,
    /// Through the page cache.
    Buffered,
}

/// What a file is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// A new file to write; an error if the name exists.
    Create,
    /// An existing file to read.
    Read,
}

/// How to open a file.
#[derive(Clone, Debug)]
pub struct FileOptions {
    /// How it is reached.
    pub mode: FileMode,
    /// Whether a completed write is durable (O_DSYNC); otherwise `DurableFile::sync` makes it so.
    pub durable: bool,
    /// Faults to inject; `None` outside tests.
    pub faults: Option<Arc<FaultPlan>>,
}

/// Faults that a test wants to see; counts are of operations still let through before the fault.
#[derive(Debug)]
pub struct FaultPlan {
    writes_before_fault: AtomicI64,
    written_before_fault_bytes: AtomicUsize,
    write_is_short_only: AtomicBool,
    syncs_before_fault: AtomicI64,
}

impl Default for FaultPlan {
    fn default() -> Self {
        Self {
            writes_before_fault: AtomicI64::new(-1),
            written_before_fault_bytes: AtomicUsize::new(0),
            write_is_short_only: AtomicBool::new(false),
            syncs_before_fault: AtomicI64::new(-1),
        }
    }
}

impl FaultPlan {
    /// Lets `count` writes pass; the next one puts `torn_bytes` on the disk and fails.
    pub fn fail_write_after(&self, count: u32, torn_bytes: usize) {
        self.written_before_fault_bytes.store(torn_bytes, Ordering::Relaxed);
        self.write_is_short_only.store(false, Ordering::Relaxed);
        self.writes_before_fault.store(i64::from(count), Ordering::Relaxed);
    }

    /// Lets `count` writes pass; the next one reports that it wrote only `bytes`.
    pub fn shorten_write_after(&self, count: u32, bytes: usize) {
        self.fail_write_after(count, bytes);
        self.write_is_short_only.store(true, Ordering::Relaxed);
    }

    /// Lets `count` syncs pass; the next one fails.
    pub fn fail_sync_after(&self, count: u32) {
        self.syncs_before_fault.store(i64::from(count), Ordering::Relaxed);
    }

    fn is_due(counter: &AtomicI64) -> bool {
        let left = counter.load(Ordering::Relaxed);
        counter.store((left - 1).max(-1), Ordering::Relaxed);
        left == 0
    }
}

/// Block-aligned memory that a direct write takes its bytes from.
pub struct AlignedBuffer(DmaBuffer);

impl AlignedBuffer {
    /// `len` zero bytes; `len` is a positive multiple of `BLOCK_BYTES`.
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        assert!(len > 0 && len.is_multiple_of(BLOCK_BYTES), "a write of {len} bytes is not made of whole blocks");
        let mut buffer = glommio::allocate_dma_buffer_global(len);
        buffer.as_bytes_mut().fill(0);
        Self(buffer)
    }

    /// `len` bytes, above 0, and behind them zeros up to a whole block. `fill` has to set every byte that it is given:
    /// what it leaves would be old memory on the disk. Zeroing all of it first would be a second pass over the memory.
    #[must_use]
    pub fn filled(len: usize, fill: impl FnOnce(&mut [u8])) -> Self {
        assert!(len > 0, "a write of nothing");
        let mut buffer = glommio::allocate_dma_buffer_global(len.next_multiple_of(BLOCK_BYTES));
        let (bytes, padding) = buffer.as_bytes_mut().split_at_mut(len);
        padding.fill(0);
        fill(bytes);
        Self(buffer)
    }

    /// The bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// The bytes, to fill.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        self.0.as_bytes_mut()
    }

    /// The same memory as shared bytes.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        Bytes::from_owner(Shared(self.0))
    }
}

struct Shared(DmaBuffer);

// SAFETY: only `AlignedBuffer::zeroed` makes these, from `allocate_dma_buffer_global`: plain memory of the global
// allocator, tied to no executor and no thread, and never mutated once it is shared.
unsafe impl Send for Shared {}

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

enum Handle {
    Direct(DmaFile),
    Buffered(BufferedFile),
}

/// An open file.
pub struct DurableFile {
    handle: Handle,
    path: PathBuf,
    durable: bool,
    faults: Option<Arc<FaultPlan>>,
}

impl DurableFile {
    /// Opens `path`; where the file system refuses O_DIRECT, through the page cache with one log line a process.
    pub async fn open(path: &Path, access: Access, options: &FileOptions) -> Result<Self, FileError> {
        let handle = match Self::open_handle(path, access, options).await {
            Err(error) if options.mode == FileMode::Direct && error.kind() == io::ErrorKind::InvalidInput => {
                static LOGGED: AtomicBool = AtomicBool::new(false);
                if !LOGGED.swap(true, Ordering::Relaxed) {
                    tracing::warn!(path = %path.display(), "the file system refuses O_DIRECT: using the page cache");
                }
                // The refusal comes after the file was created, so its name may exist now.
                let flags = if options.durable { rustix::fs::OFlags::DSYNC } else { rustix::fs::OFlags::empty() };
                let opened = open_options(access, flags, false).buffered_open(path).await;
                opened.map(Handle::Buffered).map_err(io::Error::from)
            }
            other => other,
        };
        let handle = handle.map_err(|e| FileError::new("open", path, &e))?;
        Ok(Self { handle, path: path.to_path_buf(), durable: options.durable, faults: options.faults.clone() })
    }

    async fn open_handle(path: &Path, access: Access, options: &FileOptions) -> io::Result<Handle> {
        let flags = if options.durable { rustix::fs::OFlags::DSYNC } else { rustix::fs::OFlags::empty() };
        let open = open_options(access, flags, true);
        Ok(match options.mode {
            FileMode::Direct => Handle::Direct(open.dma_open(path).await?),
            FileMode::Buffered => Handle::Buffered(open.buffered_open(path).await?),
        })
    }

    /// How the file is reached, after a possible fall-back.
    #[must_use]
    pub fn mode(&self) -> FileMode {
        match self.handle {
            Handle::Direct(_) => FileMode::Direct,
            Handle::Buffered(_) => FileMode::Buffered,
        }
    }

    /// Whether completed writes are durable.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        self.durable
    }

    /// Where the file is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the whole buffer at `position`, a multiple of `BLOCK_BYTES`, and gives the buffer back.
    pub async fn write_aligned(&self, buffer: AlignedBuffer, position: u64) -> Result<AlignedBuffer, FileError> {
        assert!(position.is_multiple_of(BLOCK_BYTES as u64), "write to {} at {position}", self.path.display());
        let (buffer, mut done) = self.write_once(buffer, position).await?;
        let bytes = buffer.as_slice().len();
        while done < bytes {
            // The kernel stopped early. Whole blocks that are down stay down; the rest is tried once more from there.
            let from = done - done % BLOCK_BYTES;
            let rest = AlignedBuffer::filled(bytes - from, |rest| rest.copy_from_slice(&buffer.as_slice()[from..]));
            let (_, more) = self.write_once(rest, position + from as u64).await?;
            if from + more <= done {
                let message = format!("only {done} of {bytes} bytes were written");
                return Err(FileError { kind: io::ErrorKind::WriteZero, ..self.error("write", position, message) });
            }
            done = from + more;
        }
        Ok(buffer)
    }

    async fn write_once(&self, buffer: AlignedBuffer, position: u64) -> Result<(AlignedBuffer, usize), FileError> {
        if let Some(plan) = &self.faults
            && FaultPlan::is_due(&plan.writes_before_fault)
        {
            return self.write_faulty(plan, buffer, position).await;
        }
        self.write_to_kernel(buffer, position).await
    }

    async fn write_to_kernel(&self, buffer: AlignedBuffer, position: u64) -> Result<(AlignedBuffer, usize), FileError> {
        match &self.handle {
            Handle::Direct(file) => {
                let shared = Rc::new(buffer.0);
                let result = file.write_rc_at(shared.clone(), position).await;
                let bytes = result.map_err(|e| self.io_error("write", e).at(position))?;
                let buffer = Rc::try_unwrap(shared).unwrap_or_else(|kept| {
                    // The ring still holds its reference: rare, and a copy is as good.
                    AlignedBuffer::filled(kept.len(), |copy| copy.copy_from_slice(kept.as_bytes())).0
                });
                Ok((AlignedBuffer(buffer), bytes))
            }
            Handle::Buffered(file) => {
                let result = file.write_at(buffer.as_slice().to_vec(), position).await;
                let bytes = result.map_err(|e| self.io_error("write", e).at(position))?;
                Ok((buffer, bytes))
            }
        }
    }

    async fn write_faulty(
        &self,
        plan: &FaultPlan,
        buffer: AlignedBuffer,
        position: u64,
    ) -> Result<(AlignedBuffer, usize), FileError> {
        let torn = plan.written_before_fault_bytes.load(Ordering::Relaxed).min(buffer.as_slice().len());
        let torn = torn - torn % BLOCK_BYTES;
        if torn > 0 {
            let part = AlignedBuffer::filled(torn, |part| part.copy_from_slice(&buffer.as_slice()[..torn]));
            self.write_to_kernel(part, position).await?;
        }
        if plan.write_is_short_only.load(Ordering::Relaxed) {
            return Ok((buffer, torn));
        }
        Err(self.error("write", position, "injected fault".into()))
    }

    /// Up to `len` bytes from `position`: fewer only where the file ends.
    pub async fn read(&self, position: u64, len: usize) -> Result<Bytes, FileError> {
        let mut first = self.read_once(position, len).await?;
        if first.len() == len || first.is_empty() {
            return Ok(first.into());
        }
        loop {
            let more = self.read_once(position + first.len() as u64, len - first.len()).await?;
            if more.is_empty() {
                return Ok(first.into());
            }
            first.extend_from_slice(&more);
            if first.len() == len {
                return Ok(first.into());
            }
        }
    }

    async fn read_once(&self, position: u64, len: usize) -> Result<Vec<u8>, FileError> {
        match &self.handle {
            Handle::Direct(file) => {
                // Aligned here: glommio's unaligned `read_at` counts the bytes before `position` as read where the
                // file ends, and hands out that many bytes from beyond the end.
                let block = BLOCK_BYTES as u64;
                let start = position - position % block;
                let skip = (position - start) as usize;
                let result = file.read_at_aligned(start, (skip + len).next_multiple_of(BLOCK_BYTES)).await;
                let got = result.map_err(|e| self.io_error("read", e).at(position))?;
                Ok(got.get(skip..got.len().min(skip + len)).unwrap_or_default().to_vec())
            }
            Handle::Buffered(file) => {
                let result = file.read_at(position, len).await;
                Ok(result.map_err(|e| self.io_error("read", e).at(position))?.to_vec())
            }
        }
    }

    /// Allocates blocks so that the file holds `bytes`; the new part reads as zero.
    pub async fn preallocate(&self, bytes: u64) -> Result<(), FileError> {
        let result = match &self.handle {
            Handle::Direct(file) => file.pre_allocate(bytes, false).await,
            Handle::Buffered(file) => file.pre_allocate(bytes, false).await,
        };
        result.map_err(|e| self.io_error("preallocate", e).at(bytes))
    }

    /// Cuts the file to `bytes`; durable after `sync`.
    pub async fn truncate(&self, bytes: u64) -> Result<(), FileError> {
        let result = match &self.handle {
            Handle::Direct(file) => file.truncate(bytes).await,
            Handle::Buffered(file) => file.truncate(bytes).await,
        };
        result.map_err(|e| self.io_error("truncate", e).at(bytes))
    }

    /// Makes everything written and the file's size durable.
    pub async fn sync(&self) -> Result<(), FileError> {
        if let Some(plan) = &self.faults
            && FaultPlan::is_due(&plan.syncs_before_fault)
        {
            return Err(FileError { position: None, ..self.error("sync", 0, "injected fault".into()) });
        }
        let result = match &self.handle {
            Handle::Direct(file) => file.fdatasync().await,
            Handle::Buffered(file) => file.fdatasync().await,
        };
        result.map_err(|e| self.io_error("sync", e))
    }

    /// Closes the file; dropping it does so too, without saying whether it worked.
    pub async fn close(self) -> Result<(), FileError> {
        let result = match self.handle {
            Handle::Direct(file) => file.close().await.map(|_| ()),
            Handle::Buffered(file) => file.close().await,
        };
        result.map_err(|e| FileError::new("close", &self.path, &io::Error::from(e)))
    }

    fn io_error(&self, operation: &'static str, error: glommio::GlommioError<()>) -> FileError {
        FileError::new(operation, &self.path, &io::Error::from(error))
    }

    fn error(&self, operation: &'static str, position: u64, message: String) -> FileError {
        let path = self.path.clone();
        FileError { operation, path, position: Some(position), kind: io::ErrorKind::Other, message }
    }
}

fn open_options(access: Access, flags: rustix::fs::OFlags, exclusive: bool) -> OpenOptions {
    let mut options = OpenOptions::new();
    match access {
        Access::Create => options.write(true).read(true).create(true).create_new(exclusive),
        Access::Read => options.read(true),
    };
    options.custom_flags(i32::try_from(flags.bits()).expect("open flags fit an int"));
    options
}

/// Makes the names in a directory durable.
pub async fn sync_directory(path: &Path) -> Result<(), FileError> {
    let run = async {
        // glommio opens directories relative to descriptor -1, so only an absolute path finds one.
        let directory = Directory::open(std::path::absolute(path)?).await?;
        directory.sync().await?;
        directory.close().await
    };
    run.await.map_err(|e: glommio::GlommioError<()>| FileError::new("sync directory", path, &io::Error::from(e)))
}

/// Runs `job` on the shard's helper thread: for calls that block and have no form in the ring.
pub async fn blocking<T: Send + 'static>(job: impl FnOnce() -> T + Send + 'static) -> T {
    glommio::executor().spawn_blocking(job).await
}

/// This shard's turn at background writes, of which one at a time is enough; given back when it is dropped.
pub async fn background_turn() -> impl Drop {
    thread_local! {
        static TURN: Rc<glommio::sync::Semaphore> = Rc::new(glommio::sync::Semaphore::new(1));
    }
    let turn = TURN.with(Rc::clone);
    turn.acquire_static_permit(1).await.expect("nothing closes it")
}

/// Starts a task of its own on this shard; it ends by itself.
pub fn spawn_background(task: impl Future<Output = ()> + 'static) {
    glommio::spawn_local(task).detach();
}

/// Runs `future` on an executor of this thread: for tests and benches of the disk layer.
///
/// The executor is kept for the next call, because making one maps memory and rings, which would be most of the time of
/// a property test. A test has a thread, and so an executor, of its own.
pub fn test_block_on<T>(future: impl Future<Output = T>) -> T {
    thread_local! {
        static EXECUTOR: glommio::LocalExecutor = glommio::LocalExecutorBuilder::new(glommio::Placement::Unbound)
            .io_memory(64 << 10)
            .make()
            .expect("an executor for a test");
    }
    EXECUTOR.with(|executor| executor.run(future))
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
