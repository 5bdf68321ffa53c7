//! A provider in this process that speaks HTTP/2 over TLS, records what it gets, and answers by a scripted plan.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http_body_util::{BodyExt, Full};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::steps::Steps;

/// A request as it reached the provider.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) head: http::Request<()>,
    pub(crate) body: Vec<u8>,
    /// The connection that it came on, counted from 0.
    pub(crate) connection: usize,
}

/// How a request is answered.
#[derive(Clone)]
pub(crate) enum Plan {
    /// Status 200 and this JSON.
    Json(String),
    /// This status, and nothing behind the head.
    HeadOnly(u16),
    /// Status 200 and this JSON, ended by trailers.
    Trailers(String),
    /// An event stream: each event once one step more is permitted, then its end.
    Events(Vec<String>, Steps),
    /// An event stream that is reset for this reason once a step is permitted.
    EventsThenReset(Vec<String>, Reason, Steps),
    /// Reset without an answer.
    Reset(Reason),
    /// No answer.
    Silence,
    /// Status 200 and a body of so many bytes, as fast as they are taken.
    Bytes(usize),
    /// The connection says that it ends, having begun no request, and ends.
    GoAway,
}

type Script = dyn Fn(&Received) -> Plan + Send + Sync;

struct Shared {
    script: Box<Script>,
    tls: Arc<ServerConfig>,
    received: Mutex<Vec<Received>>,
    connections: AtomicUsize,
    /// Bytes of [`Plan::Bytes`] that the transport has let out.
    let_out: AtomicUsize,
}

/// The running provider.
pub(crate) struct Http2Provider {
    address: SocketAddr,
    shared: Arc<Shared>,
    runtime: Option<tokio::runtime::Runtime>,
}

impl Http2Provider {
    /// Offers HTTP/2 alone in the handshake.
    pub(crate) fn start(
        tls: &Arc<ServerConfig>,
        script: impl Fn(&Received) -> Plan + Send + Sync + 'static,
    ) -> Http2Provider {
        Self::offering(&["h2"], tls, script)
    }

    /// Offers these protocols. Over HTTP/1.1 a connection takes one request, and only [`Plan::Json`] can be carried out.
    pub(crate) fn offering(
        protocols: &[&str],
        tls: &Arc<ServerConfig>,
        script: impl Fn(&Received) -> Plan + Send + Sync + 'static,
    ) -> Http2Provider {
        let mut tls = ServerConfig::clone(tls);
        tls.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        let shared = Arc::new(Shared {
            script: Box::new(script),
            tls: Arc::new(tls),
            received: Mutex::default(),
            connections: AtomicUsize::new(0),
            let_out: AtomicUsize::new(0),
        });
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let accepting = Arc::clone(&shared);
        runtime.spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let number = accepting.connections.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(Arc::clone(&accepting).serve(number, socket));
            }
        });
        Http2Provider {
            address,
            shared,
            runtime: Some(runtime),
        }
    }

    /// The base URL for a provider override.
    pub(crate) fn base_url(&self) -> String {
        format!("https://localhost:{}", self.address.port())
    }

    /// Every request that came so far, whole.
    pub(crate) fn received(&self) -> Vec<Received> {
        self.shared.received.lock().unwrap().clone()
    }

    /// Connections accepted so far.
    pub(crate) fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// Bytes of [`Plan::Bytes`] that the flow control has let out so far.
    pub(crate) fn let_out(&self) -> usize {
        self.shared.let_out.load(Ordering::SeqCst)
    }
}

impl Drop for Http2Provider {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Shared {
    async fn serve(self: Arc<Self>, number: usize, socket: TcpStream) {
        // What is written apart goes out apart, as from real servers.
        let _ = socket.set_nodelay(true);
        let acceptor = TlsAcceptor::from(Arc::clone(&self.tls));
        let Ok(stream) = acceptor.accept(socket).await else {
            return;
        };
        if stream.get_ref().1.alpn_protocol() == Some(b"http/1.1") {
            return self.serve_http1(number, stream).await;
        }
        let Ok(mut connection) = h2::server::handshake(stream).await else {
            return;
        };
        let (end, mut ended) = tokio::sync::mpsc::channel(1);
        loop {
            tokio::select! {
                accepted = connection.accept() => {
                    let Some(Ok((request, answer))) = accepted else { return };
                    let (shared, end) = (Arc::clone(&self), end.clone());
                    tokio::spawn(async move {
                        if let Some(unanswered) = shared.answer(number, request, answer).await {
                            // Else the connection has ended already.
                            let _ = end.try_send(unanswered);
                        }
                    });
                }
                // Dropped sooner it would reset its stream.
                _unanswered = ended.recv() => {
                    connection.abrupt_shutdown(Reason::NO_ERROR);
                    let _ = poll_fn(|context| connection.poll_closed(context)).await;
                    return;
                }
            }
        }
    }

    async fn serve_http1(self: Arc<Self>, connection: usize, stream: TlsStream<TcpStream>) {
        let service = service_fn(|request: http::Request<hyper::body::Incoming>| {
            let shared = Arc::clone(&self);
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await?.to_bytes().to_vec();
                let head = http::Request::from_parts(parts, ());
                let received = Received { head, body, connection };
                let plan = (shared.script)(&received);
                shared.received.lock().unwrap().push(received);
                let Plan::Json(json) = plan else {
                    panic!("not over HTTP/1.1");
                };
                Ok::<_, hyper::Error>(http::Response::new(Full::new(Bytes::from(json))))
            }
        });
        // Whoever leaves is no failure: tests look at the client.
        let mut http1 = hyper::server::conn::http1::Builder::new();
        let _ = http1
            .keep_alive(false)
            .serve_connection(TokioIo::new(stream), service)
            .await;
    }

    /// What is not answered if the connection has to end.
    async fn answer(
        &self,
        connection: usize,
        request: http::Request<RecvStream>,
        mut answer: SendResponse<Bytes>,
    ) -> Option<SendResponse<Bytes>> {
        let (parts, mut stream) = request.into_parts();
        let mut body = Vec::new();
        while let Some(Ok(piece)) = stream.data().await {
            // A peer that has gone is seen by the answer.
            let _ = stream.flow_control().release_capacity(piece.len());
            body.extend_from_slice(&piece);
        }
        let head = http::Request::from_parts(parts, ());
        let received = Received { head, body, connection };
        let plan = (self.script)(&received);
        if matches!(plan, Plan::GoAway) {
            return Some(answer);
        }
        self.received.lock().unwrap().push(received);
        // Whoever does not want the answer any more is no failure: tests look at the client.
        let _ = self.carry_out(plan, &mut answer).await;
        None
    }

    async fn carry_out(&self, plan: Plan, answer: &mut SendResponse<Bytes>) -> Result<(), h2::Error> {
        match plan {
            Plan::Json(body) => {
                let mut stream = answer.send_response(head("application/json"), false)?;
                stream.send_data(body.into(), true)
            }
            Plan::HeadOnly(status) => {
                let mut head = head("application/json");
                *head.status_mut() = http::StatusCode::from_u16(status).unwrap();
                answer.send_response(head, true).map(drop)
            }
            Plan::Trailers(body) => {
                let mut stream = answer.send_response(head("application/json"), false)?;
                stream.send_data(body.into(), false)?;
                let mut trailers = http::HeaderMap::new();
                trailers.insert("x-checksum", http::HeaderValue::from_static("1"));
                stream.send_trailers(trailers)
            }
            Plan::Events(events, steps) => {
                let mut stream = answer.send_response(head("text/event-stream"), false)?;
                for (sent, event) in events.into_iter().enumerate() {
                    stream.send_data(event.into(), false)?;
                    if !permitted(&steps, sent + 1).await {
                        stream.send_reset(Reason::CANCEL);
                        return Ok(());
                    }
                }
                stream.send_data(Bytes::new(), true)
            }
            Plan::EventsThenReset(events, reason, steps) => {
                let mut stream = answer.send_response(head("text/event-stream"), false)?;
                for event in events {
                    send(&mut stream, event.into()).await?;
                }
                // A reset overtakes what has not been written yet.
                permitted(&steps, 1).await;
                stream.send_reset(reason);
                Ok(())
            }
            Plan::Reset(reason) => {
                answer.send_reset(reason);
                Ok(())
            }
            Plan::Silence => {
                // Until the client gives the stream up.
                poll_fn(|context| answer.poll_reset(context)).await.map(|_| ())
            }
            Plan::Bytes(bytes) => {
                let mut stream = answer.send_response(head("application/json"), false)?;
                let piece = Bytes::from(vec![b' '; 16 * 1024]);
                for _ in 0..bytes / piece.len() {
                    send(&mut stream, piece.clone()).await?;
                    self.let_out.fetch_add(piece.len(), Ordering::SeqCst);
                }
                stream.send_data("{}".into(), true)
            }
            Plan::GoAway => Ok(()),
        }
    }
}

/// The gate is one for threads.
async fn permitted(steps: &Steps, count: usize) -> bool {
    let steps = steps.clone();
    tokio::task::spawn_blocking(move || steps.wait(count))
        .await
        .unwrap_or_default()
}

/// Sends once the flow control has room for all of it.
async fn send(stream: &mut SendStream<Bytes>, mut data: Bytes) -> Result<(), h2::Error> {
    while !data.is_empty() {
        stream.reserve_capacity(data.len());
        let Some(room) = poll_fn(|context| stream.poll_capacity(context)).await else {
            return Ok(());
        };
        stream.send_data(data.split_to(room?.min(data.len())), false)?;
    }
    Ok(())
}

fn head(content_type: &str) -> http::Response<()> {
    http::Response::builder()
        .header("content-type", content_type)
        .body(())
        .unwrap()
}
