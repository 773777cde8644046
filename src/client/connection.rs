//! One blocking connection: frames out and in, one at a time, in versions that both sides know.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use kafka_protocol::messages::{ApiVersionsRequest, RequestHeader, ResponseHeader};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Message, Request, StrBytes};

use super::ClientError;

/// Longest answer accepted: above what any broker's `fetch.max.bytes` makes, far below what a stray port may say.
const FRAME_BYTES_MAX: usize = 256 << 20;

/// Longest wait for a connection, if the client's own bound is not shorter.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A connection to one node.
pub struct Connection {
    address: String,
    stream: TcpStream,
    versions: HashMap<i16, (i16, i16)>,
    correlation_id: i32,
}

impl Connection {
    /// Connects and asks which versions the node speaks.
    pub fn open(address: &str, timeout: Duration) -> Result<Self, ClientError> {
        let failed = |source| ClientError::io(format!("cannot connect to {address}"), source);
        let mut last = None;
        for candidate in address.to_socket_addrs().map_err(failed)? {
            match TcpStream::connect_timeout(&candidate, CONNECT_TIMEOUT.min(timeout)) {
                Ok(stream) => return Self::agree(address, stream, timeout),
                Err(error) => last = Some(error),
            }
        }
        Err(failed(last.unwrap_or_else(|| std::io::Error::other("the name has no address"))))
    }

    fn agree(address: &str, stream: TcpStream, timeout: Duration) -> Result<Self, ClientError> {
        let set = stream
            .set_nodelay(true)
            .and_then(|()| stream.set_read_timeout(Some(timeout)))
            .and_then(|()| stream.set_write_timeout(Some(timeout)));
        set.map_err(|source| ClientError::io(address, source))?;
        let own = ApiVersionsRequest::VERSIONS;
        let versions = HashMap::from([(ApiVersionsRequest::KEY, (own.min, 0))]);
        let mut connection = Self { address: address.into(), stream, versions, correlation_id: 0 };
        // Version 0 is understood by every broker, and says as much as later ones about versions.
        let answer = connection.call(&ApiVersionsRequest::default(), 0)?;
        super::accepted(answer.error_code, None, || format!("ApiVersions of {address}"))?;
        connection.versions =
            answer.api_keys.iter().map(|api| (api.api_key, (api.min_version, api.max_version))).collect();
        Ok(connection)
    }

    /// Asks again which versions the node speaks: whether it still answers here.
    pub fn ping(&mut self) -> Result<(), ClientError> {
        let answer = self.call(&ApiVersionsRequest::default(), 0)?;
        super::accepted(answer.error_code, None, || format!("ApiVersions of {}", self.address))
    }

    /// Sends a request and reads its answer.
    pub fn call<R: Request>(&mut self, request: &R, version_max: i16) -> Result<R::Response, ClientError> {
        let version = self.send(request, version_max)?;
        let mut frame = self.receive()?;
        let broken =
            |error: String| ClientError::Protocol(format!("{} answers what cannot be read: {error}", self.address));
        let header = ResponseHeader::decode(&mut frame, R::Response::header_version(version))
            .map_err(|error| broken(error.to_string()))?;
        if header.correlation_id != self.correlation_id {
            let (got, asked) = (header.correlation_id, self.correlation_id);
            return Err(broken(format!("request {got} instead of {asked}")));
        }
        let answer = R::Response::decode(&mut frame, version).map_err(|error| broken(error.to_string()))?;
        if frame.has_remaining() {
            return Err(broken(format!("{} bytes too many", frame.remaining())));
        }
        Ok(answer)
    }

    /// Sends a request without waiting; the version it went out in.
    fn send<R: Request>(&mut self, request: &R, version_max: i16) -> Result<i16, ClientError> {
        let version = self.version::<R>(version_max)?;
        self.correlation_id = self.correlation_id.wrapping_add(1);
        let header = RequestHeader::default()
            .with_request_api_key(R::KEY)
            .with_request_api_version(version)
            .with_correlation_id(self.correlation_id)
            .with_client_id(Some(StrBytes::from_static_str("oncilla")));
        let mut frame = BytesMut::new();
        frame.put_i32(0);
        header
            .encode(&mut frame, R::header_version(version))
            .and_then(|()| request.encode(&mut frame, version))
            .map_err(|error| ClientError::Protocol(format!("a request cannot be written: {error}")))?;
        let length = i32::try_from(frame.len() - 4)
            .map_err(|_| ClientError::Protocol("a request is longer than the protocol allows".into()))?;
        frame[..4].copy_from_slice(&length.to_be_bytes());
        self.stream.write_all(&frame).map_err(|source| ClientError::io(&*self.address, source))?;
        Ok(version)
    }

    /// The version that a request goes out in: the highest that both sides speak, and at most `version_max`.
    pub fn version<R: Request>(&self, version_max: i16) -> Result<i16, ClientError> {
        let own = R::VERSIONS;
        let (min, max) = self.versions.get(&R::KEY).copied().unwrap_or((0, -1));
        let version = own.max.min(max).min(version_max);
        if version < own.min.max(min) {
            return Err(ClientError::Protocol(format!(
                "{} has no version of API {} that this client speaks",
                self.address,
                R::KEY
            )));
        }
        Ok(version)
    }

    /// The socket, for requests that are written and read in another way. No answer is under way on it.
    pub fn into_stream(self) -> TcpStream {
        self.stream
    }

    fn receive(&mut self) -> Result<Bytes, ClientError> {
        let failed = |source| ClientError::io(&*self.address, source);
        let mut length = [0; 4];
        self.stream.read_exact(&mut length).map_err(failed)?;
        let length = usize::try_from(i32::from_be_bytes(length)).unwrap_or(usize::MAX);
        if length > FRAME_BYTES_MAX {
            return Err(ClientError::Protocol(format!("{} is no Kafka broker", self.address)));
        }
        // Grows with what arrives, so that a length alone takes no memory.
        let mut frame = Vec::new();
        let read = (&mut self.stream).take(length as u64).read_to_end(&mut frame).map_err(failed)?;
        if read < length {
            return Err(failed(std::io::ErrorKind::UnexpectedEof.into()));
        }
        Ok(frame.into())
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// A peer that reads something and sends these bytes.
    fn peer(answer: &'static [u8]) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound").to_string();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            let _ = stream.read(&mut [0; 1024]);
            stream.write_all(answer).expect("sent");
        });
        address
    }

    fn refused(answer: &'static [u8]) -> String {
        Connection::open(&peer(answer), Duration::from_secs(10)).err().expect("no broker").to_string()
    }

    #[test]
    fn what_is_no_broker_is_named_so() {
        assert!(refused(b"HTTP/1.1 400 Bad Request\r\n").ends_with("is no Kafka broker"));
        assert!(refused(&[0, 0, 0, 9, 1]).contains("end of file"), "cut short");
        assert!(refused(&[0, 0, 0, 4, 0, 0, 0, 9]).contains("request 9 instead of 1"));
        assert!(refused(&[0, 0, 0, 4, 0, 0, 0, 1]).contains("cannot be read"), "no body");
    }

    #[test]
    fn a_node_that_does_not_serve_an_api_is_told_before_anything_is_sent() {
        // ApiVersions v0: success, one key (18, 0 to 4).
        let address = peer(&[0, 0, 0, 16, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 18, 0, 0, 0, 4]);
        let mut connection = Connection::open(&address, Duration::from_secs(10)).expect("a broker");
        let request = kafka_protocol::messages::FetchRequest::default();
        let error = connection.call(&request, i16::MAX).expect_err("no Fetch").to_string();
        assert!(error.ends_with("has no version of API 1 that this client speaks"), "{error}");
    }
}
