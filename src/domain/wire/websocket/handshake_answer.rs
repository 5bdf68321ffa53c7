//! The answer of a server to the handshake of a client (RFC 6455 section 4.1).

/// The meaning of a server's answer to a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeAnswer {
    /// The connection is a WebSocket from now on.
    Accepted,
    /// The server answered with this HTTP status, which is not 101.
    Refused(u16),
    /// The answer is not HTTP/1.1, or it accepts something that the client has not requested.
    Invalid,
}

impl HandshakeAnswer {
    /// Reads the head of an answer, up to its empty line. `accept` is the `Sec-WebSocket-Accept` for the key of the handshake.
    pub fn read(head: &[u8], accept: &str) -> Self {
        let Ok(text) = std::str::from_utf8(head) else {
            return Self::Invalid;
        };
        let mut lines = text.split("\r\n");
        let Some(status) = lines.next().and_then(read_status) else {
            return Self::Invalid;
        };
        if status != 101 {
            return Self::Refused(status);
        }
        let fields: Vec<(&str, &str)> = lines.filter_map(|line| line.split_once(':')).collect();
        let values = |name: &str| {
            let named = fields.iter().filter(move |(field, _)| field.eq_ignore_ascii_case(name));
            named.map(|(_, value)| value.trim()).collect::<Vec<_>>()
        };
        let has_option = |option: &str| {
            let connection = values("connection");
            let mut options = connection.iter().flat_map(|value| value.split(','));
            options.any(|named| named.trim().eq_ignore_ascii_case(option))
        };
        let is_websocket = matches!(values("upgrade").as_slice(), [name] if name.eq_ignore_ascii_case("websocket"));
        let is_accepted = matches!(values("sec-websocket-accept").as_slice(), [value] if *value == accept);
        let has_extras = !values("sec-websocket-extensions").is_empty() || !values("sec-websocket-protocol").is_empty();
        match is_websocket && is_accepted && has_option("upgrade") && !has_extras {
            true => Self::Accepted,
            false => Self::Invalid,
        }
    }
}

/// Reads the status of a status line, such as `HTTP/1.1 101 Switching Protocols`.
fn read_status(line: &str) -> Option<u16> {
    let mut words = line.split(' ');
    let is_http = words.next()?.starts_with("HTTP/1.");
    let status: u16 = words.next()?.parse().ok()?;
    (is_http && (100..600).contains(&status)).then_some(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

    fn answer(fields: &[(&str, &str)]) -> HandshakeAnswer {
        let mut head = "HTTP/1.1 101 Switching Protocols\r\n".to_owned();
        for (name, value) in fields {
            head += &format!("{name}: {value}\r\n");
        }
        HandshakeAnswer::read((head + "\r\n").as_bytes(), ACCEPT)
    }

    #[test]
    fn only_an_answer_to_this_handshake_opens_a_websocket() {
        let good = [
            ("Upgrade", "WebSocket"),
            ("connection", "keep-alive, Upgrade"),
            ("Sec-WebSocket-Accept", ACCEPT),
            ("date", "now"),
        ];
        assert_eq!(answer(&good), HandshakeAnswer::Accepted);
        for missing in 0..3 {
            let mut fields = good.to_vec();
            fields.remove(missing);
            assert_eq!(answer(&fields), HandshakeAnswer::Invalid, "{fields:?}");
        }
        for wrong in [
            ("sec-websocket-accept", "other"),
            ("sec-websocket-extensions", "permessage-deflate"),
            ("sec-websocket-protocol", "chat"),
            ("upgrade", "h2c"),
        ] {
            let fields = [&good[..], &[wrong]].concat();
            assert_eq!(answer(&fields), HandshakeAnswer::Invalid, "{fields:?}");
        }
    }

    #[test]
    fn another_status_refuses_the_websocket() {
        let read = |head: &[u8]| HandshakeAnswer::read(head, ACCEPT);
        for status in [200, 401, 426, 503] {
            let head = format!("HTTP/1.1 {status} Any Words\r\nconnection: close\r\n\r\n");
            assert_eq!(read(head.as_bytes()), HandshakeAnswer::Refused(status));
        }
        for head in [
            "",
            "SSH-2.0-x\r\n\r\n",
            "HTTP/1.1\r\n\r\n",
            "HTTP/1.1 9999 x\r\n\r\n",
            "HTTP/2 101\r\n\r\n",
        ] {
            assert_eq!(read(head.as_bytes()), HandshakeAnswer::Invalid, "{head:?}");
        }
        assert_eq!(read(b"\xFF\r\n\r\n"), HandshakeAnswer::Invalid);
    }
}
