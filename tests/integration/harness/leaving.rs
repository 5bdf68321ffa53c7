//! Clients that leave in the middle of an answer, over HTTP/1.1 and over HTTP/2 with prior knowledge.

use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::runtime::Runtime;

use super::client::{Client, Head, Piece};
use super::request::{Request, Upload};

/// How a client leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// HTTP/1.1: the connection is closed.
    Closed,
    /// HTTP/1.1: the connection is reset.
    Reset,
    /// HTTP/2: the connection is closed.
    H2Closed,
    /// HTTP/2: the connection is reset.
    H2Reset,
    /// HTTP/2: the stream alone is reset.
    H2Cancelled,
}

pub(crate) const ALL_WAYS: [Way; 5] = [Way::Closed, Way::Reset, Way::H2Closed, Way::H2Reset, Way::H2Cancelled];

impl Way {
    pub(crate) fn is_h2(self) -> bool {
        matches!(self, Way::H2Closed | Way::H2Reset | Way::H2Cancelled)
    }
}

/// A client that has asked and will leave.
pub(crate) struct Visit {
    way: Way,
    wire: Wire,
    /// The body as far as it was read.
    pub(crate) read: Vec<u8>,
}

enum Wire {
    H1 { client: Client, head: Option<Head> },
    H2(Box<H2>),
}

struct H2 {
    answer: Option<Incoming>,
    sender: SendRequest<Full<Bytes>>,
    runtime: Runtime,
}

impl Visit {
    /// Connects, asks, and reads the answer's head.
    #[track_caller]
    pub(crate) fn begin(address: SocketAddr, request: &Request, way: Way) -> Visit {
        let wire = if way.is_h2() {
            Wire::H2(Box::new(H2::ask(address, request, way)))
        } else {
            let mut client = Client::connect(address);
            client.write(&request.bytes(Upload::Length));
            let head = client.head_to("POST");
            Wire::H1 {
                client,
                head: Some(head),
            }
        };
        Visit {
            way,
            wire,
            read: Vec::new(),
        }
    }

    /// Reads on until `bytes` of the body have come in all, or it ends.
    pub(crate) fn read_to(&mut self, bytes: usize) {
        while self.read.len() < bytes {
            let Some(more) = self.wire.piece() else { return };
            self.read.extend_from_slice(&more);
        }
    }

    /// Leaves.
    pub(crate) fn leave(self) -> Vec<u8> {
        match (self.wire, self.way) {
            (Wire::H1 { client, .. }, Way::Reset) => client.reset(),
            (Wire::H2(h2), Way::H2Cancelled) => h2.cancel(),
            // Dropping the socket closes it, or resets it where it was told to.
            (Wire::H1 { .. } | Wire::H2(_), _) => {}
        }
        self.read
    }
}

impl Wire {
    fn piece(&mut self) -> Option<Vec<u8>> {
        match self {
            Wire::H1 { client, head } => match client.piece(head.as_mut()?) {
                Piece::Data(data) => Some(data),
                Piece::End | Piece::Cut => None,
            },
            Wire::H2(h2) => {
                let answer = h2.answer.as_mut()?;
                let frame = h2.runtime.block_on(answer.frame())?.ok()?;
                Some(frame.into_data().unwrap_or_default().to_vec())
            }
        }
    }
}

impl H2 {
    fn ask(address: SocketAddr, request: &Request, way: Way) -> H2 {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let (sender, answer) = runtime.block_on(async {
            let socket = tokio::net::TcpStream::connect(address).await.unwrap();
            if way == Way::H2Reset {
                socket.set_zero_linger().unwrap();
            }
            let (mut sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(socket))
                .await
                .unwrap();
            tokio::spawn(connection);
            let answer = sender.send_request(asking(request)).await.unwrap();
            (sender, answer.into_body())
        });
        H2 {
            answer: Some(answer),
            sender,
            runtime,
        }
    }

    /// Resets the stream. A further exchange shows that the reset has gone out, and that the connection lives on.
    fn cancel(mut self) {
        self.answer = None;
        let next = asking(&Request::get("/nowhere"));
        let answer = self.runtime.block_on(self.sender.send_request(next)).unwrap();
        assert_eq!(answer.status(), 404);
    }
}

fn asking(request: &Request) -> hyper::Request<Full<Bytes>> {
    let mut builder = hyper::Request::builder()
        .method(request.method.as_str())
        .uri(format!("http://weir.test{}", request.target));
    for (name, value) in request.headers.iter().filter(|(name, _)| name != "host") {
        builder = builder.header(name, value);
    }
    builder.body(Full::new(Bytes::from(request.body.clone()))).unwrap()
}
