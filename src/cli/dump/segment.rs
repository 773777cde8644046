//! Walks the batches of one segment without holding more of it than the batch at hand and a window.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use oncilla_shards::batch::BatchHeader;
use oncilla_shards::batch::scan::{Scan, Stop};
use oncilla_shards::ids::Offset;

/// Bytes read at once.
const WINDOW_BYTES: usize = 4 << 20;

/// Where the walk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Byte behind the last right batch.
    pub position: u64,
    /// Why there.
    pub stop: Stop,
    /// Header of what begins there, when its bytes were changed but it still reads like one.
    pub suspect: Option<BatchHeader>,
}

impl End {
    /// Whether the segment holds only right batches and room that was never written.
    pub fn is_clean(&self) -> bool {
        matches!(self.stop, Stop::End | Stop::Zeros)
    }
}

/// Calls `batch` with position, header and bytes of every right batch.
pub fn walk(path: &Path, mut batch: impl FnMut(u64, &BatchHeader, &[u8]) -> io::Result<()>) -> io::Result<End> {
    let mut file = File::open(path)?;
    let mut window = Vec::new();
    let mut position = 0;
    let mut next_offset = Offset(0);
    let mut ended = false;
    loop {
        let mut scan = Scan::after(&window, next_offset);
        while let Some((at, header)) = scan.next() {
            batch(position + at as u64, &header, &window[at..at + header.total_bytes()])?;
        }
        let stop = scan.stopped().unwrap_or(Stop::End);
        let done = scan.end();
        next_offset = scan.next_offset();
        position += done as u64;
        window.drain(..done);
        // Zeros at the end of a window may be the beginning of what is no room at all, but never of a batch.
        if ended || !matches!(stop, Stop::End | Stop::Cut) {
            let suspect = (stop == Stop::Crc).then(|| BatchHeader::parse(&window).ok()).flatten();
            return Ok(End { position, stop, suspect });
        }
        // A batch longer than the window makes the window longer.
        let wanted = WINDOW_BYTES.max(window.len());
        let read = (&mut file).take(wanted as u64).read_to_end(&mut window)?;
        ended = read < wanted;
    }
}

#[cfg(test)]
mod tests {
    use oncilla_shards::batch::BatchBuilder;

    use super::*;

    fn batches(count: i64, value: &[u8]) -> Vec<u8> {
        (0..count)
            .flat_map(|base| BatchBuilder::new().base_offset(Offset(base)).record(None, Some(value)).build())
            .collect()
    }

    fn walked(bytes: &[u8]) -> (Vec<(u64, i64)>, End) {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("s.log");
        std::fs::write(&path, bytes).expect("written");
        let mut seen = Vec::new();
        let end = walk(&path, |position, header, batch| {
            assert_eq!(batch.len(), header.total_bytes());
            seen.push((position, header.base_offset.0));
            Ok(())
        });
        (seen, end.expect("read"))
    }

    #[test]
    fn batches_across_windows_are_found_at_their_positions() {
        // Three of 3 MiB: no window ends between two batches.
        let bytes = batches(3, &vec![7; 3 << 20]);
        let (seen, end) = walked(&bytes);
        let each = (bytes.len() / 3) as u64;
        assert_eq!(seen, [(0, 0), (each, 1), (2 * each, 2)]);
        assert_eq!(end, End { position: 3 * each, stop: Stop::End, suspect: None });
        let (seen, end) = walked(&batches(1, &vec![7; 9 << 20]));
        assert_eq!((seen.len(), end.stop), (1, Stop::End), "longer than a window");
    }

    #[test]
    fn room_is_clean_and_torn_or_flipped_bytes_are_not() {
        let mut bytes = batches(2, b"value");
        let half = bytes.len() / 2;
        let (seen, end) = walked(&bytes[..half + 40]);
        assert_eq!((seen.len(), end.stop, end.is_clean()), (1, Stop::Cut, false));
        bytes[half + 62] ^= 1;
        let (seen, end) = walked(&bytes);
        assert_eq!((seen.len(), end.stop, end.is_clean()), (1, Stop::Crc, false));
        assert_eq!(end.suspect.map(|header| header.base_offset), Some(Offset(1)));
        let mut roomy = batches(2, b"value");
        roomy.resize(roomy.len() + 8192, 0);
        let (seen, end) = walked(&roomy);
        assert_eq!((seen.len(), end.stop, end.is_clean()), (2, Stop::Zeros, true));
        assert!(walked(&[]).1.is_clean());
    }
}
