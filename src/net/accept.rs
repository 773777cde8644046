//! Accepting connections: one task for each listener of a shard.

use std::net::{Shutdown, SocketAddr, TcpStream};
use std::rc::Rc;
use std::time::Duration;

use oncilla_shards::limits;

use super::service::Service;
use super::shard::NetShard;
use crate::rt::{Acceptor, Socket, sleep, spawn, yield_by_timer};

/// Accepts until the shard stops.
pub fn start<S: Service>(shard: Rc<NetShard<S>>, acceptor: Rc<Acceptor>, listener: usize) {
    spawn(async move {
        let mut turn = 0;
        while !shard.is_stopping() {
            match acceptor.try_accept() {
                Ok(Some((stream, address))) => {
                    admit(&shard, stream, address, listener);
                    turn += 1;
                    if turn == limits::ACCEPT_TURN_MAX {
                        turn = 0;
                        yield_by_timer().await;
                    }
                }
                Ok(None) => {
                    turn = 0;
                    if acceptor.readable().await.is_err() {
                        sleep(Duration::from_millis(limits::ACCEPT_RETRY_MS)).await;
                    }
                }
                Err(error) => {
                    if shard.is_stopping() {
                        break;
                    }
                    // Out of descriptors or memory: the connection stays in the backlog, so this would spin.
                    shard.counters.accept_errors.add(1);
                    tracing::warn!(%error, "accept failed; trying again");
                    sleep(Duration::from_millis(limits::ACCEPT_RETRY_MS)).await;
                }
            }
        }
    });
}

fn admit<S: Service>(shard: &Rc<NetShard<S>>, stream: TcpStream, address: SocketAddr, listener: usize) {
    let Some(permit) = shard.quota.admit(address.ip()) else {
        shard.counters.refused.add(1);
        tracing::debug!(client = %address, "closing the connection: too many");
        // Closed without a byte (contract KC.14); it may be gone already.
        let _ = stream.shutdown(Shutdown::Both);
        return;
    };
    let accepted = stream.local_addr().and_then(|local| Ok((local, Socket::new(stream)?)));
    match accepted {
        Ok((local, socket)) => shard.adopt(socket, address, local, listener, permit),
        Err(error) => tracing::debug!(client = %address, %error, "connection lost before it was served"),
    }
}
