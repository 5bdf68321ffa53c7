//! An HTTP/2 client that only counts frames: what a server says of a connection on which nothing is asked.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use super::wait::DEADLINE;

/// RFC 9113 section 3.4, and an empty SETTINGS frame behind it.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
const SETTINGS: u8 = 0x4;
const PING: u8 = 0x6;
/// The type of the frame by which a server says that it takes no more streams.
pub(crate) const GOAWAY: u8 = 0x7;
const ACK: u8 = 0x1;

/// `GET / HTTP/2` of http://x, by entries of the static table (RFC 7541 appendix A) and one literal.
const HEADERS: [u8; 6] = [0x82, 0x84, 0x86, 0x41, 0x01, b'x'];

/// A connection.
pub(crate) struct H2Frames {
    stream: TcpStream,
    settings: Vec<u8>,
}

impl H2Frames {
    /// Connects with prior knowledge, and waits until the server has answered.
    pub(crate) fn connect(address: SocketAddr) -> H2Frames {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.write_all(PREFACE).unwrap();
        let mut frames = H2Frames {
            stream,
            settings: Vec::new(),
        };
        assert_eq!(frames.next(), Some(SETTINGS));
        frames
    }

    /// The setting of streams at one time.
    pub(crate) const MAX_CONCURRENT_STREAMS: u16 = 0x3;
    /// The setting of the largest list of header fields.
    pub(crate) const MAX_HEADER_LIST_SIZE: u16 = 0x6;

    /// A setting that the server has announced with its first frame.
    pub(crate) fn setting(&self, id: u16) -> Option<u32> {
        let found = self.settings.chunks(6).find(|entry| entry[..2] == id.to_be_bytes())?;
        Some(u32::from_be_bytes([found[2], found[3], found[4], found[5]]))
    }

    /// Begins so many requests and resets each at once.
    pub(crate) fn open_and_reset(&mut self, count: u32) {
        let mut all = Vec::new();
        for stream in (0..count).map(|number| (2 * number + 1).to_be_bytes()) {
            // HEADERS with END_HEADERS and END_STREAM, then RST_STREAM with CANCEL.
            all.extend_from_slice(&[0, 0, 6, 0x1, 0x5]);
            all.extend_from_slice(&stream);
            all.extend_from_slice(&HEADERS);
            all.extend_from_slice(&[0, 0, 4, 0x3, 0]);
            all.extend_from_slice(&stream);
            all.extend_from_slice(&[0, 0, 0, 8]);
        }
        // A server that closes meanwhile is seen by the next read.
        let _ = self.stream.write_all(&all);
    }

    /// Answers pings and settings until the server closes the connection; the types of all frames.
    pub(crate) fn frames_to_the_end(&mut self) -> Vec<u8> {
        std::iter::from_fn(|| self.next()).collect()
    }

    /// The next frame's type, when it has been answered as it must be.
    fn next(&mut self) -> Option<u8> {
        let mut head = [0_u8; 9];
        match self.stream.read_exact(&mut head) {
            Ok(()) => {}
            Err(error)
                if matches!(
                    error.kind(),
                    std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
                ) =>
            {
                panic!("the connection is still open after {DEADLINE:?}")
            }
            Err(_) => return None,
        }
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0_u8; usize::try_from(length).unwrap()];
        self.stream.read_exact(&mut payload).ok()?;
        let (kind, flags) = (head[3], head[4]);
        if kind == SETTINGS && flags & ACK == 0 {
            self.settings.clone_from(&payload);
        }
        if flags & ACK == 0 && matches!(kind, SETTINGS | PING) {
            let answer = if kind == PING { &payload[..] } else { &[] };
            let length = u8::try_from(answer.len()).unwrap();
            let mut frame = vec![0, 0, length, kind, ACK, 0, 0, 0, 0];
            frame.extend_from_slice(answer);
            // A server that has closed is seen by the next read.
            let _ = self.stream.write_all(&frame);
        }
        Some(kind)
    }
}
