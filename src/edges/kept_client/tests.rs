//! Requests to a server that counts its connections.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use http_body_util::Full;
use hyper::{server::conn::http1, service::service_fn};
use tokio::net::TcpListener;

use super::*;

const LONGEST: usize = 8;

/// A server that answers with what it has got; and how many connections it has had.
async fn server() -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}/", listener.local_addr().unwrap());
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
    (address, connections)
}

fn client() -> KeptClient {
    let own = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    KeptClient::new(Some(own.cert.pem().as_bytes()), Duration::from_secs(20)).unwrap()
}

fn request(address: &str, body: &'static str) -> Request<Upload> {
    let body = Full::new(Bytes::from_static(body.as_bytes()));
    let body = body.map_err(|never: Infallible| match never {}).boxed_unsync();
    Request::post(address).body(body).unwrap()
}

#[tokio::test]
async fn a_connection_serves_one_request_after_the_other() {
    let (address, connections) = server().await;
    let client = client();
    for body in ["one", "two", "three"] {
        let answer = client.send(request(&address, body), LONGEST).await.unwrap();
        assert_eq!(answer.body(), body);
    }
    assert_eq!(connections.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn an_answer_is_read_up_to_its_limit() {
    let (address, _) = server().await;
    let client = client();
    let longest = client.send(request(&address, "12345678"), LONGEST).await.unwrap();
    assert_eq!(longest.body().len(), LONGEST);
    let longer = client.send(request(&address, "123456789"), LONGEST).await;
    assert!(matches!(longer, Err(KeptError::TooLong(LONGEST))), "{longer:?}");
}

#[tokio::test]
async fn why_there_is_no_answer_is_told_without_the_address() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}/canary", listener.local_addr().unwrap());
    let cut = tokio::spawn(async move { drop(listener.accept().await) });
    let client = client();
    let broken = client.send(request(&address, ""), LONGEST).await.unwrap_err();
    assert!(matches!(broken, KeptError::Broken(_)), "{broken}");
    cut.await.unwrap();
    let refused = client.send(request(&address, ""), LONGEST).await.unwrap_err();
    assert!(matches!(refused, KeptError::Connect(_)), "{refused}");
    for told in [broken.to_string(), refused.to_string()] {
        assert!(!told.contains("canary"), "{told}");
    }
}
