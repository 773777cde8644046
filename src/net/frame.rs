//! The four bytes before every request, and what they are when they are no length (contract KC.1, KC.11; case 117).

use thiserror::Error;

/// Why a length was not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// Below zero.
    #[error("negative request size {0}")]
    Negative(i32),
    /// Above `socket.request.max.bytes`.
    #[error("request size {0} is above socket.request.max.bytes")]
    TooLarge(i32),
    /// A web browser, a health check or a proxy.
    #[error("an HTTP request on a Kafka port")]
    Http,
    /// A client with security.protocol=SSL on a plain port.
    #[error("a TLS hello on a plain port")]
    Tls,
}

const HTTP_METHODS: [&[u8; 4]; 10] =
    [b"GET ", b"POST", b"HEAD", b"PUT ", b"DELE", b"OPTI", b"CONN", b"PATC", b"TRAC", b"PRI "];

/// Bytes of the frame that follows `head`.
pub fn frame_bytes(head: [u8; 4], request_bytes_max: usize) -> Result<usize, Refusal> {
    let size = i32::from_be_bytes(head);
    match usize::try_from(size) {
        Err(_) => Err(Refusal::Negative(size)),
        Ok(bytes) if bytes <= request_bytes_max => Ok(bytes),
        Ok(_) if HTTP_METHODS.contains(&&head) => Err(Refusal::Http),
        Ok(_) if head[..2] == [0x16, 0x03] => Err(Refusal::Tls),
        Ok(_) => Err(Refusal::TooLarge(size)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kc_1_the_limit_itself_is_served_and_one_more_is_not() {
        assert_eq!(frame_bytes(104_857_600i32.to_be_bytes(), 104_857_600), Ok(104_857_600));
        assert_eq!(frame_bytes(104_857_601i32.to_be_bytes(), 104_857_600), Err(Refusal::TooLarge(104_857_601)));
        assert_eq!(frame_bytes([0; 4], 1), Ok(0));
        assert_eq!(frame_bytes([0xff; 4], usize::MAX), Err(Refusal::Negative(-1)));
    }

    #[test]
    fn kc_11_http_and_tls_are_told_apart() {
        assert_eq!(frame_bytes(*b"GET ", 104_857_600), Err(Refusal::Http));
        assert_eq!(frame_bytes(*b"OPTI", 104_857_600), Err(Refusal::Http));
        assert_eq!(frame_bytes([0x16, 0x03, 0x01, 0x02], 104_857_600), Err(Refusal::Tls));
    }
}
