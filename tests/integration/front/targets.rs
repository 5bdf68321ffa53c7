//! A fragment in a request's target: 400 over both versions, in the form of the path's protocol, and nothing is passed on.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::harness::client::find;
use crate::harness::request::{ALL_WIRES, Upload, Wire};
use crate::harness::wait::DEADLINE;
use crate::harness::{RecordingProvider, Weir};

/// The preface and an empty SETTINGS frame.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
/// What the client is told.
const TOLD: &[u8] = b"The request's target is not a path.";

/// A frame on stream 1.
fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend_from_slice(&[kind, flags, 0, 0, 0, 1]);
    frame.extend_from_slice(payload);
    frame
}

/// Header fields as literals that nobody has to remember; each text is shorter than 127 bytes.
fn literals(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            block.push(u8::try_from(text.len()).unwrap());
            block.extend_from_slice(text.as_bytes());
        }
    }
    block
}

/// Reads on until there is what is looked for.
fn until(stream: &mut TcpStream, came: &mut Vec<u8>, is_there: impl Fn(&[u8]) -> bool) {
    let mut space = [0; 4096];
    while !is_there(came) {
        let count = stream.read(&mut space).unwrap();
        assert!(count > 0, "the connection ended with {came:?}");
        came.extend_from_slice(&space[..count]);
    }
}

/// The first byte of the payload of the HEADERS frame on `stream`, once that has come.
fn first_field(mut frames: &[u8], stream: u8) -> Option<u8> {
    while frames.len() > 9 {
        let length = usize::from(frames[1]) << 8 | usize::from(frames[2]);
        if frames[3] == 1 && frames[8] == stream {
            return Some(frames[9]);
        }
        frames = frames.get(9 + length..)?;
    }
    None
}

fn member(wire: Wire) -> &'static str {
    match wire {
        Wire::Messages => "\"type\":\"error\"",
        Wire::Responses => "\"code\":\"target_invalid\"",
        Wire::Gemini => "\"status\":\"INVALID_ARGUMENT\"",
    }
}

#[test]
fn a_fragment_is_400_over_each_version_and_reaches_nobody() {
    let provider = RecordingProvider::least();
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    for wire in ALL_WIRES {
        let mut request = wire.request(&key, "hi");
        request.target.push_str("#fragment");
        let mut client = weir.connect();
        client.write(&request.bytes(Upload::Length));
        let http1 = client.response_to("POST");
        assert_eq!(http1.status, 400, "{wire:?}");
        assert!(
            find(&http1.body, TOLD).is_some() && http1.text().contains(member(wire)),
            "{}",
            http1.text()
        );
        assert!(client.closed_within(DEADLINE));

        let mut stream = TcpStream::connect(weir.gateway).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        let mut fields = vec![(":method", "POST"), (":scheme", "http"), (":authority", "weir.test")];
        fields.push((":path", &request.target));
        let names = |name: &str| !["host", "content-length"].contains(&name);
        let others = request.headers.iter().filter(|(name, _)| names(name));
        fields.extend(others.map(|(name, value)| (name.as_str(), value.as_str())));
        let sent = [PREFACE, &frame(1, 4, &literals(&fields)), &frame(0, 1, &request.body)].concat();
        stream.write_all(&sent).unwrap();
        let mut http2 = Vec::new();
        until(&mut stream, &mut http2, |came| find(came, TOLD).is_some());
        // `:status: 400` is entry 12 of the static table, 200 is entry 8 (RFC 7541 appendix A).
        assert_eq!(first_field(&http2, 1), Some(0x80 | 12), "{wire:?}");
        assert!(
            find(&http2, member(wire).as_bytes()).is_some(),
            "{}",
            String::from_utf8_lossy(&http2)
        );
        // The connection goes on.
        let mut next = frame(
            1,
            5,
            &literals(&[
                (":method", "HEAD"),
                (":scheme", "http"),
                (":authority", "x"),
                (":path", "/"),
            ]),
        );
        next[8] = 3;
        stream.write_all(&next).unwrap();
        until(&mut stream, &mut http2, |came| first_field(came, 3).is_some());
        assert_eq!(first_field(&http2, 3), Some(0x80 | 8), "{wire:?}");
    }
    assert_eq!(provider.count(), 0, "{:?}", provider.requests());
    assert_eq!(weir.exchange(&Wire::Messages.request(&key, "hi")).status, 200);
}
