//! Requests to servers of every manner.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::Request;
use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use rustls::{ServerConfig, crypto::ring, pki_types::PrivateKeyDer};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpListener,
};
use tokio_rustls::TlsAcceptor;

use super::*;

const LIMITS: WebLimits = WebLimits {
    connect: Duration::from_secs(20),
    total: Some(Duration::from_secs(30)),
    answer_bytes_max: 8,
    idle_max: 0,
};

fn request(url: &str) -> Request<Bytes> {
    Request::post(url)
        .header("x-test", "1")
        .body(Bytes::from_static(b"body"))
        .unwrap()
}

async fn listener() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

/// Reads a request up to its body, and answers with this; says what it read.
async fn serve(mut stream: impl AsyncRead + AsyncWrite + Unpin, answer: &str) -> String {
    let mut read = Vec::new();
    while !read.ends_with(b"body") {
        let mut piece = [0; 1024];
        let count = stream.read(&mut piece).await.unwrap();
        assert!(count > 0, "the request ended early");
        read.extend_from_slice(&piece[..count]);
    }
    stream.write_all(answer.as_bytes()).await.unwrap();
    let _ = stream.shutdown().await;
    String::from_utf8(read).unwrap()
}

async fn asked(answer: &'static str) -> (Result<Response<Bytes>, WebError>, String) {
    let (listener, port) = listener().await;
    let served = tokio::spawn(async move { serve(listener.accept().await.unwrap().0, answer).await });
    let client = WebClient::new(None, LIMITS).unwrap();
    let answer = client
        .send(request(&format!("http://user@127.0.0.1:{port}/a?b=c")))
        .await;
    (answer, served.await.unwrap())
}

#[tokio::test]
async fn the_server_gets_path_host_and_body_and_its_answer_comes_back() {
    let (answer, seen) = asked("HTTP/1.1 202 Accepted\r\ncontent-length: 8\r\n\r\n12345678").await;
    let answer = answer.unwrap();
    assert_eq!(
        (answer.status().as_u16(), answer.body().as_ref()),
        (202, &b"12345678"[..])
    );
    assert!(seen.starts_with("POST /a?b=c HTTP/1.1\r\n"), "{seen}");
    assert!(
        seen.contains("\r\nhost: 127.0.0.1:") && seen.contains("\r\ncontent-length: 4\r\n"),
        "{seen}"
    );
    assert!(!seen.contains("user"), "{seen}");
}

#[tokio::test]
async fn an_answer_that_is_too_long_or_broken_off_is_an_error() {
    let (long, _) = asked("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n123456789").await;
    assert!(matches!(long, Err(WebError::TooLong(8))), "{long:?}");
    let (cut, _) = asked("HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\n123").await;
    assert!(matches!(cut, Err(WebError::Broken(_))), "{cut:?}");
    let (none, _) = asked("").await;
    assert!(matches!(none, Err(WebError::Broken(_))), "{none:?}");
}

#[tokio::test]
async fn nobody_is_waited_for_longer_than_the_limit() {
    let (listener, port) = listener().await;
    let short = Duration::from_millis(50);
    let client = WebClient::new(
        None,
        WebLimits {
            total: Some(short),
            ..LIMITS
        },
    )
    .unwrap();
    let answer = client.send(request(&format!("http://127.0.0.1:{port}/"))).await;
    assert!(
        matches!(answer, Err(WebError::Late(limit)) if limit == short),
        "{answer:?}"
    );
    // A server that takes the connection and says nothing holds a TLS handshake up.
    let client = WebClient::new(
        None,
        WebLimits {
            connect: short,
            ..LIMITS
        },
    )
    .unwrap();
    let answer = client.send(request(&format!("https://127.0.0.1:{port}/"))).await;
    assert!(
        matches!(answer, Err(WebError::Late(limit)) if limit == short),
        "{answer:?}"
    );
    drop(listener);
}

#[tokio::test]
async fn a_server_is_believed_by_its_certificate_only() {
    let own = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(own.signing_key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = config
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth();
    let config = config.with_single_cert(vec![own.cert.der().clone()], key).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let (listener, port) = listener().await;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            if let Ok(stream) = acceptor.accept(stream).await {
                serve(stream, "HTTP/1.1 204 No Content\r\n\r\n").await;
            }
        }
    });
    let trusting = WebClient::new(Some(own.cert.pem().as_bytes()), LIMITS).unwrap();
    let answer = trusting.send(request(&format!("https://localhost:{port}/"))).await;
    assert_eq!(answer.unwrap().status().as_u16(), 204);
    for (client, host) in [
        (WebClient::new(None, LIMITS).unwrap(), "localhost"),
        (trusting, "127.0.0.1"),
    ] {
        let answer = client.send(request(&format!("https://{host}:{port}/"))).await;
        assert!(matches!(answer, Err(WebError::Connect(_))), "{answer:?}");
    }
}

#[tokio::test]
async fn what_is_no_address_of_a_web_server_is_told() {
    let client = WebClient::new(None, LIMITS).unwrap();
    for address in ["/a", "ftp://localhost/"] {
        let answer = client.send(request(address)).await;
        assert!(matches!(answer, Err(WebError::Address)), "{answer:?}");
    }
}

/// A server that answers with the body that it gets; and how many connections it has had.
async fn echo() -> (String, Arc<AtomicUsize>) {
    let (listener, port) = listener().await;
    let connections = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&connections);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            count.fetch_add(1, Ordering::Relaxed);
            let answer = service_fn(|request: Request<Incoming>| async move {
                let body = request.into_body().collect().await.unwrap().to_bytes();
                Ok::<_, Infallible>(Response::new(Full::new(body)))
            });
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), answer));
        }
    });
    (format!("http://127.0.0.1:{port}/"), connections)
}

#[tokio::test]
async fn a_connection_is_kept_for_the_next_request_where_the_limits_say_so() {
    for (idle_max, connections_made) in [(1, 1), (0, 3)] {
        let (address, connections) = echo().await;
        let client = WebClient::new(None, WebLimits { idle_max, ..LIMITS }).unwrap();
        for _ in 0..3 {
            assert_eq!(client.send(request(&address)).await.unwrap().body(), "body");
        }
        assert_eq!(connections.load(Ordering::Relaxed), connections_made);
    }
}

#[tokio::test]
async fn a_server_of_two_addresses_is_reached_by_the_one_that_listens() {
    // `localhost` is ::1 and 127.0.0.1, and only the second listens.
    let (address, _) = echo().await;
    let client = WebClient::new(None, LIMITS).unwrap();
    let answer = client.send(request(&address.replace("127.0.0.1", "localhost"))).await;
    assert_eq!(answer.unwrap().body(), "body");
}

#[tokio::test]
async fn why_there_is_no_answer_is_told_without_the_address() {
    let (listener, port) = listener().await;
    let address = format!("http://127.0.0.1:{port}/canary");
    let cut = tokio::spawn(async move { drop(listener.accept().await) });
    let client = WebClient::new(None, LIMITS).unwrap();
    let broken = client.send(request(&address)).await.unwrap_err();
    assert!(matches!(broken, WebError::Broken(_)), "{broken}");
    cut.await.unwrap();
    let refused = client.send(request(&address)).await.unwrap_err();
    assert!(matches!(refused, WebError::Connect(_)), "{refused}");
    for message in [broken.to_string(), refused.to_string()] {
        assert!(!message.contains("canary"), "{message}");
    }
}
