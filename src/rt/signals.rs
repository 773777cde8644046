//! SIGTERM and SIGINT on the control thread: the first one drains, the second one exits at once.
//!
//! Needs a tokio runtime with I/O on the thread that waits.

use std::io::Write;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Exit code of an exit that did not wait for the drain.
const EXIT_FORCED: i32 = 130;

/// The signals that end the broker.
#[derive(Debug)]
pub struct Signals {
    term: Signal,
    int: Signal,
}

impl Signals {
    /// Takes the signals over from their default action, which would end the process.
    pub fn install() -> std::io::Result<Self> {
        Ok(Self { term: signal(SignalKind::terminate())?, int: signal(SignalKind::interrupt())? })
    }

    /// Waits for the next one and names it.
    pub async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.term.recv() => "SIGTERM",
            _ = self.int.recv() => "SIGINT",
        }
    }
}

/// Ends the process without draining, after what was logged has left.
pub fn exit_now(signal: &str) -> ! {
    tracing::warn!(signal, "second signal: exiting without waiting for requests in work");
    // Nothing is left to be done about a stream that cannot be flushed.
    let _ = std::io::stdout().flush();
    let _ = std::io::stderr().flush();
    std::process::exit(EXIT_FORCED);
}
