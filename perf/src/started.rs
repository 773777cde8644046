//! A broker that is started for one turn: a shell command in a process group of its own.
//!
//! It counts as started when it answers Metadata. What it says goes to a file and is shown if it does not come up.
//! Dropping it kills its whole group, so that no fault leaves a broker behind.

use std::fs::{self, File};
use std::io::{Read, Seek};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use oncilla::client::Client;
use rustix::process::{Pid, Signal, kill_process_group};

/// Longest wait for the first answer.
const START_WAIT: Duration = Duration::from_secs(120);
/// Longest wait for the end after SIGTERM.
const END_WAIT: Duration = Duration::from_secs(60);
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// What is shown of the broker's own words.
const SAID_BYTES_MAX: usize = 4000;

/// A running broker.
pub struct Broker {
    child: Child,
    group: Pid,
}

impl Broker {
    /// Starts it and waits until it serves at `address`. Refused if somebody else listens there: that one would be
    /// measured in its place.
    pub fn start(command: &str, address: &str) -> Result<Self> {
        ensure!(TcpStream::connect(address).is_err(), "somebody listens on {address} before the broker is started");
        let mut words = tempfile::tempfile().context("a file for the broker's words")?;
        let mut shell = Command::new("sh");
        shell.args(["-c", command]).stdin(Stdio::null()).process_group(0);
        let (out, err): (File, File) = (words.try_clone()?, words.try_clone()?);
        let child = shell.stdout(out).stderr(err).spawn().with_context(|| format!("start {command}"))?;
        let group = Pid::from_child(&child);
        let mut broker = Self { child, group };
        let until = Instant::now() + START_WAIT;
        loop {
            if Client::connect(address).is_ok() {
                return Ok(broker);
            }
            let ended = broker.child.try_wait()?;
            if let Some(status) = ended {
                bail!("`{command}` ended with {status}:\n{}", said(&mut words));
            }
            if Instant::now() > until {
                let seconds = START_WAIT.as_secs();
                bail!("`{command}` does not answer at {address} after {seconds} s:\n{}", said(&mut words));
            }
            thread::sleep(LOOK_AGAIN);
        }
    }

    /// Ends it with SIGTERM; waits for all of its processes.
    pub fn stop(mut self) -> Result<()> {
        kill_process_group(self.group, Signal::TERM).context("end the broker")?;
        let until = Instant::now() + END_WAIT;
        while Instant::now() < until {
            // The shell may go before what it has started.
            let shell_ended = self.child.try_wait()?.is_some();
            if shell_ended && !lives(self.group) {
                return Ok(());
            }
            thread::sleep(LOOK_AGAIN);
        }
        bail!("the broker did not end within {} s of SIGTERM and was killed", END_WAIT.as_secs());
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        // An error says that nobody of the group is there any more.
        let _ = kill_process_group(self.group, Signal::KILL);
        let _ = self.child.wait();
    }
}

/// Whether a process of the group runs. One that only waits for its parent to look does not: nobody may ever look.
fn lives(group: Pid) -> bool {
    let Ok(all) = fs::read_dir("/proc") else { return false };
    let stats = all.flatten().filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok());
    stats.filter_map(|stat| state_and_group(&stat)).any(|(state, of)| of == group.as_raw_pid() && state != 'Z')
}

/// `12 (a name) S 1 12 ...`: the name may have parentheses and spaces of its own.
fn state_and_group(stat: &str) -> Option<(char, i32)> {
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    let state = fields.next()?.chars().next()?;
    Some((state, fields.nth(1)?.parse().ok()?))
}

fn said(words: &mut File) -> String {
    let mut text = Vec::new();
    if words.rewind().and_then(|()| words.read_to_end(&mut text)).is_err() {
        return "(its words cannot be read)".into();
    }
    let from = text.len().saturating_sub(SAID_BYTES_MAX);
    String::from_utf8_lossy(&text[from..]).trim().to_string()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_broker_that_ends_at_once_is_told_with_its_words() {
        // Taken and given back: free, as far as anybody can know.
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let error = Broker::start("echo no disk here >&2; exit 3", &address).err().expect("it is refused");
        let error = format!("{error:#}");
        assert!(error.contains("exit status: 3") && error.contains("no disk here"), "{error}");
    }

    #[test]
    fn an_address_that_is_taken_is_refused_before_anything_starts() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap().to_string();
        let error = Broker::start("exit 0", &address).err().expect("it is refused");
        assert!(error.to_string().contains(&address), "{error}");
    }

    #[test]
    fn all_processes_of_a_broker_end_with_it() {
        let spawn = |command: &str| {
            let child = Command::new("sh").args(["-c", command]).process_group(0).spawn().unwrap();
            let group = Pid::from_child(&child);
            Broker { child, group }
        };
        spawn("sleep 600").stop().unwrap();
        let dropped = spawn("trap '' TERM; sleep 600");
        let group = dropped.group;
        drop(dropped);
        let until = Instant::now() + Duration::from_secs(20);
        while lives(group) && Instant::now() < until {
            thread::sleep(LOOK_AGAIN);
        }
        assert!(!lives(group), "the group is still there");
    }

    #[test]
    fn a_process_is_read_behind_its_name() {
        assert_eq!(state_and_group("12 (a) (b) S 1 77 9 0"), Some(('S', 77)));
        assert_eq!(state_and_group("12 sh"), None);
    }
}
