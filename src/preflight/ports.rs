//! Checks that the ports can be had.

use std::io;
use std::net::{SocketAddr, TcpListener};

use super::Finding;
use crate::config::{Config, ListenerMode};

/// One finding for each port in the way, or one that all are free.
pub fn findings(config: &Config) -> Vec<Finding> {
    let problems: Vec<_> = addresses(config).into_iter().filter_map(taken).collect();
    if problems.is_empty() { vec![Finding::ok("ports", "Free.")] } else { problems }
}

/// Every address that a start binds.
fn addresses(config: &Config) -> Vec<SocketAddr> {
    let ports_each = if config.listener_mode == ListenerMode::PerCore { config.shards } else { 1 };
    let kafka = config.listeners.iter().flat_map(|listener| {
        let first = listener.bind;
        // Port 0 picks a free one each time.
        let count = if first.port() == 0 { 0 } else { ports_each };
        (0..count).map(move |core| SocketAddr::new(first.ip(), first.port() + core))
    });
    kafka.chain(config.http_listen).collect()
}

fn taken(address: SocketAddr) -> Option<Finding> {
    let error = TcpListener::bind(address).err()?;
    let port = address.port();
    Some(Finding::stop(
        "ports",
        match error.kind() {
            io::ErrorKind::AddrInUse => format!("{address} is in use; see by whom with: ss -ltnp 'sport = :{port}'"),
            io::ErrorKind::AddrNotAvailable => {
                format!("{} is no address of this machine; see those it has with: ip -br address", address.ip())
            }
            io::ErrorKind::PermissionDenied => {
                format!(
                    "Port {port} needs a privilege; allow it with: sudo sysctl -w net.ipv4.ip_unprivileged_port_start={port}"
                )
            }
            _ => format!("{address} cannot be bound: {error}; see what is there with: ss -ltn"),
        },
    ))
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    #[test]
    fn a_port_in_use_or_an_address_elsewhere_stops_a_start() {
        let held = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = held.local_addr().expect("bound");
        let finding = taken(address).expect("in use");
        assert_eq!(finding.verdict, Verdict::Stop);
        assert!(finding.sentence.contains(&format!("sport = :{}", address.port())), "{}", finding.sentence);
        let finding = taken("203.0.113.1:9092".parse().expect("address")).expect("not here");
        assert!(finding.sentence.contains("ip -br address"), "{}", finding.sentence);
    }

    #[test]
    fn every_port_of_every_core_is_looked_at() {
        let mut config = Config::defaults();
        config.shards = 3;
        config.listeners[0].bind = "127.0.0.1:9000".parse().expect("address");
        let ports = |config: &Config| addresses(config).iter().map(SocketAddr::port).collect::<Vec<_>>();
        assert_eq!(ports(&config), [9000, 9001, 9002, 9644]);
        config.listener_mode = ListenerMode::Shared;
        config.http_listen = None;
        assert_eq!(ports(&config), [9000]);
        config.listeners[0].bind.set_port(0);
        assert_eq!(findings(&config), [Finding::ok("ports", "Free.")]);
    }
}
