//! Binding the ports of all cores, before any shard runs.
//!
//! Per core: core k listens on port + k. Shared: every core has a socket of its own on the one port and the kernel
//! spreads connections over them. A port that cannot be had stops the start with the address and the cause; one that is
//! in use is tried again for `BIND_PATIENCE_MS`. Blocks.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

use oncilla_shards::limits;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with, sockopt};
use thiserror::Error;

use crate::config::{Listener, ListenerMode};

/// A port that could not be had.
#[derive(Debug, Error)]
pub enum BindError {
    /// The system refused it.
    #[error("cannot listen on {address} (listener {name}): {reason}{}", advice(reason))]
    Refused {
        /// Name of the listener.
        name: String,
        /// What was to be bound.
        address: SocketAddr,
        /// The system's. No `source`, which would be told a second time where errors are told with their causes.
        reason: io::Error,
    },
    /// Port + core is no port.
    #[error("listener {name} has no port for core {core}: {port} + {core} is above 65535")]
    PortRange {
        /// Name of the listener.
        name: String,
        /// Port of core 0.
        port: u16,
        /// The core.
        core: u16,
    },
}

/// What to do about it, where that is clear.
fn advice(reason: &io::Error) -> &'static str {
    match reason.kind() {
        io::ErrorKind::AddrInUse => "; see who has it with: ss -ltnp, or choose another with: --listen HOST:PORT",
        io::ErrorKind::AddrNotAvailable => "; see what this machine has with: ip address",
        io::ErrorKind::PermissionDenied => "; ports below 1024 are for root, choose another with: --listen HOST:PORT",
        _ => "",
    }
}

/// Binds every listener for every core. The result is indexed by core, then by listener.
pub fn bind_all(listeners: &[Listener], mode: ListenerMode, cores: u16) -> Result<Vec<Vec<TcpListener>>, BindError> {
    let mut bound: Vec<Vec<TcpListener>> = (0..cores).map(|_| Vec::with_capacity(listeners.len())).collect();
    for listener in listeners {
        let refused = |address, reason| BindError::Refused { name: listener.name.clone(), address, reason };
        match mode {
            ListenerMode::PerCore => {
                for core in 0..cores {
                    let address = address_of_core(listener, core)?;
                    let socket = open_patiently(address).map_err(|error| refused(address, error))?;
                    bound[usize::from(core)].push(socket);
                }
            }
            ListenerMode::Shared => {
                let mut address = listener.bind;
                // Sockets that share a port also share it with another broker of the same user; one that does not
                // share finds out whether anybody is there.
                let probe = open_patiently(address).map_err(|error| refused(address, error))?;
                drop(probe);
                for core in &mut bound {
                    let socket = open(address, true).map_err(|error| refused(address, error))?;
                    address = socket.local_addr().map_err(|error| refused(address, error))?;
                    core.push(socket);
                }
            }
        }
    }
    Ok(bound)
}

fn address_of_core(listener: &Listener, core: u16) -> Result<SocketAddr, BindError> {
    let mut address = listener.bind;
    if address.port() != 0 {
        let port = address.port().checked_add(core).ok_or_else(|| BindError::PortRange {
            name: listener.name.clone(),
            port: listener.bind.port(),
            core,
        })?;
        address.set_port(port);
    }
    Ok(address)
}

/// Opens a port that nobody shares, waiting a little for a broker that was killed a moment ago.
fn open_patiently(address: SocketAddr) -> io::Result<TcpListener> {
    let started = Instant::now();
    loop {
        match open(address, false) {
            Err(error)
                if error.kind() == io::ErrorKind::AddrInUse
                    && started.elapsed() < Duration::from_millis(limits::BIND_PATIENCE_MS) =>
            {
                thread::sleep(Duration::from_millis(limits::BIND_RETRY_MS));
            }
            opened => return opened,
        }
    }
}

fn open(address: SocketAddr, share_port: bool) -> io::Result<TcpListener> {
    let family = if address.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    let socket: OwnedFd = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?;
    // A restart must not wait for the old broker's connections to time out.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    sockopt::set_socket_reuseport(&socket, share_port)?;
    bind(&socket, &address)?;
    listen(&socket, limits::LISTEN_BACKLOG)?;
    Ok(TcpListener::from(socket))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listener(bind: &str) -> Listener {
        Listener {
            name: "PLAINTEXT".to_owned(),
            bind: bind.parse().expect("an address"),
            advertised_host: None,
            advertised_port: None,
        }
    }

    #[test]
    fn shared_cores_listen_on_one_port_and_per_core_ones_on_their_own() {
        let ports = |mode| {
            let bound = bind_all(&[listener("127.0.0.1:0")], mode, 2).expect("free ports");
            let port = |core: usize| bound[core][0].local_addr().expect("bound").port();
            (port(0), port(1))
        };
        let (first, second) = ports(ListenerMode::Shared);
        assert_eq!(first, second);
        let (first, second) = ports(ListenerMode::PerCore);
        assert_ne!(first, second);
    }

    #[test]
    fn a_taken_port_is_named_with_its_cause_in_both_modes() {
        let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = taken.local_addr().expect("bound").to_string();
        for mode in [ListenerMode::Shared, ListenerMode::PerCore] {
            let error = bind_all(&[listener(&address)], mode, 1).expect_err("taken");
            let error = format!("{:#}", anyhow::Error::from(error));
            assert!(error.contains(&address) && error.contains("choose another with: --listen"), "{error}");
            assert_eq!(error.matches("in use").count(), 1, "{error}");
        }
    }

    #[test]
    fn a_port_that_is_given_back_a_moment_later_is_waited_for() {
        for mode in [ListenerMode::Shared, ListenerMode::PerCore] {
            let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
            let address = taken.local_addr().expect("bound");
            let holder = thread::spawn(move || {
                thread::sleep(Duration::from_millis(100));
                drop(taken);
            });
            let bound = bind_all(&[listener(&address.to_string())], mode, 1).expect("free by then");
            assert_eq!(bound[0][0].local_addr().expect("bound"), address);
            holder.join().expect("it only sleeps");
        }
    }

    #[test]
    fn ports_end_at_65535() {
        let error = address_of_core(&listener("127.0.0.1:65535"), 1).expect_err("no such port").to_string();
        assert!(error.contains("65535 + 1"), "{error}");
    }
}
