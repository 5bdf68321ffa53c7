//! The connection of a WebSocket to a provider. It is opened like the connection for a POST, and the handshake is sent on it.
//! After that, it carries frames. This module answers the provider's pings.

use std::{
    future::poll_fn,
    io::{self, ErrorKind},
    mem::MaybeUninit,
    net::TcpStream as SocketHandle,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::{Buf, Bytes, BytesMut};
use pingora::{
    Error, ErrorType,
    connectors::{ConnectorOptions, TransportConnector},
    protocols::Stream,
    server::configuration::ServerConf,
    upstreams::peer::HttpPeer,
};
use rand::RngExt;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};

use crate::{
    domain::wire::{
        responses_socket::server_frame::EVENT_BYTES_MAX,
        websocket::{
            ControlOpcode, FrameDecoder, FrameEvent, FrameFault, FrameLimits, FrameRole, HandshakeAnswer, MaskedText,
            MessageKind, accept_key, write_close, write_control,
        },
    },
    gateway::{attempt::deadline, drain::Drain},
    telemetry::metrics::HandshakeRefusal,
};

/// The maximum number of frames of a message.
const FRAGMENTS_MAX: u32 = 4096;

/// The maximum number of bytes that are read at once.
const READ_BYTES: usize = 16 * 1024;

/// The maximum number of bytes of a request that are masked at once.
const WRITE_BYTES: usize = 16 * 1024;

/// The fault of a provider that sends a binary message.
const BINARY: FrameFault = FrameFault {
    code: 1003,
    reason: "messages must be text",
};

/// An event on the connection.
#[derive(Debug)]
pub(super) enum LineEvent {
    /// A complete text message.
    Message(Vec<u8>),
    /// The provider closes the WebSocket. The value is the close code; `None` if the provider sends none.
    Closed(Option<u16>),
    /// The provider has violated the protocol.
    Fault(FrameFault),
    /// The connection has ended.
    Ended,
}

/// The state of the bytes that were written to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LineWriteState {
    /// All bytes have been passed to the system.
    Flushed,
    /// Some bytes may still be in the connection's buffers.
    Unflushed,
    /// A write has failed. Nothing more is written, but bytes from the provider are still read.
    Broken,
}

/// The connection of a WebSocket to a provider.
pub(super) struct LineStream {
    connection: Stream,
    inbound: BytesMut,
    decoder: FrameDecoder,
    /// The message that is arriving.
    message: Vec<u8>,
    /// The bytes of frames that are ready to be written.
    outbound: BytesMut,
    /// The request that is not completely in `outbound` yet; `None` if no request is being sent.
    request: Option<MaskedText>,
    /// The payload of the most recent ping, until it is answered. It replaces the payloads of earlier pings.
    pong: Option<Bytes>,
    /// The pings and the close frame that weir itself sends and that have not been written yet.
    controls: BytesMut,
    written: LineWriteState,
    has_received: bool,
}

impl LineStream {
    /// Creates the stream of a connection whose handshake has been accepted. `ahead` contains the bytes that were read after the
    /// answer to the handshake.
    pub(super) fn new(connection: Stream, ahead: BytesMut) -> Self {
        let limits = FrameLimits {
            message_bytes_max: EVENT_BYTES_MAX as u64,
            fragments_max: FRAGMENTS_MAX,
        };
        Self {
            connection,
            inbound: ahead,
            decoder: FrameDecoder::new(FrameRole::Client, limits),
            message: Vec::new(),
            outbound: BytesMut::new(),
            request: None,
            pong: None,
            controls: BytesMut::new(),
            written: LineWriteState::Flushed,
            has_received: false,
        }
    }

    /// Begins to send a message after the frames that are being written. The previous message must have been sent.
    pub(super) fn send(&mut self, parts: Vec<Bytes>) {
        self.request = Some(MaskedText::new(parts, new_mask()));
    }

    /// Whether some bytes to be sent have not been passed to the connection, possibly because a write failed.
    pub(super) fn is_sending(&self) -> bool {
        self.request.is_some() || !self.outbound.is_empty() || self.written == LineWriteState::Broken
    }

    /// Adds a ping to the frames to be written.
    pub(super) fn queue_ping(&mut self) {
        write_control(&mut self.controls, ControlOpcode::Ping, b"", Some(new_mask()));
    }

    /// Adds a close frame to the frames to be written. No frame may be added after it.
    pub(super) fn queue_close(&mut self, code: u16, reason: &str) {
        write_close(&mut self.controls, code, reason, Some(new_mask()));
    }

    /// Returns whether the provider has sent anything since the last call.
    pub(super) fn take_received(&mut self) -> bool {
        std::mem::take(&mut self.has_received)
    }

    /// Writes the waiting frames as far as possible, and returns the next event.
    pub(super) fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<LineEvent> {
        loop {
            // Bytes that cannot be written now are written at the next call: the connection wakes the task when it accepts more.
            let _ = self.poll_write(cx);
            match self.decoder.next_event(&mut self.inbound) {
                Ok(Some(event)) => {
                    if let Some(event) = self.on_frame(event) {
                        return Poll::Ready(event);
                    }
                    continue;
                }
                Err(fault) => return Poll::Ready(LineEvent::Fault(fault)),
                Ok(None) => {}
            }
            if self.inbound.is_empty() {
                // An idle WebSocket uses no memory for received bytes.
                self.inbound = BytesMut::new();
            }
            let mut space = [MaybeUninit::uninit(); READ_BYTES];
            let mut read = ReadBuf::uninit(&mut space);
            match ready!(Pin::new(&mut self.connection).poll_read(cx, &mut read)) {
                Ok(()) if !read.filled().is_empty() => {
                    self.inbound.extend_from_slice(read.filled());
                    self.has_received = true;
                }
                Ok(()) | Err(_) => return Poll::Ready(LineEvent::Ended),
            }
        }
    }

    /// Handles a part of a frame. Returns the event that this part completes; `None` if it completes none.
    fn on_frame(&mut self, event: FrameEvent) -> Option<LineEvent> {
        match event {
            FrameEvent::MessageStart {
                kind: MessageKind::Binary,
                ..
            } => return Some(LineEvent::Fault(BINARY)),
            FrameEvent::MessageStart {
                kind: MessageKind::Text,
                ..
            } => self.message.clear(),
            FrameEvent::Payload(piece) => self.message.extend_from_slice(&piece),
            FrameEvent::MessageEnd => return Some(LineEvent::Message(std::mem::take(&mut self.message))),
            FrameEvent::Ping(payload) => self.pong = Some(payload),
            FrameEvent::Pong(_) => {}
            FrameEvent::Close(close) => return Some(LineEvent::Closed(close.map(|(code, _)| code))),
        }
        None
    }

    /// Writes the waiting frames. Ready once all of them have been passed to the system, or once nothing more can be written.
    pub(super) fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.written == LineWriteState::Broken {
            return Poll::Ready(());
        }
        if ready!(self.poll_write_frames(cx)).is_err() {
            self.written = LineWriteState::Broken;
            self.outbound = BytesMut::new();
            self.request = None;
        }
        Poll::Ready(())
    }

    fn poll_write_frames(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            if self.outbound.is_empty() {
                self.refill();
            }
            if self.outbound.is_empty() {
                break;
            }
            match ready!(Pin::new(&mut self.connection).poll_write(cx, &self.outbound))? {
                0 => return Poll::Ready(Err(ErrorKind::WriteZero.into())),
                count => {
                    self.outbound.advance(count);
                    self.written = LineWriteState::Unflushed;
                }
            }
        }
        if self.written == LineWriteState::Unflushed {
            ready!(Pin::new(&mut self.connection).poll_flush(cx))?;
            self.written = LineWriteState::Flushed;
        }
        Poll::Ready(Ok(()))
    }

    /// Moves the next bytes to be sent into `outbound`, which is empty. Control frames wait for the end of a request's frame.
    fn refill(&mut self) {
        self.outbound = BytesMut::new();
        if let Some(mut request) = self.request.take() {
            request.write_next(&mut self.outbound, WRITE_BYTES);
            if !request.is_written() {
                self.request = Some(request);
                return;
            }
        }
        if let Some(payload) = self.pong.take() {
            write_control(&mut self.outbound, ControlOpcode::Pong, &payload, Some(new_mask()));
        }
        let controls = std::mem::take(&mut self.controls);
        self.outbound.extend_from_slice(&controls);
    }

    /// Writes the waiting frames. Then reads and discards the provider's bytes until the provider closes the connection. If bytes
    /// were left unread, the connection would be reset, and the provider might lose the close frame. The caller limits the time.
    pub(super) async fn close(&mut self) {
        poll_fn(|cx| self.poll_write(cx)).await;
        loop {
            match poll_fn(|cx| self.poll_event(cx)).await {
                LineEvent::Message(_) | LineEvent::Closed(_) => {}
                LineEvent::Fault(_) | LineEvent::Ended => return,
            }
        }
    }
}

/// Returns a random mask for a frame. The author of the payload must not be able to predict it (RFC 6455 section 5.3).
fn new_mask() -> [u8; 4] {
    rand::rng().random()
}

/// The maximum length of the head of the answer to a handshake, in bytes.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// The end of the head of an answer.
const HEAD_END: &[u8] = b"\r\n\r\n";

/// An open WebSocket.
pub(super) struct OpenedLine {
    pub connection: Stream,
    /// The bytes that were read after the answer to the handshake.
    pub ahead: BytesMut,
    /// The handle with which the time limits of attempts shut down the connection.
    pub handle: Arc<SocketHandle>,
}

/// The reason why no WebSocket was opened.
pub(super) enum OpeningFailure {
    /// No connection was established.
    Connect(Box<Error>),
    /// The provider refuses the credential or limits the credential's rate. `ahead` contains the part of the provider's answer
    /// that has been read.
    Credential(HandshakeRefusal, OpenedLine),
    /// The provider does not serve WebSockets at this place, or does not serve them at the moment.
    Refused(HandshakeRefusal),
}

/// Opens the connections for WebSockets to providers, with the same certificates and limits as for POSTs.
pub(super) struct LineConnector {
    connector: TransportConnector,
    /// Aborts handshakes when the drain ends.
    drain: Drain,
}

impl LineConnector {
    /// Creates a connector with the options of Pingora's proxy.
    pub(super) fn new(conf: &ServerConf, drain: Drain) -> Self {
        Self {
            connector: TransportConnector::new(Some(ConnectorOptions::from_server_conf(conf))),
            drain,
        }
    }

    /// Opens a WebSocket. `head` is the handshake's request line and headers, without `sec-websocket-key`. The peer's options
    /// limit the time for connecting; `timeout` limits the time for the handshake.
    pub(super) async fn open(
        &self,
        peer: &HttpPeer,
        head: &[u8],
        timeout: Duration,
    ) -> Result<OpenedLine, OpeningFailure> {
        let mut connection = self.connector.new_stream(peer).await.map_err(OpeningFailure::Connect)?;
        let digest = connection.get_proxy_digest();
        let handle = digest.as_deref().and_then(deadline::handle_in);
        let Some(handle) = handle else {
            let context = "the connection has no handle";
            return Err(OpeningFailure::Connect(Error::explain(
                ErrorType::InternalError,
                context,
            )));
        };
        let key = STANDARD.encode(rand::rng().random::<[u8; 16]>());
        let answered = tokio::select! {
            answered = tokio::time::timeout(timeout, exchange(&mut connection, head, &key)) => answered,
            () = self.drain.expired() => {
                let context = "the process stops";
                return Err(OpeningFailure::Connect(Error::explain(ErrorType::ConnectError, context)));
            }
        };
        let (length, mut ahead) = match answered {
            Err(_) => return Err(OpeningFailure::Refused(HandshakeRefusal::Late)),
            Ok(Err(_)) => return Err(OpeningFailure::Refused(HandshakeRefusal::Broken)),
            Ok(Ok(answered)) => answered,
        };
        let accept = accept_key(&key).unwrap_or_default();
        match HandshakeAnswer::read(ahead.get(..length).unwrap_or_default(), &accept) {
            HandshakeAnswer::Accepted => {
                ahead.advance(length);
                Ok(OpenedLine {
                    connection,
                    ahead,
                    handle,
                })
            }
            HandshakeAnswer::Refused(status) => Err(match HandshakeRefusal::from_status(status) {
                why @ (HandshakeRefusal::Credential | HandshakeRefusal::Limited) => {
                    let answer = OpenedLine {
                        connection,
                        ahead,
                        handle,
                    };
                    OpeningFailure::Credential(why, answer)
                }
                why => OpeningFailure::Refused(why),
            }),
            HandshakeAnswer::Invalid => Err(OpeningFailure::Refused(HandshakeRefusal::Other)),
        }
    }
}

/// Sends the handshake and reads the head of the answer. Returns the length of the head in bytes, and all bytes that have been
/// read.
async fn exchange(connection: &mut Stream, head: &[u8], key: &str) -> io::Result<(usize, BytesMut)> {
    let fields = format!(
        "connection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: {key}\r\n\r\n"
    );
    connection.write_all(&[head, fields.as_bytes()].concat()).await?;
    connection.flush().await?;
    let mut read = BytesMut::new();
    loop {
        if let Some(end) = memchr::memmem::find(&read, HEAD_END) {
            return Ok((end + HEAD_END.len(), read));
        }
        if read.len() > HEAD_BYTES_MAX {
            return Err(ErrorKind::InvalidData.into());
        }
        if connection.read_buf(&mut read).await? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{DuplexStream, duplex};

    use super::*;

    fn pair(pipe_bytes: usize) -> (LineStream, DuplexStream) {
        let (ours, theirs) = duplex(pipe_bytes);
        (LineStream::new(Box::new(ours), BytesMut::new()), theirs)
    }

    async fn next(line: &mut LineStream) -> LineEvent {
        poll_fn(|cx| line.poll_event(cx)).await
    }

    /// Returns the events that a server decodes from the bytes that it has received.
    fn decoded(bytes: &[u8]) -> Vec<FrameEvent> {
        let limits = FrameLimits {
            message_bytes_max: 1 << 20,
            fragments_max: 1,
        };
        let mut decoder = FrameDecoder::new(FrameRole::Server, limits);
        let mut bytes = BytesMut::from(bytes);
        std::iter::from_fn(|| decoder.next_event(&mut bytes).expect("valid frames")).collect()
    }

    #[tokio::test]
    async fn messages_in_fragments_are_gathered_and_pings_between_them_are_answered() {
        let (mut line, mut provider) = pair(1 << 16);
        provider
            .write_all(b"\x01\x02{\"\x89\x01p\x80\x02\"}\x81\x01x")
            .await
            .expect("room");
        for expected in [&b"{\"\"}"[..], b"x"] {
            let event = next(&mut line).await;
            assert!(
                matches!(&event, LineEvent::Message(text) if text == expected),
                "{event:?}"
            );
        }
        provider.shutdown().await.expect("shut down");
        line.close().await;
        drop(line);
        let mut received = Vec::new();
        provider.read_to_end(&mut received).await.expect("read");
        assert_eq!(decoded(&received), [FrameEvent::Pong(Bytes::from_static(b"p"))]);
    }

    #[tokio::test]
    async fn a_pong_waits_for_the_end_of_a_request_that_is_being_written() {
        let (mut line, mut provider) = pair(8);
        line.send(vec![
            Bytes::from_static(b"a request of more than "),
            Bytes::from_static(b"8 bytes"),
        ]);
        assert!(line.is_sending());
        provider.write_all(b"\x89\x01p").await.expect("room");
        let read = async {
            let mut received = vec![0; 6 + 30 + 7];
            provider.read_exact(&mut received).await.expect("read");
            received
        };
        let received = tokio::select! {
            event = next(&mut line) => panic!("{event:?}"),
            received = read => received,
        };
        let events = decoded(&received);
        let text: Vec<u8> = events.iter().fold(Vec::new(), |text, event| match event {
            FrameEvent::Payload(piece) => [&text[..], &piece[..]].concat(),
            _ => text,
        });
        assert_eq!(text, b"a request of more than 8 bytes");
        assert_eq!(events.last(), Some(&FrameEvent::Pong(Bytes::from_static(b"p"))));
        assert!(!line.is_sending());
    }

    #[tokio::test]
    async fn what_the_provider_sent_before_it_stopped_reading_is_still_read() {
        let (mut line, mut provider) = pair(1 << 10);
        provider.write_all(b"\x88\x02\x03\xF1").await.expect("room");
        drop(provider);
        line.send(vec![Bytes::from(vec![b'x'; 1 << 12])]);
        let event = next(&mut line).await;
        assert!(matches!(event, LineEvent::Closed(Some(1009))), "{event:?}");
        assert!(line.is_sending(), "the request was not sent");
    }

    #[tokio::test]
    async fn a_message_that_is_not_text_and_a_masked_frame_are_faults() {
        for frame in [&b"\x82\x01x"[..], b"\x81\x81\0\0\0\0x"] {
            let (mut line, mut provider) = pair(64);
            provider.write_all(frame).await.expect("room");
            let event = next(&mut line).await;
            assert!(matches!(event, LineEvent::Fault(_)), "{event:?}");
        }
        let (mut line, provider) = pair(64);
        drop(provider);
        assert!(matches!(next(&mut line).await, LineEvent::Ended));
    }

    #[tokio::test]
    async fn the_head_of_the_answer_is_read_to_its_end_and_what_follows_it_is_kept() {
        let (ours, mut theirs) = duplex(1 << 12);
        let mut connection: Stream = Box::new(ours);
        for piece in ["HTTP/1.1 101 x\r\n", "a: b\r\n\r", "\n\u{1}"] {
            theirs.write_all(piece.as_bytes()).await.expect("room");
        }
        let head = b"GET /v1/responses HTTP/1.1\r\nhost: h\r\n";
        let (length, read) = exchange(&mut connection, head, "key").await.expect("an answer");
        assert_eq!(&read[..length], b"HTTP/1.1 101 x\r\na: b\r\n\r\n");
        assert_eq!(&read[length..], b"\x01");
        drop(connection);
        let mut sent = String::new();
        theirs.read_to_string(&mut sent).await.expect("a handshake");
        let expected = "GET /v1/responses HTTP/1.1\r\nhost: h\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\
                        sec-websocket-version: 13\r\nsec-websocket-key: key\r\n\r\n";
        assert_eq!(sent, expected);
    }

    #[tokio::test]
    async fn a_head_without_an_end_is_no_answer() {
        for answer in [vec![b'a'; HEAD_BYTES_MAX + 1], b"HTTP/1.1 101 x\r\n".to_vec()] {
            let (ours, mut theirs) = duplex(1 << 20);
            let mut connection: Stream = Box::new(ours);
            theirs.write_all(&answer).await.expect("room");
            theirs.shutdown().await.expect("shut down");
            exchange(&mut connection, b"", "key").await.expect_err("no answer");
        }
    }
}
