//! Runs each request on a socket as an exchange of the gateway. [`TurnSession`] is Pingora's session of such a request. Its head
//! is the head of a POST, its body is the client's message, and its answer is sent as frames.

#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures_util::Stream;
use http::{HeaderMap, HeaderValue, header, request::Parts};
use pingora::{
    Error, ErrorType, Result,
    apps::HttpServerApp,
    http::{RequestHeader, ResponseHeader},
    protocols::{
        Digest, SocketDigest,
        http::{
            HttpTask, ServerSession,
            custom::{CustomMessageWrite, server::Session},
        },
        l4::socket::SocketAddr,
    },
    server::ShutdownWatch,
};
use pingora_proxy::HttpProxy;
use tokio::sync::mpsc;

use crate::{
    domain::wire::responses_socket::SocketLane,
    gateway::{
        handshake::SocketHandshake,
        lines::SocketLines,
        parts::Gateway,
        socket::{
            SocketHost,
            answer::TurnAnswer,
            lanes::{ReadyTurn, TurnPiece},
        },
        turn_link::{TurnLink, TurnOrigin},
    },
};

/// The maximum number of pieces of an answer that wait for the socket.
const PIECES_MAX: usize = 8;

/// If the client has received the last frame and has then disconnected, the provider has this time to end its answer.
const AFTER_LAST_FRAME: Duration = Duration::from_secs(1);

/// The HTTP status of a request whose key is not valid.
const UNAUTHORIZED: u16 = 401;

/// The bytes that Pingora replays at each attempt. They make Pingora call the body's hook, which replaces the bytes with the
/// stored body.
const REPLAYED: &[u8] = b"{}";

/// Starts the requests on one socket.
pub(crate) struct TurnHost {
    proxy: Arc<HttpProxy<Gateway>>,
    pub gateway: Gateway,
    pub handshake: SocketHandshake,
    peer: Option<Arc<SocketDigest>>,
    /// The WebSockets over which the socket's requests reach providers.
    lines: Arc<SocketLines>,
    /// The socket's number on this node.
    number: u64,
    shutdown: ShutdownWatch,
}

impl TurnHost {
    /// Creates the host of a socket's requests. `peer` contains the client's address.
    pub(crate) fn new(
        host: SocketHost<'_>,
        handshake: SocketHandshake,
        peer: Option<Arc<SocketDigest>>,
        shutdown: ShutdownWatch,
    ) -> Self {
        let gateway = host.gateway.clone();
        Self {
            lines: SocketLines::new(Arc::clone(host.lines)),
            number: gateway.limits.conversations.open_socket(),
            proxy: Arc::clone(host.proxy),
            gateway,
            handshake,
            peer,
            shutdown,
        }
    }

    /// Starts a request. Returns the receiver of the request's answer. The sender closes the channel when the request has ended
    /// and is recorded. If the receiver is dropped, the client counts as disconnected.
    pub(crate) fn start(&self, turn: ReadyTurn) -> mpsc::Receiver<TurnPiece> {
        let origin = TurnOrigin {
            at: SocketLane {
                socket: self.number,
                lane: turn.lane,
            },
            owner: *self.handshake.digest.as_bytes(),
            socket_id: self.handshake.socket_id.clone(),
            stream_id: turn.stream_id,
        };
        let link = TurnLink::new(origin, Arc::clone(&self.gateway.limits.conversations), turn.content);
        link.use_lines(&self.lines);
        let (sender, receiver) = mpsc::channel(PIECES_MAX);
        let session = TurnSession {
            head: request_head(self.handshake.head.clone(), turn.length, &link),
            answer: TurnAnswer::new(Arc::clone(&link)),
            link,
            pieces: sender,
            peer: self.peer.clone(),
            written: None,
            bytes_sent: 0,
        };
        let (proxy, shutdown) = (Arc::clone(&self.proxy), self.shutdown.clone());
        tokio::spawn(async move {
            let session = ServerSession::new_custom(Box::new(session));
            proxy.process_new_http(session, &shutdown).await;
        });
        receiver
    }
}

impl Drop for TurnHost {
    fn drop(&mut self) {
        self.gateway.limits.conversations.remove_socket(self.number);
        self.lines.close();
    }
}

/// Returns the head of a request whose message has `length` bytes.
fn request_head(mut parts: Parts, length: u64, link: &Arc<TurnLink>) -> RequestHeader {
    parts.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    parts.extensions.insert(Arc::clone(link));
    RequestHeader::from(parts)
}

/// Pingora's session of a request on a socket.
struct TurnSession {
    head: RequestHeader,
    link: Arc<TurnLink>,
    answer: TurnAnswer,
    pieces: mpsc::Sender<TurnPiece>,
    peer: Option<Arc<SocketDigest>>,
    written: Option<Box<ResponseHeader>>,
    /// The number of bytes of the answer's body so far. The bytes of the frames are not counted.
    bytes_sent: usize,
}

impl TurnSession {
    /// Whether the client has disconnected and the answer is detached.
    fn is_gone(&self) -> bool {
        self.link.presence().is_some_and(|presence| presence.has_left())
    }

    /// Handles the end of the socket. Returns an error, unless the answer is detached.
    fn on_disconnect(&self) -> Result<()> {
        match self.link.presence().is_some_and(|presence| presence.on_disconnect()) {
            true => Ok(()),
            false => Err(Error::explain(ErrorType::ConnectionClosed, "the client has closed the socket").into_down()),
        }
    }

    /// Handles a piece of the answer's body, or the body's end. Writes the frames that this piece or end completes.
    async fn write(&mut self, piece: Option<&[u8]>, end: bool) -> Result<()> {
        if self.is_gone() || self.answer.is_over() {
            return Ok(());
        }
        if self.pieces.is_closed() {
            return self.on_disconnect();
        }
        let mut frames = BytesMut::new();
        let piece = piece.unwrap_or_default();
        self.bytes_sent += piece.len();
        let mut status = self.answer.push(piece, &mut frames);
        if end {
            status = self.answer.finish(&mut frames).or(status);
        }
        if self.pieces.is_closed() {
            // The socket may have ended and dropped its conversations before this answer stored one.
            self.link.forget_conversation();
        }
        if frames.is_empty() {
            return Ok(());
        }
        self.link.gate().open().await;
        let piece = TurnPiece {
            frames: frames.freeze(),
            end: status,
            is_key_refused: status == Some(UNAUTHORIZED) && self.link.is_key_refused(),
        };
        if self.pieces.send(piece).await.is_err() {
            return self.on_disconnect();
        }
        match self.answer.is_unusable() {
            // The client has received an error, so the provider need not continue.
            true => {
                Err(Error::explain(ErrorType::ConnectionClosed, "the answer cannot be turned into frames").into_up())
            }
            false => Ok(()),
        }
    }

    fn set_head(&mut self, head: Box<ResponseHeader>) {
        if !head.status.is_informational() && self.written.is_none() {
            self.answer.on_head(&head);
            self.written = Some(head);
        }
    }
}

#[async_trait]
impl Session for TurnSession {
    fn req_header(&self) -> &RequestHeader {
        &self.head
    }

    fn req_header_mut(&mut self) -> &mut RequestHeader {
        &mut self.head
    }

    /// Returns `None`. The client's message is complete before the request begins. The gateway takes it from the link between the
    /// request and its socket.
    async fn read_body_bytes(&mut self) -> Result<Option<Bytes>> {
        Ok(None)
    }

    async fn drain_request_body(&mut self) -> Result<()> {
        Ok(())
    }

    async fn write_response_header(&mut self, head: Box<ResponseHeader>, end: bool) -> Result<()> {
        self.set_head(head);
        match end {
            true => self.write(None, true).await,
            false => Ok(()),
        }
    }

    async fn write_response_header_ref(&mut self, head: &ResponseHeader, end: bool) -> Result<()> {
        self.write_response_header(Box::new(head.clone()), end).await
    }

    async fn write_body(&mut self, data: Bytes, end: bool) -> Result<()> {
        self.write(Some(&data), end).await
    }

    async fn write_trailers(&mut self, _trailers: HeaderMap) -> Result<()> {
        Ok(())
    }

    async fn response_duplex_vec(&mut self, tasks: Vec<HttpTask>) -> Result<bool> {
        let mut end = false;
        let mut body = BytesMut::new();
        let mut failure = None;
        for task in tasks {
            end |= task.is_end();
            match task {
                HttpTask::Header(head, _) => self.set_head(head),
                HttpTask::Body(Some(data), _) => body.extend_from_slice(&data),
                HttpTask::Failed(error) => failure = Some(error),
                HttpTask::Body(None, _) | HttpTask::UpgradedBody(..) | HttpTask::Trailer(_) | HttpTask::Done => {}
            }
        }
        let is_complete = end && failure.is_none();
        self.write(Some(&body), is_complete).await?;
        match failure {
            Some(error) => Err(error),
            None => Ok(end),
        }
    }

    fn set_read_timeout(&mut self, _timeout: Option<Duration>) {}

    fn get_read_timeout(&self) -> Option<Duration> {
        None
    }

    // The socket itself limits the time of writes (`ClientConnection`).
    fn set_write_timeout(&mut self, _timeout: Option<Duration>) {}

    fn get_write_timeout(&self) -> Option<Duration> {
        None
    }

    fn set_total_drain_timeout(&mut self, _timeout: Option<Duration>) {}

    fn get_total_drain_timeout(&self) -> Option<Duration> {
        None
    }

    fn request_summary(&self) -> String {
        format!("{} {}", self.head.method, self.head.uri.path())
    }

    fn response_written(&self) -> Option<&ResponseHeader> {
        self.written.as_deref()
    }

    /// Ends an incomplete answer. The client gets an error in a frame, and the socket stays open.
    async fn shutdown(&mut self, _code: u32, _context: &str) {
        // An error means that the client has disconnected.
        let _ = self.write(None, true).await;
    }

    fn is_body_done(&mut self) -> bool {
        true
    }

    async fn finish(&mut self) -> Result<()> {
        self.write(None, true).await
    }

    fn is_body_empty(&mut self) -> bool {
        false
    }

    /// Waits for the end of the socket. The body is already complete, so there is nothing to read.
    async fn read_body_or_idle(&mut self, _no_body_expected: bool) -> Result<Option<Bytes>> {
        if !self.is_gone() {
            self.pieces.closed().await;
            if self.answer.is_over() {
                // The client disconnected after the last frame: the answer is complete if the provider ends it within this time.
                tokio::time::sleep(AFTER_LAST_FRAME).await;
            }
            self.on_disconnect()?;
        }
        std::future::pending().await
    }

    fn body_bytes_sent(&self) -> usize {
        self.bytes_sent
    }

    fn body_bytes_read(&self) -> usize {
        0
    }

    fn digest(&self) -> Option<&Digest> {
        None
    }

    fn digest_mut(&mut self) -> Option<&mut Digest> {
        None
    }

    fn client_addr(&self) -> Option<&SocketAddr> {
        self.peer.as_ref()?.peer_addr()
    }

    fn server_addr(&self) -> Option<&SocketAddr> {
        self.peer.as_ref()?.local_addr()
    }

    fn pseudo_raw_h1_request_header(&self) -> Bytes {
        Bytes::new()
    }

    fn enable_retry_buffering(&mut self) {}

    fn retry_buffer_truncated(&self) -> bool {
        false
    }

    fn get_retry_buffer(&self) -> Option<Bytes> {
        Some(Bytes::from_static(REPLAYED))
    }

    // The remaining methods are for protocols with custom messages, which a request on a socket does not have.

    async fn finish_custom(&mut self) -> Result<()> {
        Ok(())
    }

    fn take_custom_message_reader(&mut self) -> Option<Box<dyn Stream<Item = Result<Bytes>> + Unpin + Send + Sync>> {
        None
    }

    fn restore_custom_message_reader(
        &mut self,
        _reader: Box<dyn Stream<Item = Result<Bytes>> + Unpin + Send + Sync>,
    ) -> Result<()> {
        Error::e_explain(ErrorType::InternalError, "a request on a socket has no custom messages")
    }

    fn take_custom_message_writer(&mut self) -> Option<Box<dyn CustomMessageWrite>> {
        None
    }

    fn restore_custom_message_writer(&mut self, _writer: Box<dyn CustomMessageWrite>) -> Result<()> {
        Error::e_explain(ErrorType::InternalError, "a request on a socket has no custom messages")
    }
}
