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

/// A connection.
pub(crate) struct H2Frames {
    stream: TcpStream,
}

impl H2Frames {
    /// Connects with prior knowledge, and waits until the server has answered.
    pub(crate) fn connect(address: SocketAddr) -> H2Frames {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.write_all(PREFACE).unwrap();
        let mut frames = H2Frames { stream };
        assert_eq!(frames.next(), Some(SETTINGS));
        frames
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
