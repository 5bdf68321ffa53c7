//! A client of Responses over WebSocket (RFC 6455): it sends exactly the frames that a test gives it, and checks the form of every
//! frame that it receives.

use std::net::SocketAddr;

use serde_json::Value as Json;

use super::client::{Client, Response};
use super::request::{Request, Upload};

/// The path of the handshake.
pub(crate) const PATH: &str = "/v1/responses";
/// The first bytes of complete messages.
pub(crate) const TEXT: u8 = 0x81;
pub(crate) const BINARY: u8 = 0x82;
pub(crate) const CLOSE: u8 = 0x88;
pub(crate) const PING: u8 = 0x89;
pub(crate) const PONG: u8 = 0x8a;
/// The first bytes of the first, a middle and the last fragment of a text.
pub(crate) const TEXT_BEGIN: u8 = 0x01;
pub(crate) const MIDDLE: u8 = 0x00;
pub(crate) const LAST: u8 = 0x80;

/// The code of a close frame without a code.
pub(crate) const NO_CODE: u16 = 1005;

/// The example of RFC 6455, section 1.3: the key of a handshake, and its digest.
const NONCE: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";
const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];
const MASKED: u8 = 0x80;
/// The types of the events that end a response.
const TERMINAL: [&str; 4] = ["response.completed", "response.incomplete", "response.failed", "error"];

/// A handshake that is served, as Codex and the SDKs send it.
pub(crate) fn handshake(key: &str) -> Request {
    Request::get(PATH)
        .header("connection", "Upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", NONCE)
        .header("authorization", &format!("Bearer {key}"))
        .header("sec-websocket-extensions", "permessage-deflate; client_max_window_bits")
}

/// The bytes of a masked frame.
pub(crate) fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = frame_head(first, payload.len() as u64);
    bytes.extend(payload.iter().zip(MASK.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    bytes
}

/// The bytes of a masked frame before its payload.
pub(crate) fn frame_head(first: u8, length: u64) -> Vec<u8> {
    let mut bytes = unmasked_head(first, length);
    bytes[1] |= MASKED;
    bytes.extend_from_slice(&MASK);
    bytes
}

/// The bytes of a frame without a mask, which no client may send.
pub(crate) fn unmasked_frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = unmasked_head(first, payload.len() as u64);
    bytes.extend_from_slice(payload);
    bytes
}

fn unmasked_head(first: u8, length: u64) -> Vec<u8> {
    let mut bytes = vec![first];
    match (u8::try_from(length), u16::try_from(length)) {
        (Ok(short), _) if short < 126 => bytes.push(short),
        (_, Ok(medium)) => {
            bytes.push(126);
            bytes.extend_from_slice(&medium.to_be_bytes());
        }
        _ => {
            bytes.push(127);
            bytes.extend_from_slice(&length.to_be_bytes());
        }
    }
    bytes
}

/// The payload of a close frame.
pub(crate) fn close_payload(code: u16, reason: &str) -> Vec<u8> {
    [&code.to_be_bytes(), reason.as_bytes()].concat()
}

/// A message of the server, or the end of the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    Text(String),
    Ping(Vec<u8>),
    Pong(Vec<u8>),
    /// The code and the reason.
    Close(u16, String),
    /// The connection has ended, with or without an error.
    End,
}

/// An open socket.
pub(crate) struct WebSocket {
    client: Client,
    /// The fields of the answer to the handshake.
    pub(crate) headers: Vec<(String, String)>,
}

impl WebSocket {
    /// Opens a socket with this key.
    #[track_caller]
    pub(crate) fn open(gateway: SocketAddr, key: &str) -> WebSocket {
        WebSocket::open_with(gateway, &handshake(key))
    }

    /// Opens a socket with this handshake.
    #[track_caller]
    pub(crate) fn open_with(gateway: SocketAddr, handshake: &Request) -> WebSocket {
        WebSocket::try_open(Client::connect(gateway), handshake)
            .unwrap_or_else(|answer| panic!("no socket: {} {}", answer.status, answer.text()))
    }

    /// Opens a socket over this connection.
    ///
    /// # Errors
    /// The answer of a server that refuses.
    #[track_caller]
    pub(crate) fn try_open(mut client: Client, handshake: &Request) -> Result<WebSocket, Response> {
        client.write(&handshake.head_bytes(Upload::Length));
        WebSocket::accepted(client)
    }

    /// Reads the answer to a handshake that was sent over this connection.
    ///
    /// # Errors
    /// The answer of a server that refuses.
    #[track_caller]
    pub(crate) fn accepted(mut client: Client) -> Result<WebSocket, Response> {
        let head = client.head_to("GET");
        if head.status != 101 {
            return Err(client.rest(head));
        }
        let is = |name: &str, value: &str| head.header(name).is_some_and(|found| found.eq_ignore_ascii_case(value));
        assert!(is("upgrade", "websocket") && is("connection", "upgrade"), "{head:?}");
        assert_eq!(head.header("sec-websocket-accept"), Some(ACCEPT), "{head:?}");
        for name in ["sec-websocket-extensions", "sec-websocket-protocol", "content-length"] {
            assert_eq!(head.header(name), None, "{head:?}");
        }
        let headers = head.headers;
        Ok(WebSocket { client, headers })
    }

    /// Sends bytes.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.client.write(bytes);
    }

    /// Sends one frame.
    pub(crate) fn send_frame(&mut self, first: u8, payload: &[u8]) {
        self.write(&frame(first, payload));
    }

    /// Sends a message in one frame.
    pub(crate) fn send(&mut self, message: &Json) {
        self.send_text(&message.to_string());
    }

    /// Sends a text in one frame.
    pub(crate) fn send_text(&mut self, text: &str) {
        self.send_frame(TEXT, text.as_bytes());
    }

    /// Sends a close frame.
    pub(crate) fn send_close(&mut self, code: u16) {
        self.send_frame(CLOSE, &close_payload(code, ""));
    }

    /// Reads the next message. weir sends each in one frame, without a mask.
    #[track_caller]
    pub(crate) fn read(&mut self) -> Message {
        self.try_read().unwrap_or(Message::End)
    }

    #[track_caller]
    fn try_read(&mut self) -> Option<Message> {
        let head = self.client.take(2)?;
        assert_eq!(head[1] & MASKED, 0, "a server's frame has no mask");
        let length = match head[1] {
            126 => {
                let length = self.number(2)?;
                assert!(length > 125, "a length has its shortest form");
                length
            }
            127 => {
                let length = self.number(8)?;
                assert!(length > usize::from(u16::MAX), "a length has its shortest form");
                length
            }
            short => usize::from(short),
        };
        let payload = self.client.take(length)?;
        Some(match head[0] {
            TEXT => Message::Text(String::from_utf8(payload).expect("a text is UTF-8")),
            PING => Message::Ping(payload),
            PONG => Message::Pong(payload),
            CLOSE => {
                let (code, reason) = payload.split_at(payload.len().min(2));
                let code = code.try_into().map_or(NO_CODE, u16::from_be_bytes);
                Message::Close(code, String::from_utf8(reason.to_vec()).expect("a reason is UTF-8"))
            }
            other => panic!("a frame that begins with {other:#04x}"),
        })
    }

    fn number(&mut self, bytes: usize) -> Option<usize> {
        let read = self.client.take(bytes)?;
        Some(read.iter().fold(0, |number, byte| (number << 8) | usize::from(*byte)))
    }

    /// Reads the next message that is neither a ping nor a pong. Pings are answered.
    #[track_caller]
    pub(crate) fn message(&mut self) -> Message {
        loop {
            match self.read() {
                Message::Ping(payload) => self.send_frame(PONG, &payload),
                Message::Pong(_) => {}
                message => return message,
            }
        }
    }

    /// Reads the next event.
    #[track_caller]
    pub(crate) fn event(&mut self) -> Json {
        match self.message() {
            Message::Text(text) => serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}")),
            other => panic!("no event but {other:?}"),
        }
    }

    /// Reads the events of one response of the lane that is answered alone.
    #[track_caller]
    pub(crate) fn turn(&mut self) -> Turn {
        Turn {
            events: self.events_to_ends(1),
        }
    }

    /// Sends a message and reads the response.
    #[track_caller]
    pub(crate) fn ask(&mut self, message: &Json) -> Turn {
        self.send(message);
        self.turn()
    }

    /// Reads the events of all lanes until so many of their responses have ended.
    #[track_caller]
    pub(crate) fn events_to_ends(&mut self, ends: usize) -> Vec<Json> {
        let mut events = Vec::new();
        let mut ended = 0;
        while ended < ends {
            let event = self.event();
            ended += usize::from(is_terminal(&event));
            events.push(event);
        }
        events
    }

    /// Waits until the server has read everything that was sent so far; returns the events that come meanwhile.
    #[track_caller]
    pub(crate) fn settle(&mut self) -> Vec<Json> {
        const MARK: &[u8] = b"everything so far";
        self.send_frame(PING, MARK);
        let mut events = Vec::new();
        loop {
            match self.read() {
                Message::Pong(payload) if payload == MARK => return events,
                Message::Ping(payload) => self.send_frame(PONG, &payload),
                Message::Text(text) => events.push(serde_json::from_str(&text).expect("an event is JSON")),
                other => panic!("no pong but {other:?}"),
            }
        }
    }

    /// Reads the next message, which must end the socket: the code of the close frame, or `None` for an end without one.
    #[track_caller]
    pub(crate) fn close_code(&mut self) -> Option<u16> {
        match self.message() {
            Message::Close(code, _) => Some(code),
            Message::End => None,
            other => panic!("no end but {other:?}"),
        }
    }

    /// Reads to the end of the connection, whatever comes before.
    #[track_caller]
    pub(crate) fn read_to_end(&mut self) {
        while self.read() != Message::End {}
    }

    /// Ends the connection with a reset.
    pub(crate) fn reset(self) {
        self.client.reset();
    }

    /// Ends the connection's direction to the server.
    pub(crate) fn half_close(&mut self) {
        self.client.half_close();
    }
}

/// The events of one response.
#[derive(Clone, Debug)]
pub(crate) struct Turn {
    pub(crate) events: Vec<Json>,
}

impl Turn {
    /// The events of one lane. `None` is the lane without a name.
    pub(crate) fn of_lane(events: &[Json], lane: Option<&str>) -> Turn {
        let is_of_lane = |event: &&Json| event.get("stream_id").and_then(Json::as_str) == lane;
        Turn {
            events: events.iter().filter(is_of_lane).cloned().collect(),
        }
    }

    /// The event that ends the response.
    pub(crate) fn last(&self) -> &Json {
        self.events.last().unwrap_or(&Json::Null)
    }

    /// The id of the response.
    #[track_caller]
    pub(crate) fn id(&self) -> String {
        let id = self.last()["response"]["id"].as_str();
        id.unwrap_or_else(|| panic!("no response: {}", self.last())).to_owned()
    }

    /// The text of the deltas.
    pub(crate) fn text(&self) -> String {
        let deltas = self
            .events
            .iter()
            .filter(|event| event["type"] == "response.output_text.delta");
        deltas.filter_map(|event| event["delta"].as_str()).collect()
    }

    /// The items of the output.
    #[track_caller]
    pub(crate) fn output(&self) -> Vec<Json> {
        let output = self.last()["response"]["output"].as_array();
        output.unwrap_or_else(|| panic!("no output: {}", self.last())).clone()
    }

    /// Checks that the response is complete.
    #[track_caller]
    pub(crate) fn completed(self) -> Turn {
        assert_eq!(self.last()["type"], "response.completed", "{}", self.last());
        self
    }

    /// Checks that nothing but an error came, with this status and this code, and returns the event.
    #[track_caller]
    pub(crate) fn refused(&self, status: u16, code: &str) -> Json {
        let [event] = self.events.as_slice() else {
            panic!("no refusal: {:?}", self.events);
        };
        assert_eq!(event["type"], "error", "{event}");
        assert_eq!(event["status"], status, "{event}");
        assert_eq!(event["error"]["code"], code, "{event}");
        let message = event["error"]["message"].as_str();
        assert!(message.is_some_and(|message| !message.is_empty()), "{event}");
        event.clone()
    }
}

/// Whether an event ends a response.
pub(crate) fn is_terminal(event: &Json) -> bool {
    event["type"].as_str().is_some_and(|name| TERMINAL.contains(&name))
}
