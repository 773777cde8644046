use oncilla_shards::ids::TimestampMs;
use oncilla_shards::partition::IndexedBatch;

use super::*;
use crate::disk::indexes::{read_aborted_blocking, read_index_blocking};
use crate::rt::file::test_block_on;

const SEGMENT: SegmentId = SegmentId::new(Offset(100), LeaderEpoch(3));

fn options(mode: FileMode, durable: bool, faults: Option<Arc<FaultPlan>>) -> SegmentOptions {
    SegmentOptions { mode, durable, segment_bytes: 64 << 20, faults }
}

async fn create(dir: &Path, options: SegmentOptions) -> SegmentWriter {
    SegmentWriter::create(dir, SEGMENT.base, SEGMENT.epoch, options).await.unwrap()
}

/// Bytes that say where they belong, and are never zero.
fn pattern(position: u64, len: usize) -> Vec<u8> {
    (position..position + len as u64).map(|i| (i % 255) as u8 + 1).collect()
}

async fn append(writer: &mut SegmentWriter, len: usize) -> Result<Written, DiskError> {
    let bytes = pattern(writer.end(), len);
    writer.append_with(len, |out| out.copy_from_slice(&bytes)).await
}

#[test]
fn sealing_cuts_to_the_exact_size_and_writes_all_indexes() {
    for (mode, durable) in [(FileMode::Direct, true), (FileMode::Direct, false), (FileMode::Buffered, false)] {
        let dir = tempfile::tempdir().unwrap();
        test_block_on(async {
            let mut writer = create(dir.path(), options(mode, durable, None)).await;
            let mut segment = Segment::new(SEGMENT, TimestampMs(0));
            for i in 0..50 {
                let written = append(&mut writer, 3333).await.unwrap();
                segment.index.observe(IndexedBatch {
                    position: written.position,
                    bytes: written.bytes,
                    last_offset: SEGMENT.base.plus(i),
                    max_timestamp: TimestampMs(i),
                });
            }
            writer.sync().await.unwrap();
            assert_eq!(writer.seal(&segment).await.unwrap(), 50 * 3333);
            let log = std::fs::read(SEGMENT.path(dir.path(), SegmentFile::Log)).unwrap();
            assert!(log == pattern(0, 50 * 3333));
            let read = read_index_blocking(dir.path(), SEGMENT, 50 * 3333, &|_, _| Some(3333)).unwrap();
            assert_eq!(read.next_offset(), segment.next_offset());
            assert_eq!(read_aborted_blocking(dir.path(), SEGMENT, &read), Ok(segment.aborted));
        });
    }
}

#[test]
fn a_segment_whose_write_failed_is_not_sealed_and_the_error_names_its_file() {
    let dir = tempfile::tempdir().unwrap();
    test_block_on(async {
        let plan = Arc::new(FaultPlan::default());
        let mut writer = create(dir.path(), options(FileMode::Direct, true, Some(plan.clone()))).await;
        append(&mut writer, 5000).await.unwrap();
        plan.fail_write_after(0, 4096);
        let first = append(&mut writer, 9000).await.unwrap_err();
        assert!(first.to_string().contains("00000000000000000100.3.log at byte 4096"), "{first}");
        assert!(writer.seal(&Segment::new(SEGMENT, TimestampMs(0))).await.is_err());
    });
}
