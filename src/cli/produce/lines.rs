//! Standard input as numbered lines, read on a thread of its own: sending makes a batch of what came in meanwhile, and
//! a lone line goes at once.

use std::io::{self, BufRead, Read};

use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::LINE_BYTES_MAX;

/// Lines read ahead; what waits beyond them stays in the pipe.
const LINES_AHEAD: usize = 256;

/// A line without its end.
pub(super) struct Line {
    /// From 1 on.
    pub number: u64,
    /// The line, or why it cannot be read; nothing follows then.
    pub text: io::Result<Vec<u8>>,
}

/// Begins to read.
pub(super) fn read() -> io::Result<Receiver<Line>> {
    let (sender, lines) = channel(LINES_AHEAD);
    std::thread::Builder::new().name("oncilla-stdin".into()).spawn(move || all(io::stdin().lock(), &sender))?;
    Ok(lines)
}

fn all(mut input: impl BufRead, lines: &Sender<Line>) {
    for number in 1.. {
        let Some(text) = next(&mut input, LINE_BYTES_MAX).transpose() else { return };
        let last = text.is_err();
        if lines.blocking_send(Line { number, text }).is_err() || last {
            return;
        }
    }
}

/// The next line; `None` at the end. The last one needs no line feed.
fn next(input: &mut impl BufRead, bytes_max: usize) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    let read = input.take(bytes_max as u64 + 1).read_until(b'\n', &mut line)?;
    if line.last() == Some(&b'\n') {
        line.pop();
    } else if read > bytes_max {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a line of more than {bytes_max} bytes")));
    }
    Ok((read > 0).then_some(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_numbered_and_the_last_needs_no_line_feed() {
        let (sender, mut lines) = channel(8);
        all(&b"one\n\nthree"[..], &sender);
        drop(sender);
        let got: Vec<_> = std::iter::from_fn(|| lines.blocking_recv())
            .map(|line| (line.number, String::from_utf8(line.text.expect("read")).expect("text")))
            .collect();
        assert_eq!(got, [(1, "one".into()), (2, String::new()), (3, "three".into())]);
    }

    #[test]
    fn a_line_without_end_is_refused_at_the_bound() {
        let mut input = &b"123\n1234\n12345"[..];
        assert_eq!(next(&mut input, 4).expect("short"), Some(b"123".to_vec()));
        assert_eq!(next(&mut input, 4).expect("just fits"), Some(b"1234".to_vec()));
        assert!(next(&mut input, 4).expect_err("too long").to_string().contains("more than 4 bytes"));
        assert_eq!(next(&mut &b""[..], 4).expect("the end"), None);
    }
}
