//! A server and a client that send each message back, with weir's codec for the frames.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::BytesMut;
use weir::parts::websocket::{
    ControlOpcode, FrameDecoder, FrameEvent, FrameLimits, FrameRole, MessageKind, accept_key, mask_in_place,
    write_close, write_control, write_message_header,
};

use crate::harness::client::find;

/// The largest message of the cases has 16 MiB, the one with the most fragments has 65,536.
const LIMITS: FrameLimits = FrameLimits {
    message_bytes_max: 16 << 20,
    fragments_max: 1 << 16,
};

/// How long a peer may be silent; far above what any case waits.
const SILENCE_MAX: Duration = Duration::from_secs(120);

/// Starts a server with a thread for each connection, which lives as long as the tests, and returns its address.
pub(super) fn start_server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            // Many cases end with a connection that their peer resets. What matters is what the peer reports.
            std::thread::spawn(move || serve(stream));
        }
    });
    address
}

fn serve(mut stream: TcpStream) -> io::Result<()> {
    let (head, received) = read_head(&mut stream)?;
    let accept = accept_key(field(&head, "sec-websocket-key")).expect("a key of 16 bytes");
    let answer = format!(
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\nserver: weir\r\n\
         sec-websocket-accept: {accept}\r\n\r\n"
    );
    stream.write_all(answer.as_bytes())?;
    Connection::new(stream, FrameRole::Server, received)?.run(true)
}

/// Runs all cases of a fuzzing server as its client, each over a connection of its own.
pub(super) fn run_cases(address: SocketAddr) {
    let connect = |path: &str| open(address, path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let mut counted = connect("/getCaseCount");
    let _ = counted.run(false);
    let count = std::str::from_utf8(&counted.message).unwrap();
    let count: usize = count.parse().unwrap_or_else(|error| panic!("{count:?}: {error}"));
    for case in 1..=count {
        let _ = connect(&format!("/runCase?case={case}&agent=weir")).run(true);
    }
    let _ = connect("/updateReports?agent=weir").run(false);
}

fn open(address: SocketAddr, path: &str) -> io::Result<Connection> {
    let mut stream = TcpStream::connect(address)?;
    let key = STANDARD.encode(rand::random::<[u8; 16]>());
    let request = format!(
        "GET {path} HTTP/1.1\r\nhost: {address}\r\nupgrade: websocket\r\nconnection: upgrade\r\n\
         sec-websocket-key: {key}\r\nsec-websocket-version: 13\r\n\r\n"
    );
    stream.write_all(request.as_bytes())?;
    let (head, received) = read_head(&mut stream)?;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    assert_eq!(Some(field(&head, "sec-websocket-accept")), accept_key(&key).as_deref());
    Connection::new(stream, FrameRole::Client, received)
}

/// Reads the head of a request or an answer. What has arrived behind it is returned, too.
fn read_head(stream: &mut TcpStream) -> io::Result<(String, BytesMut)> {
    let mut received = BytesMut::new();
    loop {
        if let Some(end) = find(&received, b"\r\n\r\n") {
            let head = received.split_to(end + 4);
            return Ok((String::from_utf8_lossy(&head).into_owned(), received));
        }
        if read_into(&mut received, stream)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

fn read_into(received: &mut BytesMut, stream: &mut TcpStream) -> io::Result<usize> {
    let mut buffer = vec![0; 64 * 1024];
    let length = stream.read(&mut buffer)?;
    received.extend_from_slice(&buffer[..length]);
    Ok(length)
}

/// The value of a header field; empty if the head has none of this name.
fn field<'a>(head: &'a str, name: &str) -> &'a str {
    let mut fields = head.lines().filter_map(|line| line.split_once(':'));
    let field = fields.find(|(field, _)| field.eq_ignore_ascii_case(name));
    field.map_or("", |(_, value)| value.trim())
}

struct Connection {
    stream: TcpStream,
    role: FrameRole,
    decoder: FrameDecoder,
    received: BytesMut,
    sent: BytesMut,
    kind: MessageKind,
    /// The last message, as far as it has arrived.
    message: Vec<u8>,
}

impl Connection {
    fn new(stream: TcpStream, role: FrameRole, received: BytesMut) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SILENCE_MAX))?;
        stream.set_write_timeout(Some(SILENCE_MAX))?;
        Ok(Self {
            stream,
            role,
            decoder: FrameDecoder::new(role, LIMITS),
            received,
            sent: BytesMut::new(),
            kind: MessageKind::Text,
            message: Vec::new(),
        })
    }

    /// Receives messages until the end of the connection, and sends each back if `echoes`.
    fn run(&mut self, echoes: bool) -> io::Result<()> {
        while self.answer_received(echoes) {
            self.stream.write_all(&self.sent)?;
            self.sent.clear();
            if read_into(&mut self.received, &mut self.stream)? == 0 {
                return Ok(());
            }
        }
        self.stream.write_all(&self.sent)?;
        // The server closes first (RFC 6455 section 7.1.1).
        if self.role == FrameRole::Server {
            self.stream.shutdown(Shutdown::Write)?;
        }
        // A connection that is closed before everything is read is reset, and its peer may never see the close frame.
        while read_into(&mut self.received, &mut self.stream)? > 0 {
            self.received.clear();
        }
        Ok(())
    }

    /// Answers what has been received, into `sent`. Returns false once a close frame is the last of it.
    fn answer_received(&mut self, echoes: bool) -> bool {
        loop {
            let event = self.decoder.next_event(&mut self.received);
            let mask = (self.role == FrameRole::Client).then(rand::random::<[u8; 4]>);
            match event {
                Ok(None) => return true,
                Ok(Some(FrameEvent::MessageStart { kind, .. })) => {
                    self.kind = kind;
                    self.message.clear();
                }
                Ok(Some(FrameEvent::Payload(piece))) => self.message.extend_from_slice(&piece),
                Ok(Some(FrameEvent::MessageEnd)) if echoes => self.send_message(mask),
                Ok(Some(FrameEvent::MessageEnd | FrameEvent::Pong(_))) => {}
                Ok(Some(FrameEvent::Ping(payload))) => {
                    write_control(&mut self.sent, ControlOpcode::Pong, &payload, mask);
                }
                Ok(Some(FrameEvent::Close(Some((code, _))))) => {
                    write_close(&mut self.sent, code, "", mask);
                    return false;
                }
                Ok(Some(FrameEvent::Close(None))) => {
                    write_control(&mut self.sent, ControlOpcode::Close, b"", mask);
                    return false;
                }
                Err(fault) => {
                    write_close(&mut self.sent, fault.code, fault.reason, mask);
                    return false;
                }
            }
        }
    }

    fn send_message(&mut self, mask: Option<[u8; 4]>) {
        write_message_header(&mut self.sent, self.kind, self.message.len() as u64, mask);
        let begin = self.sent.len();
        self.sent.extend_from_slice(&self.message);
        if let Some(mask) = mask {
            mask_in_place(&mut self.sent[begin..], mask, 0);
        }
    }
}
