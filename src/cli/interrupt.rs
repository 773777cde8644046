//! Ctrl-C and SIGTERM for commands that have something to finish: the first is told to the command, the second ends the
//! process at once.

use std::process::exit;

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// What a shell reports of a process that Ctrl-C has ended.
const EXIT_CODE: i32 = 130;

/// Whether the command is to end.
#[derive(Clone, Debug)]
pub struct Interrupt(watch::Receiver<bool>);

impl Interrupt {
    /// Listens from now on, on a thread of its own, so that a command that blocks can still be ended.
    pub fn listen() -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        let inside = runtime.enter();
        let mut interrupt = signal(SignalKind::interrupt()).context("SIGINT")?;
        let mut terminate = signal(SignalKind::terminate()).context("SIGTERM")?;
        drop(inside);
        let (sender, receiver) = watch::channel(false);
        let wait = async move {
            for _ in 0..2 {
                let again = *sender.borrow();
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
                if again {
                    exit(EXIT_CODE);
                }
                sender.send_replace(true);
            }
        };
        std::thread::Builder::new().name("oncilla-signals".into()).spawn(move || runtime.block_on(wait))?;
        Ok(Self(receiver))
    }

    /// Whether it has come.
    pub fn has_come(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits for it.
    pub async fn come(&mut self) {
        if self.0.wait_for(|come| *come).await.is_err() {
            // The thread ends with the process only.
            std::future::pending().await
        }
    }
}
