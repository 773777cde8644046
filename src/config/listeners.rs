//! Reads `listeners` and `advertised.listeners`: `NAME://host:port`, comma separated, or plain `host:port`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};

use super::Listener;

/// Name of a listener that has none.
const PLAINTEXT: &str = "PLAINTEXT";

/// Names that mean a protocol this broker does not speak yet.
const NOT_SERVED: [&str; 3] = ["SSL", "SASL_PLAINTEXT", "SASL_SSL"];

struct Address {
    name: String,
    host: String,
    port: u16,
}

/// The listeners of two settings; an error is one sentence.
pub fn parse(listeners: &str, advertised: Option<&str>, hostname: &str) -> Result<Vec<Listener>, String> {
    let mut all: Vec<Listener> = Vec::new();
    for address in addresses("listeners", listeners)? {
        if all.iter().any(|listener| listener.name == address.name) {
            return Err(format!("\"listeners\" has the name {} twice; give each listener its own", address.name));
        }
        all.push(bound(address, hostname)?);
    }
    for address in advertised.map_or_else(|| Ok(Vec::new()), |text| addresses("advertised.listeners", text))? {
        let Some(listener) = all.iter_mut().find(|listener| listener.name == address.name) else {
            return Err(format!("\"advertised.listeners\" names {}, which \"listeners\" does not have", address.name));
        };
        if address.host.is_empty() || address.host.parse().is_ok_and(|ip: IpAddr| ip.is_unspecified()) {
            return Err(format!("\"advertised.listeners\" needs a host that clients can reach for {}", address.name));
        }
        listener.advertised_host = Some(address.host);
        listener.advertised_port = Some(address.port);
    }
    Ok(all)
}

fn addresses(setting: &str, text: &str) -> Result<Vec<Address>, String> {
    text.split(',').map(|one| address(setting, one.trim())).collect()
}

fn address(setting: &str, text: &str) -> Result<Address, String> {
    let wrong = || format!("\"{setting}\" has \"{text}\" but must be NAME://host:port or host:port");
    let (name, rest) = text.split_once("://").unwrap_or((PLAINTEXT, text));
    let (host, port) = rest.rsplit_once(':').ok_or_else(wrong)?;
    let port = port.parse().map_err(|_| wrong())?;
    let named = !name.is_empty() && name.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_' || c == b'-');
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    if !named || (bare.is_none() && host.contains(':')) || host.contains('/') {
        return Err(wrong());
    }
    let name = name.to_ascii_uppercase();
    if NOT_SERVED.contains(&name.as_str()) {
        return Err(format!(
            "\"{setting}\" asks for {name}, which is not served yet; use PLAINTEXT or a name of your own"
        ));
    }
    Ok(Address { name, host: bare.unwrap_or(host).into(), port })
}

fn bound(address: Address, hostname: &str) -> Result<Listener, String> {
    let Address { name, host, port } = address;
    let literal = if host.is_empty() { Ok(IpAddr::V4(Ipv4Addr::UNSPECIFIED)) } else { host.parse() };
    let (bind, advertised_host) = match literal {
        // Clients cannot connect to "every address", so they get the machine's name, as with Kafka.
        Ok(ip) if ip.is_unspecified() => (SocketAddr::new(ip, port), Some(hostname.to_string())),
        Ok(ip) => (SocketAddr::new(ip, port), None),
        Err(_) => {
            let found = (host.as_str(), port).to_socket_addrs();
            let mut found =
                found.map_err(|error| format!("\"listeners\" names {host}, which does not resolve: {error}"))?;
            let first = found.next().ok_or_else(|| format!("\"listeners\" names {host}, which has no address"))?;
            (first, Some(host))
        }
    };
    Ok(Listener { name, bind, advertised_host, advertised_port: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(listeners: &str, advertised: Option<&str>) -> Result<Vec<Listener>, String> {
        parse(listeners, advertised, "node7")
    }

    #[test]
    fn plain_and_named_addresses_are_listeners() {
        let all = read("127.0.0.1:9092, inside://[::1]:19092", None).expect("two listeners");
        assert_eq!(all[0].name, "PLAINTEXT");
        assert_eq!(all[0].bind, "127.0.0.1:9092".parse().expect("address"));
        assert_eq!(all[0].advertised_host, None);
        assert_eq!((all[1].name.as_str(), all[1].bind), ("INSIDE", "[::1]:19092".parse().expect("address")));
    }

    #[test]
    fn every_address_is_advertised_as_the_machines_name_unless_told() {
        let all = read("PLAINTEXT://:9092", None).expect("a listener");
        assert_eq!(all[0].bind, "0.0.0.0:9092".parse().expect("address"));
        assert_eq!(all[0].advertised_host.as_deref(), Some("node7"));
        let all = read("PLAINTEXT://0.0.0.0:9092", Some("PLAINTEXT://kafka.example:29092")).expect("a listener");
        assert_eq!(all[0].advertised_host.as_deref(), Some("kafka.example"));
        assert_eq!(all[0].advertised_port, Some(29092));
    }

    #[test]
    fn a_name_is_resolved_and_advertised_as_written() {
        let all = read("localhost:9092", None).expect("a listener");
        assert!(all[0].bind.ip().is_loopback());
        assert_eq!(all[0].advertised_host.as_deref(), Some("localhost"));
    }

    #[test]
    fn what_is_no_listener_is_refused_with_the_reason() {
        for (listeners, advertised, why) in [
            ("9092", None, "\"listeners\" has \"9092\" but must be"),
            ("A://h:99999", None, "\"listeners\" has \"A://h:99999\" but must be"),
            ("::1:9092", None, "but must be"),
            ("SSL://127.0.0.1:9092", None, "asks for SSL, which is not served yet"),
            ("127.0.0.1:1,127.0.0.1:2", None, "has the name PLAINTEXT twice"),
            ("127.0.0.1:1", Some("OTHER://h:1"), "names OTHER, which"),
            ("127.0.0.1:1", Some("0.0.0.0:1"), "needs a host that clients can reach"),
        ] {
            let error = read(listeners, advertised).expect_err(listeners);
            assert!(error.contains(why), "{listeners}: {error}");
        }
    }
}
