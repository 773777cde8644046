//! The threads that serve the client's sockets: few, because a client that takes every core measures itself.

use std::thread::JoinHandle;

use anyhow::Context;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

struct Running {
    handle: Handle,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// One tokio runtime a thread. Producers are spread over them and stay where they are.
pub struct ClientThreads {
    running: Vec<Running>,
}

impl ClientThreads {
    pub fn start(count: usize) -> anyhow::Result<Self> {
        let mut running = Vec::new();
        for number in 0..count.max(1) {
            let runtime = Builder::new_current_thread().enable_all().build().context("a runtime of the client")?;
            let handle = runtime.handle().clone();
            let (end, ended) = oneshot::channel();
            let thread = std::thread::Builder::new().name(format!("client-{number}"));
            let thread = thread.spawn(move || {
                super::clock::wake_in_time();
                // Also ends when the other side is dropped.
                let _ = runtime.block_on(ended);
            })?;
            running.push(Running { handle, end: Some(end), thread: Some(thread) });
        }
        Ok(Self { running })
    }

    /// The runtime of client number `client`.
    pub fn handle(&self, client: usize) -> &Handle {
        &self.running[client % self.running.len()].handle
    }
}

impl Drop for ClientThreads {
    fn drop(&mut self) {
        for one in &mut self.running {
            one.end.take();
            if let Some(thread) = one.thread.take() {
                let _ = thread.join();
            }
        }
    }
}
