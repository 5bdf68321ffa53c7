//! Requests to servers of every manner.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::Request;
use rustls::{ServerConfig, crypto::ring, pki_types::PrivateKeyDer};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::edges::connector::Transport;

const LIMITS: WebLimits = WebLimits {
    connect: Duration::from_secs(20),
    total: Duration::from_secs(30),
    answer_bytes_max: 8,
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
async fn serve(mut stream: impl Transport, answer: &str) -> String {
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
    let client = WebClient::new(None, WebLimits { total: short, ..LIMITS }).unwrap();
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
    let answer = client.send(request("/a")).await;
    assert!(matches!(answer, Err(WebError::Address)), "{answer:?}");
}
