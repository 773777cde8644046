use std::path::PathBuf;
use std::process::Command;

use super::*;
use crate::rt::file::test_block_on;

const NAME: &str = "some.file";

fn options(mode: FileMode, durable: bool, faults: Option<Arc<FaultPlan>>) -> AppendOptions {
    AppendOptions { mode, durable, file_bytes: 64 << 20, faults }
}

async fn create(dir: &Path, options: AppendOptions) -> AppendFile {
    AppendFile::create(&dir.join(NAME), options).await.unwrap()
}

/// Bytes that say where they belong, and are never zero.
fn pattern(position: u64, len: usize) -> Vec<u8> {
    (position..position + len as u64).map(|i| (i % 255) as u8 + 1).collect()
}

async fn append(writer: &mut AppendFile, len: usize) -> Result<Written, DiskError> {
    let bytes = pattern(writer.end(), len);
    writer.append_with(len, |out| out.copy_from_slice(&bytes)).await
}

/// Lengths around every edge: of a block, of the zeroed window, of one zero write.
const LENGTHS: [usize; 14] = [1, 4095, 4096, 1, 8190, 61, 300_000, 4096, 70_000, 5, 1 << 20, 130_000, 3, 262_144];

#[test]
fn after_every_append_the_file_holds_it_followed_by_zeros_only() {
    for mode in [FileMode::Direct, FileMode::Buffered] {
        let dir = tempfile::tempdir().unwrap();
        test_block_on(async {
            let mut writer = create(dir.path(), options(mode, true, None)).await;
            for len in LENGTHS {
                let position = writer.end();
                let written = append(&mut writer, len).await.unwrap();
                assert_eq!((written.position, written.bytes), (position, len));
                assert_eq!(written.buffer, pattern(position, len));
                let file = std::fs::read(writer.path()).unwrap();
                let end = writer.end() as usize;
                assert!(file[..end] == pattern(0, end), "after {len} bytes at {position}");
                assert!(file[end..].iter().all(|b| *b == 0), "after {len} bytes at {position}");
            }
        });
    }
}

#[test]
fn small_appends_run_into_the_zeroed_window_and_grow_it() {
    let dir = tempfile::tempdir().unwrap();
    test_block_on(async {
        let mut writer = create(dir.path(), options(FileMode::Direct, true, None)).await;
        append(&mut writer, 100).await.unwrap();
        assert_eq!(std::fs::metadata(writer.path()).unwrap().len(), 4096, "one record costs one block");
        for _ in 0..300 {
            append(&mut writer, 1500).await.unwrap();
        }
        writer.wait_for_window(u64::MAX).await;
        assert!(writer.window_bytes > ZERO_AHEAD_BYTES_MIN);
        assert!(writer.ahead.ready_end.get() > writer.end());
        let file = std::fs::read(writer.path()).unwrap();
        let end = writer.end() as usize;
        assert!(file[..end] == pattern(0, end));
        assert!(file[end..].iter().all(|b| *b == 0));
    });
}

async fn until_no_window_is_left(writer: &AppendFile) {
    while writer.ahead.is_queued.get() || writer.ahead.working_end.get() != 0 {
        crate::rt::sleep(std::time::Duration::from_millis(1)).await;
    }
}

#[test]
fn windows_wait_for_each_other_and_appends_do_not_wait_for_them() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    test_block_on(async {
        let turn = background_turn().await;
        let mut writers = Vec::new();
        for dir in [&one, &other] {
            let mut writer = create(dir.path(), options(FileMode::Direct, true, None)).await;
            for _ in 0..5 {
                append(&mut writer, 3000).await.unwrap();
            }
            assert_eq!(std::fs::metadata(writer.path()).unwrap().len(), 16_384, "its window waits");
            writers.push(writer);
        }
        drop(turn);
        for writer in &writers {
            until_no_window_is_left(writer).await;
            assert_eq!(writer.ahead.ready_end.get(), 16_384 + ZERO_AHEAD_BYTES_MIN, "it starts behind what came first");
        }
    });
}

#[test]
fn a_window_that_waited_does_not_lengthen_a_file_that_was_cut_meanwhile() {
    let dir = tempfile::tempdir().unwrap();
    test_block_on(async {
        let turn = background_turn().await;
        let mut writer = create(dir.path(), options(FileMode::Direct, true, None)).await;
        for _ in 0..5 {
            append(&mut writer, 3000).await.unwrap();
        }
        assert!(writer.ahead.is_queued.get());
        assert_eq!(writer.cut().await.unwrap(), 15_000);
        drop(turn);
        until_no_window_is_left(&writer).await;
        assert_eq!(std::fs::metadata(writer.path()).unwrap().len(), 15_000);
    });
}

#[test]
fn nothing_is_zeroed_beyond_the_expected_size() {
    let dir = tempfile::tempdir().unwrap();
    test_block_on(async {
        let mut small = options(FileMode::Direct, true, None);
        small.file_bytes = 10_000;
        let mut writer = create(dir.path(), small).await;
        for _ in 0..9 {
            append(&mut writer, 1000).await.unwrap();
        }
        writer.wait_for_window(u64::MAX).await;
        assert_eq!(std::fs::metadata(writer.path()).unwrap().len(), 12_288);
    });
}

async fn until_nothing_is_allocated(writer: &AppendFile) {
    writer.wait_until(|ahead| !ahead.is_allocating.get()).await;
}

#[test]
fn large_appends_have_blocks_ahead_of_them_as_many_as_the_file_has_already() {
    let dir = tempfile::tempdir().unwrap();
    test_block_on(async {
        let mut writer = create(dir.path(), options(FileMode::Direct, true, None)).await;
        append(&mut writer, 1 << 20).await.unwrap();
        until_nothing_is_allocated(&writer).await;
        assert_eq!(std::fs::metadata(writer.path()).unwrap().len(), 1 << 20, "one large append may be all");
        append(&mut writer, 1 << 20).await.unwrap();
        until_nothing_is_allocated(&writer).await;
        assert_eq!(std::fs::metadata(writer.path()).unwrap().len(), 4 << 20);
        for _ in 0..10 {
            append(&mut writer, 1 << 20).await.unwrap();
            until_nothing_is_allocated(&writer).await;
            let ahead_bytes = std::fs::metadata(writer.path()).unwrap().len() - writer.end();
            assert!(ahead_bytes <= ALLOCATE_AHEAD_BYTES_MAX * 3 / 2, "{ahead_bytes} bytes ahead");
        }
        let file = std::fs::read(writer.path()).unwrap();
        let end = writer.end() as usize;
        assert!(file.len() > end && file[..end] == pattern(0, end) && file[end..].iter().all(|b| *b == 0));
        // Small ones that follow are zeroed for as always.
        for _ in 0..40 {
            append(&mut writer, 5000).await.unwrap();
        }
        writer.wait_for_window(u64::MAX).await;
        assert!(writer.ahead.ready_end.get() > writer.end());
        let end = writer.end() as usize;
        assert!(std::fs::read(writer.path()).unwrap()[..end] == pattern(0, end));
    });
}

#[test]
fn an_allocation_does_not_lengthen_a_file_that_is_cut_meanwhile() {
    let dir = tempfile::tempdir().unwrap();
    test_block_on(async {
        let mut writer = create(dir.path(), options(FileMode::Direct, true, None)).await;
        for _ in 0..2 {
            append(&mut writer, 300_000).await.unwrap();
        }
        assert!(writer.ahead.is_allocating.get());
        assert_eq!(writer.cut().await.unwrap(), 600_000);
        until_nothing_is_allocated(&writer).await;
        assert_eq!(std::fs::metadata(writer.path()).unwrap().len(), 600_000);
    });
}

#[test]
fn nothing_is_allocated_beyond_the_expected_size() {
    let dir = tempfile::tempdir().unwrap();
    test_block_on(async {
        let mut small = options(FileMode::Direct, true, None);
        small.file_bytes = 1_000_000;
        let mut writer = create(dir.path(), small).await;
        for _ in 0..4 {
            append(&mut writer, 300_000).await.unwrap();
            until_nothing_is_allocated(&writer).await;
        }
        assert_eq!(std::fs::metadata(writer.path()).unwrap().len(), 1_200_128_u64.next_multiple_of(4096));
    });
}

#[test]
fn a_cut_leaves_exactly_what_was_appended() {
    for mode in [FileMode::Direct, FileMode::Buffered] {
        let dir = tempfile::tempdir().unwrap();
        test_block_on(async {
            let mut writer = create(dir.path(), options(mode, true, None)).await;
            for len in [3333, 3333, 10] {
                append(&mut writer, len).await.unwrap();
            }
            assert_eq!(writer.cut().await.unwrap(), 6676);
            let path = writer.path().to_path_buf();
            writer.close().await.unwrap();
            assert!(std::fs::read(path).unwrap() == pattern(0, 6676));
        });
    }
}

#[test]
fn a_failed_write_poisons_the_writer_for_good() {
    let dir = tempfile::tempdir().unwrap();
    test_block_on(async {
        let plan = Arc::new(FaultPlan::default());
        let mut writer = create(dir.path(), options(FileMode::Direct, true, Some(plan.clone()))).await;
        append(&mut writer, 5000).await.unwrap();
        plan.fail_write_after(0, 4096);
        let first = append(&mut writer, 9000).await.unwrap_err();
        assert!(first.to_string().contains("some.file at byte 4096"), "{first}");
        for _ in 0..3 {
            assert_eq!(append(&mut writer, 1).await.unwrap_err().to_string(), first.to_string());
        }
        assert_eq!(writer.sync().await.unwrap_err().to_string(), first.to_string());
        assert_eq!(writer.end(), 5000);
        let log = std::fs::read(writer.path()).unwrap();
        assert!(log[..5000] == pattern(0, 5000), "what was acknowledged stays");
        assert!(writer.cut().await.is_err());
    });
}

#[test]
fn a_failed_sync_poisons_the_writer_and_is_never_retried_over() {
    let dir = tempfile::tempdir().unwrap();
    test_block_on(async {
        let plan = Arc::new(FaultPlan::default());
        let mut writer = create(dir.path(), options(FileMode::Direct, false, Some(plan.clone()))).await;
        append(&mut writer, 10).await.unwrap();
        writer.sync().await.unwrap();
        plan.fail_sync_after(0);
        assert!(writer.sync().await.is_err());
        assert!(writer.sync().await.is_err());
        assert!(append(&mut writer, 10).await.is_err());
    });
}

#[test]
fn an_abandoned_append_poisons_the_writer() {
    let dir = tempfile::tempdir().unwrap();
    test_block_on(async {
        let mut writer = create(dir.path(), options(FileMode::Direct, true, None)).await;
        let abandoned = futures_lite::future::poll_once(append(&mut writer, 10)).await;
        assert!(abandoned.is_none(), "a disk write is not done at once");
        let error = append(&mut writer, 10).await.unwrap_err();
        assert!(error.to_string().contains("abandoned"), "{error}");
    });
}

#[test]
fn a_failed_window_only_stops_zeroing() {
    let dir = tempfile::tempdir().unwrap();
    test_block_on(async {
        let plan = Arc::new(FaultPlan::default());
        let mut writer = create(dir.path(), options(FileMode::Direct, true, Some(plan.clone()))).await;
        append(&mut writer, 10).await.unwrap();
        plan.fail_write_after(1, 0);
        append(&mut writer, 10).await.unwrap();
        writer.wait_for_window(u64::MAX).await;
        assert!(writer.ahead.is_over.get());
        for len in [10, 200_000, 10] {
            append(&mut writer, len).await.unwrap();
        }
        let end = writer.end() as usize;
        assert!(std::fs::read(writer.path()).unwrap()[..end] == pattern(0, end));
    });
}

/// A small ext4 on a loop device, unmounted at the end; `None`, with the reason printed, where that is not allowed.
struct SmallDisk {
    _image: tempfile::TempDir,
    mount: PathBuf,
}

impl SmallDisk {
    fn new() -> Option<Self> {
        let image = tempfile::tempdir().unwrap();
        let (file, mount) = (image.path().join("image"), image.path().join("mount"));
        std::fs::create_dir(&mount).unwrap();
        let backing = std::fs::File::create(&file).unwrap();
        backing.set_len(8 << 20).unwrap();
        let made = run(Command::new("mkfs.ext4").args(["-q", "-m", "0"]).arg(&file));
        let mounted = made.and_then(|()| run(Command::new("mount").args(["-o", "loop"]).arg(&file).arg(&mount)));
        match mounted {
            Ok(()) => Some(Self { _image: image, mount }),
            Err(reason) => {
                println!("skipped: a small disk cannot be mounted here: {reason}");
                None
            }
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = run(Command::new("umount").arg("-l").arg(&self.mount));
    }
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|e| format!("{command:?}: {e}"))?;
    let error = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(format!("{command:?}: {error}")) }
}

#[test]
fn a_full_disk_is_an_error_and_what_was_acknowledged_stays() {
    for mode in [FileMode::Direct, FileMode::Buffered] {
        let Some(disk) = SmallDisk::new() else { return };
        test_block_on(async {
            let mut writer = create(&disk.mount, options(mode, true, None)).await;
            let error = loop {
                match append(&mut writer, 50_000).await {
                    Ok(_) => assert!(writer.end() < 8 << 20, "the disk never filled up"),
                    Err(error) => break error,
                }
            };
            assert_eq!(error.kind, std::io::ErrorKind::StorageFull, "{error}");
            assert!(writer.end() > 1 << 20);
            assert!(append(&mut writer, 1).await.is_err());
            let end = writer.end() as usize;
            assert!(std::fs::read(writer.path()).unwrap()[..end] == pattern(0, end));
        });
    }
}
