//! An HTTP/2 client, with prior knowledge (h2c) or over TLS, that decides where END_STREAM stands.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, SizeHint};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;

use super::client::Response;
use super::request::Request;

/// How long a whole exchange may take: bodies of 32 MB are sent, on machines that do other work as well.
const EXCHANGE_MAX: Duration = Duration::from_secs(120);

/// How the end of an upload is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndStream {
    /// On the last DATA frame that carries bytes.
    OnLastFrame,
    /// On an empty DATA frame of its own.
    OnItsOwn,
}

/// Whether the upload says its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    Said,
    Unsaid,
}

/// Sends one request over a new h2c connection and reads the whole answer. `complete` is false when the stream broke.
#[track_caller]
pub(crate) fn exchange(address: SocketAddr, request: &Request, end: EndStream, length: Length) -> Response {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let answer =
        runtime.block_on(async { tokio::time::timeout(EXCHANGE_MAX, talk(address, request, end, length)).await });
    runtime.shutdown_timeout(Duration::from_millis(100));
    answer.unwrap_or_else(|_| panic!("no answer over h2c within {EXCHANGE_MAX:?}"))
}

/// Sends one request over TLS and reads the whole answer.
#[track_caller]
pub(crate) fn exchange_tls(
    tls: Arc<ClientConfig>,
    name: &'static str,
    address: SocketAddr,
    request: &Request,
) -> Response {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let talk = async {
        let socket = tokio::net::TcpStream::connect(address).await.unwrap();
        let name = ServerName::try_from(name).unwrap();
        let stream = TlsConnector::from(tls).connect(name, socket).await.unwrap();
        talk_over(stream, request, EndStream::OnLastFrame, Length::Said).await
    };
    let answer = runtime.block_on(async { tokio::time::timeout(EXCHANGE_MAX, talk).await });
    runtime.shutdown_timeout(Duration::from_millis(100));
    answer.unwrap_or_else(|_| panic!("no answer over h2 within {EXCHANGE_MAX:?}"))
}

/// Sends one request over a new h2c connection and leaves, without an answer, when `wait` has returned.
#[track_caller]
pub(crate) fn abandon(address: SocketAddr, request: &Request, wait: impl FnOnce()) {
    let (leave, left) = tokio::sync::oneshot::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                tokio::select! {
                    answer = talk(address, request, EndStream::OnLastFrame, Length::Said) => {
                        panic!("answered {} before the client could leave", answer.status)
                    }
                    _ = left => {}
                }
            });
            runtime.shutdown_timeout(Duration::from_millis(100));
        });
        wait();
        // The thread may have failed; then the scope says so.
        let _ = leave.send(());
    });
}

/// One h2c connection for several requests.
pub(crate) struct Requests {
    runtime: tokio::runtime::Runtime,
    sender: http2::SendRequest<Uploaded>,
    /// Answers that are not read.
    unread: Vec<hyper::body::Incoming>,
}

type Uploaded = http_body_util::Either<Frames, Unending>;

impl Requests {
    /// Connects.
    pub(crate) fn connect(address: SocketAddr) -> Requests {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let sender = runtime.block_on(async {
            let socket = tokio::net::TcpStream::connect(address).await.unwrap();
            let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(socket))
                .await
                .unwrap();
            tokio::spawn(connection);
            sender
        });
        Requests {
            runtime,
            sender,
            unread: Vec::new(),
        }
    }

    /// The status of a request's answer, which is left unread; `None` if the connection takes no more.
    pub(crate) fn send(&mut self, request: &Request) -> Option<u16> {
        let body = Frames::of(&request.body, EndStream::OnLastFrame);
        self.ask(request, http_body_util::Either::Left(body))
    }

    /// The same, with an upload that begins and never ends.
    pub(crate) fn send_without_end(&mut self, request: &Request) -> Option<u16> {
        let begin = Unending {
            begin: Some(Bytes::copy_from_slice(&request.body[..1])),
            next: None,
        };
        self.ask(request, http_body_util::Either::Right(begin))
    }

    /// The same, with an upload that brings all of its body and is never ended.
    pub(crate) fn send_whole_without_end(&mut self, request: &Request, length: Length) -> Option<u16> {
        let whole = Unending {
            begin: Some(Bytes::copy_from_slice(&request.body)),
            next: None,
        };
        self.ask_with(request, length, http_body_util::Either::Right(whole))
    }

    /// The statuses of so many requests at one time that announce their length and bring a byte now and then; `None` for one
    /// that ended without an answer.
    pub(crate) fn announce(&self, request: &Request, count: usize, gap: Duration) -> Vec<Option<u16>> {
        self.runtime.block_on(async {
            let mut asked = tokio::task::JoinSet::new();
            for _ in 0..count {
                let body = http_body_util::Either::Right(Unending::with_bytes_after(gap));
                let sending = self
                    .sender
                    .clone()
                    .send_request(head(request, Length::Said).body(body).unwrap());
                asked.spawn(async move { sending.await.ok().map(|answer| answer.status().as_u16()) });
            }
            let all = tokio::time::timeout(EXCHANGE_MAX, asked.join_all());
            all.await.expect("no answer over h2c in time")
        })
    }

    fn ask(&mut self, request: &Request, body: Uploaded) -> Option<u16> {
        self.ask_with(request, Length::Said, body)
    }

    fn ask_with(&mut self, request: &Request, length: Length, body: Uploaded) -> Option<u16> {
        let request = head(request, length).body(body).unwrap();
        let sending = self.sender.send_request(request);
        let answer = self
            .runtime
            .block_on(async { tokio::time::timeout(EXCHANGE_MAX, sending).await });
        let answer = answer.expect("no answer over h2c in time").ok()?;
        let status = answer.status().as_u16();
        self.unread.push(answer.into_body());
        Some(status)
    }
}

/// A body whose end does not come.
struct Unending {
    begin: Option<Bytes>,
    /// When the next byte comes, and how long after the one before.
    next: Option<(Pin<Box<tokio::time::Sleep>>, Duration)>,
}

impl Unending {
    fn with_bytes_after(gap: Duration) -> Unending {
        Unending {
            begin: Some(Bytes::from_static(b" ")),
            next: Some((Box::pin(tokio::time::sleep(gap)), gap)),
        }
    }
}

impl Body for Unending {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(bytes) = self.begin.take() {
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
        let Some((due, gap)) = &mut self.next else {
            return Poll::Pending;
        };
        ready!(due.as_mut().poll(cx));
        let again = tokio::time::Instant::now() + *gap;
        due.as_mut().reset(again);
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b" ")))))
    }
}

fn head(request: &Request, length: Length) -> http::request::Builder {
    let mut builder = hyper::Request::builder()
        .method(request.method.as_str())
        .uri(format!("http://weir.test{}", request.target));
    for (name, value) in request.headers.iter().filter(|(name, _)| name != "host") {
        builder = builder.header(name, value);
    }
    if length == Length::Said {
        builder = builder.header("content-length", request.body.len());
    }
    builder
}

async fn talk(address: SocketAddr, request: &Request, end: EndStream, length: Length) -> Response {
    let socket = tokio::net::TcpStream::connect(address).await.unwrap();
    talk_over(socket, request, end, length).await
}

async fn talk_over<S>(stream: S, request: &Request, end: EndStream, length: Length) -> Response
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    let sending = sender.send_request(head(request, length).body(Frames::of(&request.body, end)).unwrap());
    let Ok(answer) = sending.await else {
        // The stream broke before a head.
        return Response {
            status: 0,
            headers: Vec::new(),
            body: Vec::new(),
            complete: false,
        };
    };
    let status = answer.status().as_u16();
    let headers = answer
        .headers()
        .iter()
        .map(|(name, value)| (name.as_str().to_owned(), value.to_str().unwrap_or_default().to_owned()))
        .collect();
    let mut stream = answer.into_body();
    let (mut body, mut complete) = (Vec::new(), true);
    while let Some(frame) = stream.frame().await {
        match frame {
            Ok(frame) => body.extend_from_slice(&frame.into_data().unwrap_or_default()),
            Err(_) => {
                complete = false;
                break;
            }
        }
    }
    Response {
        status,
        headers,
        body,
        complete,
    }
}

/// A body in frames that hides its length.
struct Frames {
    frames: VecDeque<Bytes>,
    end: EndStream,
}

impl Frames {
    /// Frames of 16,000 bytes: under HTTP/2's default frame size, so that they are not split again.
    fn of(body: &[u8], end: EndStream) -> Frames {
        Frames {
            frames: body.chunks(16_000).map(Bytes::copy_from_slice).collect(),
            end,
        }
    }
}

impl Body for Frames {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.frames.pop_front().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.end == EndStream::OnLastFrame && self.frames.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}
