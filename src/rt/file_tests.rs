use super::*;

const MODES: [FileMode; 2] = [FileMode::Direct, FileMode::Buffered];

fn options(mode: FileMode, faults: Option<Arc<FaultPlan>>) -> FileOptions {
    FileOptions { mode, durable: true, faults }
}

fn patterned(blocks: usize) -> AlignedBuffer {
    let mut buffer = AlignedBuffer::zeroed(blocks * BLOCK_BYTES);
    for (i, byte) in buffer.as_mut_slice().iter_mut().enumerate() {
        *byte = (i % 251) as u8;
    }
    buffer
}

#[test]
fn what_was_written_is_read_back_and_the_end_cuts_a_read() {
    for mode in MODES {
        let dir = tempfile::tempdir().unwrap();
        test_block_on(async {
            let path = dir.path().join("f");
            let file = DurableFile::open(&path, Access::Create, &options(mode, None)).await.unwrap();
            let shared = file.write_aligned(patterned(3), 4096).await.unwrap().into_bytes();
            assert_eq!(file.read(4096 + 5, 7000).await.unwrap(), shared.slice(5..7005));
            file.truncate(4096 + 100).await.unwrap();
            assert_eq!(file.read(4096, 7000).await.unwrap(), shared.slice(..100));
            assert_eq!(file.read(9000, 10).await.unwrap().len(), 0);
            file.close().await.unwrap();
        });
    }
}

#[test]
fn a_short_write_is_completed() {
    for mode in MODES {
        let dir = tempfile::tempdir().unwrap();
        test_block_on(async {
            let plan = Arc::new(FaultPlan::default());
            let path = dir.path().join("f");
            let file = DurableFile::open(&path, Access::Create, &options(mode, Some(plan.clone()))).await.unwrap();
            plan.shorten_write_after(0, 4096);
            let buffer = file.write_aligned(patterned(4), 0).await.unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), buffer.as_slice());
        });
    }
}

#[test]
fn a_failed_write_names_operation_path_and_position() {
    let dir = tempfile::tempdir().unwrap();
    test_block_on(async {
        let plan = Arc::new(FaultPlan::default());
        let path = dir.path().join("f");
        let file =
            DurableFile::open(&path, Access::Create, &options(FileMode::Direct, Some(plan.clone()))).await.unwrap();
        plan.fail_write_after(1, 0);
        file.write_aligned(patterned(1), 0).await.unwrap();
        let error = file.write_aligned(patterned(1), 8192).await.err().unwrap();
        assert_eq!(error.to_string(), format!("write {} at byte 8192: injected fault", path.display()));
    });
}

#[test]
fn an_existing_name_is_not_created_again() {
    for mode in MODES {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("f"), b"kept").unwrap();
        test_block_on(async {
            let path = dir.path().join("f");
            let error = DurableFile::open(&path, Access::Create, &options(mode, None)).await.err().unwrap();
            assert_eq!(error.kind, io::ErrorKind::AlreadyExists);
            assert_eq!(std::fs::read(&path).unwrap(), b"kept");
        });
    }
}

#[test]
fn names_below_a_relative_path_are_made_durable() {
    // Tests start in the directory of the package.
    let here = std::env::current_dir().unwrap();
    let dir = tempfile::tempdir_in(&here).unwrap();
    let relative = dir.path().strip_prefix(&here).unwrap();
    test_block_on(async {
        let path = relative.join("f");
        let file = DurableFile::open(&path, Access::Create, &options(FileMode::Buffered, None)).await.unwrap();
        file.close().await.unwrap();
        sync_directory(relative).await.unwrap();
    });
}

#[test]
fn shared_bytes_may_end_on_another_thread() {
    let bytes = patterned(1).into_bytes();
    let other = bytes.clone();
    drop(bytes);
    std::thread::spawn(move || assert_eq!(other[252], 1)).join().unwrap();
}

/// A file system in memory, unmounted at the end; `None`, with the reason printed, where mounting is refused.
fn mounted(kind: &str, at: &Path) -> Option<()> {
    let output = std::process::Command::new("mount").args(["-t", kind, "-o", "size=4m", kind]).arg(at).output();
    match output {
        Ok(output) if output.status.success() => Some(()),
        other => {
            println!("skipped: {kind} cannot be mounted here: {other:?}");
            None
        }
    }
}

#[test]
fn file_systems_without_o_direct_are_written_through_the_page_cache() {
    // The kernel accepts the flag on the first and ignores it; the second refuses it.
    for (kind, mode) in [("tmpfs", FileMode::Direct), ("ramfs", FileMode::Buffered)] {
        let dir = tempfile::tempdir().unwrap();
        if mounted(kind, dir.path()).is_none() {
            return;
        }
        test_block_on(async {
            let path = dir.path().join("f");
            let file = DurableFile::open(&path, Access::Create, &options(FileMode::Direct, None)).await.unwrap();
            assert_eq!(file.mode(), mode, "{kind}");
            let buffer = file.write_aligned(patterned(2), 4096).await.unwrap();
            assert_eq!(file.read(4096, 8192).await.unwrap(), buffer.as_slice());
            file.sync().await.unwrap();
            file.close().await.unwrap();
        });
        let unmounted = std::process::Command::new("umount").arg("-l").arg(dir.path()).status();
        assert!(unmounted.is_ok_and(|status| status.success()));
    }
}
