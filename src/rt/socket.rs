//! TCP sockets of a shard: plain non-blocking calls, and the executor's ring to wait for readiness.
//!
//! Reader and writer of a connection share one [`Socket`] by reference, which the executor's own stream does not
//! allow. All calls are non-blocking; a wait ends also on hangup and on [`Socket::shutdown_both`], which is how a
//! waiting task is told to end.

use std::io::{self, IoSlice, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};

use glommio::io::PollableFd;
use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, recv};

fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// One accepted connection.
#[derive(Debug)]
pub struct Socket {
    fd: PollableFd<TcpStream>,
}

impl Socket {
    /// Takes over an accepted stream; from here on it is non-blocking and sends without delay.
    pub fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        Ok(Self { fd: PollableFd::new(stream).map_err(io::Error::from)? })
    }

    /// Receives into the spare room of `into`, of which there must be some. `None`: nothing there yet;
    /// `Some(0)`: the client has sent its last byte.
    pub fn try_receive(&self, into: &mut Vec<u8>) -> io::Result<Option<usize>> {
        assert!(into.capacity() > into.len(), "a receive without room would look like the end of the stream");
        match recv(self.fd.get_ref(), spare_capacity(into), RecvFlags::DONTWAIT) {
            Ok((_, bytes)) => Ok(Some(bytes)),
            Err(errno) => {
                let error = io::Error::from(errno);
                if is_transient(&error) { Ok(None) } else { Err(error) }
            }
        }
    }

    /// Sends what the kernel takes of `slices` in one call; `None`: nothing now.
    pub fn try_send(&self, slices: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
        match self.fd.get_ref().write_vectored(slices) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if is_transient(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Waits until a receive would bring something: bytes, the end of the stream or an error.
    pub async fn readable(&self) -> io::Result<()> {
        self.fd.readable().await.map_err(io::Error::from)
    }

    /// Waits until the kernel takes bytes, or the connection has failed.
    pub async fn writable(&self) -> io::Result<()> {
        self.fd.writable().await.map_err(io::Error::from)
    }

    /// Sends a FIN; the client can still be read.
    pub fn shutdown_write(&self) {
        // A connection that the client has reset cannot be shut down, and needs not be.
        let _ = self.fd.get_ref().shutdown(Shutdown::Write);
    }

    /// Ends both directions and with them every wait on this socket.
    pub fn shutdown_both(&self) {
        let _ = self.fd.get_ref().shutdown(Shutdown::Both);
    }

    /// Whether the connection has been reset, without reading: for connections that nobody reads at the moment.
    #[must_use]
    pub fn is_reset(&self) -> bool {
        let mut fds = [PollFd::new(self.fd.get_ref(), PollFlags::empty())];
        match poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
            Ok(_) => fds[0].revents().intersects(PollFlags::ERR | PollFlags::NVAL),
            Err(_) => false,
        }
    }
}

/// A listening socket of a shard.
#[derive(Debug)]
pub struct Acceptor {
    fd: PollableFd<TcpListener>,
}

impl Acceptor {
    /// Takes over a bound listener.
    pub fn new(listener: TcpListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        Ok(Self { fd: PollableFd::new(listener).map_err(io::Error::from)? })
    }

    /// Accepts a connection that is there already; its descriptor is not inherited by child processes.
    pub fn try_accept(&self) -> io::Result<Option<(TcpStream, SocketAddr)>> {
        match self.fd.get_ref().accept() {
            Ok(accepted) => Ok(Some(accepted)),
            // The client gave up between its handshake and this call.
            Err(error) if is_transient(&error) || error.kind() == io::ErrorKind::ConnectionAborted => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Waits for a connection, or for [`Acceptor::close`].
    pub async fn readable(&self) -> io::Result<()> {
        self.fd.readable().await.map_err(io::Error::from)
    }

    /// Stops listening: connections not yet accepted are refused and the wait above ends.
    pub fn close(&self) {
        // The one portable way to wake a waiting accept; the descriptor itself goes with the task that holds it.
        let _ = rustix::net::shutdown(self.fd.get_ref(), rustix::net::Shutdown::Both);
    }

    /// The bound address.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.fd.get_ref().local_addr()
    }
}
