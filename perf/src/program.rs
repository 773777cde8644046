//! A program that is run to its end, or to the end of its time: a foreign client, or a turn of a comparison.
//!
//! It stays in the group of processes of whoever runs this, so that an interrupt from a terminal reaches it too. Its
//! words go to files: a pipe would be held open by what it leaves behind.

use std::fs::File;
use std::io::{Read, Seek};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// What is shown of the words of a program that failed.
const LINES_MAX: usize = 20;

/// The end of a program's time.
pub struct Limit {
    /// How long it may take.
    pub time: Duration,
    /// What that follows from and who can be given longer, for the message; starts behind its last word.
    pub hint: String,
}

/// Runs it; its words are shown if it fails.
pub fn finish(command: Command, needs: &str, limit: &Limit) -> Result<Output> {
    let program = name(&command);
    let done = ended(command, needs, limit)?;
    if !done.status.success() {
        bail!("{program} failed ({}):\n{}", done.status, last_words(&done.stdout, &done.stderr));
    }
    Ok(done)
}

/// Runs it, whatever its exit code will be. `needs` says what has to be on the machine.
pub fn ended(mut command: Command, needs: &str, limit: &Limit) -> Result<Output> {
    let program = name(&command);
    let [mut stdout, mut stderr] = [words()?, words()?];
    command.stdin(Stdio::null()).stdout(stdout.try_clone()?).stderr(stderr.try_clone()?);
    let until = Instant::now() + limit.time;
    let mut child = Running(command.spawn().with_context(|| format!("run {program} ({needs})"))?);
    let status = loop {
        if let Some(status) = child.0.try_wait()? {
            break status;
        }
        if Instant::now() >= until {
            child.end();
            bail!(
                "{program} did not end within {} s and was killed{}. Its last words:\n{}",
                limit.time.as_secs(),
                limit.hint,
                last_words(&read(&mut stdout)?, &read(&mut stderr)?)
            );
        }
        thread::sleep(LOOK_AGAIN);
    };
    Ok(Output { status, stdout: read(&mut stdout)?, stderr: read(&mut stderr)? })
}

/// Killed when it is dropped.
struct Running(Child);

impl Running {
    fn end(&mut self) {
        // An error says that it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

fn name(command: &Command) -> String {
    command.get_program().to_string_lossy().into_owned()
}

fn words() -> Result<File> {
    tempfile::tempfile().context("a file for the words of a program")
}

fn read(words: &mut File) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    words.rewind().and_then(|()| words.read_to_end(&mut bytes)).context("the words of a program")?;
    Ok(bytes)
}

fn last_words(stdout: &[u8], stderr: &[u8]) -> String {
    let said = [String::from_utf8_lossy(stdout), String::from_utf8_lossy(stderr)].join("\n");
    let lines: Vec<_> = said.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(LINES_MAX)..].join("\n")
}
