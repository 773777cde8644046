//! Metrics and health over HTTP, on a control thread that no shard waits for and that waits for no shard.
//!
//! `/metrics` in Prometheus text, `/healthz` while the process lives, `/readyz` while every shard serves and beats.
//! Connections are bounded, slow headers are cut off, and a connection has one deadline for everything.

mod exposition;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ALLOW, CONTENT_TYPE};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use oncilla_shards::limits::{HEARTBEAT_AGE_MS_MAX, HTTP_CONNECTIONS_MAX};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::metrics::{ShardMetrics, process_uptime_ms};

/// Longest wait for the header of a request.
const HEADER_MS: u64 = 5_000;

/// Longest life of a connection; scrapers come back with another.
const CONNECTION_MS: u64 = 60_000;

/// What the pages show.
#[derive(Debug)]
pub struct State {
    /// The numbers of every shard.
    pub shards: Vec<Arc<ShardMetrics>>,
}

/// Binds the address, so that its port is known before the broker says that it is ready.
pub fn bind(address: SocketAddr) -> io::Result<(std::net::TcpListener, SocketAddr)> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    let bound = listener.local_addr()?;
    Ok((listener, bound))
}

/// Serves until the future is dropped, or the listener is unusable, which is the error that it ends with.
/// Runs in the control thread's tokio runtime, which needs its time driver.
pub async fn serve(listener: std::net::TcpListener, state: Arc<State>) -> io::Error {
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return error,
    };
    let places = Arc::new(Semaphore::new(HTTP_CONNECTIONS_MAX));
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            // Out of descriptors or a client gone: the next one may do better, a little later.
            Err(error) => {
                tracing::warn!(%error, "http: accept failed");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let Ok(place) = places.clone().try_acquire_owned() else {
            continue;
        };
        let state = state.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let state = state.clone();
                async move { Ok::<_, Infallible>(answer(&request, &state)) }
            });
            let mut http = hyper::server::conn::http1::Builder::new();
            http.timer(TokioTimer::new()).header_read_timeout(Duration::from_millis(HEADER_MS));
            let connection = http.serve_connection(TokioIo::new(stream), service);
            // Both a broken request and the deadline only end this connection.
            let _ = tokio::time::timeout(Duration::from_millis(CONNECTION_MS), connection).await;
            drop(place);
        });
    }
}

/// Serves on a thread of its own with a runtime of its own, for those who have no control thread yet.
pub fn spawn(listener: std::net::TcpListener, state: Arc<State>) -> io::Result<std::thread::JoinHandle<()>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    std::thread::Builder::new().name("oncilla-http".into()).spawn(move || {
        let error = runtime.block_on(serve(listener, state));
        tracing::error!(%error, "http: the listener failed, metrics and health are gone");
    })
}

fn answer(request: &Request<Incoming>, state: &State) -> Response<Full<Bytes>> {
    let page = if matches!(*request.method(), Method::GET | Method::HEAD) {
        page(request.uri().path(), state)
    } else {
        (StatusCode::METHOD_NOT_ALLOWED, TEXT, "only GET and HEAD\n".to_string())
    };
    let (status, form, body) = page;
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, form.parse().expect("a constant of this file"));
    if status == StatusCode::METHOD_NOT_ALLOWED {
        headers.insert(ALLOW, "GET, HEAD".parse().expect("a constant"));
    }
    response
}

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

fn page(path: &str, state: &State) -> (StatusCode, &'static str, String) {
    match path {
        "/metrics" => match exposition::text(&state.shards) {
            Ok(text) => (StatusCode::OK, PROMETHEUS, text),
            Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, TEXT, format!("metrics: {error}\n")),
        },
        "/healthz" => {
            let body = json!({ "alive": true, "uptime_ms": process_uptime_ms(), "version": env!("CARGO_PKG_VERSION") });
            (StatusCode::OK, JSON, format!("{body}\n"))
        }
        "/readyz" => {
            let ready = !state.shards.is_empty() && state.shards.iter().all(|shard| is_ready(shard));
            let shards: Vec<_> = state.shards.iter().map(|shard| shard_health(shard)).collect();
            let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
            (status, JSON, format!("{}\n", json!({ "ready": ready, "shards": shards })))
        }
        _ => (StatusCode::NOT_FOUND, TEXT, "try /metrics, /healthz or /readyz\n".into()),
    }
}

fn is_ready(shard: &ShardMetrics) -> bool {
    shard.serving.get() == 1 && shard.heartbeat_age_ms() <= HEARTBEAT_AGE_MS_MAX
}

fn shard_health(shard: &ShardMetrics) -> serde_json::Value {
    json!({
        "shard": shard.shard,
        "serving": shard.serving.get() == 1,
        "heartbeat_age_ms": shard.heartbeat_age_ms(),
        "partitions_offline": shard.partitions_offline.get(),
    })
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use oncilla_shards::ids::ShardId;

    use super::*;

    fn start() -> (SocketAddr, Arc<State>) {
        let shards = (0..2).map(|k| Arc::new(ShardMetrics::new(ShardId(k)))).collect();
        let state = Arc::new(State { shards });
        let (listener, address) = bind("127.0.0.1:0".parse().expect("address")).expect("a port");
        spawn(listener, state.clone()).expect("a thread");
        (address, state)
    }

    fn get(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).expect("listens");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
        write!(stream, "{request}\r\nHost: x\r\nConnection: close\r\n\r\n").expect("sent");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("an answer and a close");
        text
    }

    #[test]
    fn ready_means_that_every_shard_serves_and_beats() {
        let (address, state) = start();
        let ready = || get(address, "GET /readyz HTTP/1.1");
        assert!(ready().starts_with("HTTP/1.1 503 "));
        for shard in &state.shards {
            shard.serving.set(1);
            shard.beat();
        }
        let text = ready();
        assert!(text.starts_with("HTTP/1.1 200 ") && text.contains("\"ready\":true"), "{text}");
        state.shards[1].serving.set(0);
        assert!(ready().starts_with("HTTP/1.1 503 "), "one shard drains");
    }

    #[test]
    fn health_is_alive_and_unknown_pages_and_methods_are_refused() {
        let (address, _) = start();
        assert!(get(address, "GET /healthz HTTP/1.1").contains("\"alive\":true"));
        assert!(get(address, "GET / HTTP/1.1").starts_with("HTTP/1.1 404 "));
        assert!(get(address, "POST /metrics HTTP/1.1").starts_with("HTTP/1.1 405 "));
        assert!(get(address, "nonsense").starts_with("HTTP/1.1 400 "));
    }

    #[test]
    fn connections_are_bounded_and_the_page_comes_back_when_they_go() {
        let (address, _) = start();
        let held: Vec<_> = (0..HTTP_CONNECTIONS_MAX).map(|_| TcpStream::connect(address).expect("listens")).collect();
        // One more is closed without an answer, which the client may also see as a reset.
        let mut extra = TcpStream::connect(address).expect("listens");
        extra.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
        assert!(!matches!(extra.read(&mut [0; 1]), Ok(1..)));
        drop(held);
        for _ in 0..200 {
            let mut stream = TcpStream::connect(address).expect("listens");
            let _ = stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
            let mut text = String::new();
            let _ = stream.read_to_string(&mut text);
            if text.starts_with("HTTP/1.1 200 ") {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("places of closed connections are never given again");
    }

    #[test]
    fn metrics_are_prometheus_text() {
        let (address, state) = start();
        state.shards[1].records_produced.add(7);
        let text = get(address, "GET /metrics HTTP/1.1");
        assert!(text.contains("content-type: text/plain; version=0.0.4"), "{text}");
        assert!(text.contains("oncilla_kafka_records_produced_total{shard=\"1\"} 7\n"), "{text}");
    }
}
