//! Opens a WebSocket to a provider: connects as for a POST, and sends the handshake.

use std::{io, net::TcpStream as SocketHandle, sync::Arc, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::{Buf, BytesMut};
use pingora::{
    Error, ErrorType,
    connectors::{ConnectorOptions, TransportConnector},
    protocols::Stream,
    server::configuration::ServerConf,
    upstreams::peer::HttpPeer,
};
use rand::RngExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{
    domain::wire::websocket::{HandshakeAnswer, accept_key},
    gateway::{attempt::deadline, drain::Drain},
    telemetry::metrics::HandshakeRefusal,
};

/// The maximum length of the head of the answer to a handshake, in bytes.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// The end of the head of an answer.
const HEAD_END: &[u8] = b"\r\n\r\n";

/// An open WebSocket.
pub(super) struct OpenedLine {
    pub connection: Stream,
    /// The bytes that were read after the answer to the handshake.
    pub ahead: BytesMut,
    /// The handle of the connection, which the time limits of attempts shut down.
    pub handle: Arc<SocketHandle>,
}

/// The reason why no WebSocket was opened.
pub(super) enum OpeningFailure {
    /// No connection was established.
    Connect(Box<Error>),
    /// The provider refuses or limits the credential. `ahead` is what was read of its answer.
    Credential(HandshakeRefusal, OpenedLine),
    /// The provider serves no WebSocket here, or not now.
    Refused(HandshakeRefusal),
}

/// Connects to providers for WebSockets, with the certificates and limits of POSTs.
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

    /// Opens a WebSocket. `head` is the handshake's request line and headers without its key. The connection has the time limit
    /// of the peer, and the handshake has `timeout`.
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

/// Sends the handshake and reads the head of its answer. Returns the length of the head, and the bytes that have been read.
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
            return Err(io::ErrorKind::InvalidData.into());
        }
        if connection.read_buf(&mut read).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;

    use super::*;

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
