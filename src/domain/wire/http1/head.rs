//! Checks the head of an HTTP/1.1 request: the request line, the field lines and the empty line after them.

use self::HeadFault as Fault;

/// The maximum number of decimal digits in a `content-length`. A number with this many digits fits into 64 bits.
const LENGTH_DIGITS_MAX: usize = 19;

/// The protocols that an `upgrade` header is allowed to name. The request's path decides later whether a WebSocket is opened.
/// HTTP/2 (`h2c`) is allowed but ignored, because common clients offer it with every cleartext request (RFC 9110 section 7.8).
const UPGRADES: [&[u8]; 2] = [b"websocket", b"h2c"];

/// The limits for the head of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadLimits {
    /// The maximum length in bytes, including the request line and the final empty line.
    pub bytes_max: usize,
    /// The maximum number of field lines.
    pub fields_max: usize,
}

/// How the end of a request's body is determined (RFC 9112 section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestFraming {
    /// The request has no body.
    Empty,
    /// The body has this length in bytes.
    Length(u64),
    /// The body consists of chunks, and ends after the last one.
    Chunked,
}

/// The reason why the head of a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadFault {
    /// The head has too many bytes or field lines.
    TooLarge,
    /// A line feed is not preceded by a carriage return (RFC 9112 section 2.2).
    BareLineFeed,
    /// The first line does not have the form `METHOD SP TARGET SP VERSION`.
    RequestLine,
    /// The version is neither HTTP/1.1 nor HTTP/1.0.
    Version,
    /// The method is CONNECT or TRACE.
    Method,
    /// The target is not a path with an optional query (RFC 9112 section 3.2.1).
    Target,
    /// A header field continues on a further line (RFC 9112 section 5.2).
    Folded,
    /// The name of a header field is not a token, or white space precedes its colon (RFC 9112 section 5.1).
    FieldName,
    /// The value of a header field contains a control character.
    FieldValue,
    /// `host` is missing, repeated or not an authority (RFC 9112 section 3.2).
    Host,
    /// `content-length` is repeated or not one number (RFC 9112 section 6.3).
    ContentLength,
    /// `transfer-encoding` is repeated or not `chunked`, or the version is HTTP/1.0 (RFC 9112 section 6.1).
    TransferEncoding,
    /// The head has both `content-length` and `transfer-encoding` (RFC 9112 section 6.1).
    TwoLengths,
    /// `upgrade` names a protocol other than WebSocket and HTTP/2.
    Upgrade,
}

impl HeadFault {
    /// Returns the HTTP status of the refusal.
    pub(crate) fn status(self) -> u16 {
        match self {
            Self::TooLarge => 431,
            Self::Version => 505,
            Self::Method => 405,
            _ => 400,
        }
    }

    /// Returns the label of the fault in metrics. The set of labels is fixed.
    pub(crate) const fn reason(self) -> &'static str {
        match self {
            Self::TooLarge => "headers_too_large",
            Self::BareLineFeed => "bare_line_feed",
            Self::RequestLine => "request_line_invalid",
            Self::Version => "version_unsupported",
            Self::Method => "method_unsupported",
            Self::Target => "target_invalid",
            Self::Folded => "header_folded",
            Self::FieldName => "header_name_invalid",
            Self::FieldValue => "header_value_invalid",
            Self::Host => "host_invalid",
            Self::ContentLength => "content_length_invalid",
            Self::TransferEncoding => "transfer_encoding_invalid",
            Self::TwoLengths => "two_lengths",
            Self::Upgrade => "upgrade_unknown",
        }
    }

    /// Returns the message for the client, which says what is wrong and what to send instead.
    pub(crate) fn message(self) -> &'static str {
        match self {
            Self::TooLarge => "The request headers are too large. Send fewer or shorter headers.",
            Self::BareLineFeed => "A line of the request's head ends without a carriage return. End lines with CR LF.",
            Self::RequestLine => "The request does not begin with an HTTP/1.1 request line. Send METHOD PATH HTTP/1.1.",
            Self::Version => "This HTTP version is not supported. Use HTTP/1.1 or HTTP/2.",
            Self::Method => "CONNECT and TRACE are not supported. Use GET, HEAD, POST or OPTIONS.",
            Self::Target => "The request's target is not a path. Send the path and query only, percent-encoded.",
            Self::Folded => "A header continues on a further line. Send each header in one line.",
            Self::FieldName => "A header's name is not valid. Send NAME: VALUE, without white space before the colon.",
            Self::FieldValue => "A header's value contains a control character. Remove it.",
            Self::Host => "The request needs exactly one host header with a host and an optional port.",
            Self::ContentLength => "The content-length is not one decimal number. Send it once.",
            Self::TransferEncoding => {
                "The transfer-encoding is not `chunked` alone, or was sent over HTTP/1.0. Send it once, over HTTP/1.1."
            }
            Self::TwoLengths => "The request has both content-length and transfer-encoding. Send one of them.",
            Self::Upgrade => "The upgrade header names a protocol that is not supported. Leave the header out.",
        }
    }

    /// All faults, for the labels of metrics.
    pub(crate) const ALL: [Self; 14] = [
        Self::TooLarge,
        Self::BareLineFeed,
        Self::RequestLine,
        Self::Version,
        Self::Method,
        Self::Target,
        Self::Folded,
        Self::FieldName,
        Self::FieldValue,
        Self::Host,
        Self::ContentLength,
        Self::TransferEncoding,
        Self::TwoLengths,
        Self::Upgrade,
    ];
}

/// A detector for the end of a head that arrives in pieces. It examines each byte only once.
#[derive(Debug, Default)]
pub struct HeadEnd {
    searched: usize,
}

impl HeadEnd {
    /// Returns the length of the head in bytes, including the empty line; `None` until `bytes` contains the complete head.
    /// `bytes` must begin with the head. Between two calls, the caller must not change `bytes`, except by appending to it.
    pub fn find(&mut self, bytes: &[u8], limits: HeadLimits) -> Result<Option<usize>, Fault> {
        if bytes.first().is_some_and(|first| !is_token(*first)) {
            // The bytes are not HTTP, but for example a TLS handshake, so waiting for more of them is useless.
            return Err(Fault::RequestLine);
        }
        let within = bytes.get(..limits.bytes_max).unwrap_or(bytes);
        while let Some(at) = memchr::memchr(b'\n', within.get(self.searched..).unwrap_or_default()) {
            let end = self.searched + at + 1;
            let before = within.get(..end).unwrap_or_default();
            if !before.ends_with(b"\r\n") {
                return Err(Fault::BareLineFeed);
            }
            self.searched = end;
            if before.ends_with(b"\r\n\r\n") {
                return Ok(Some(end));
            }
        }
        self.searched = within.len();
        match bytes.len() < limits.bytes_max {
            true => Ok(None),
            false => Err(Fault::TooLarge),
        }
    }
}

/// Checks a complete head, including its empty line, and returns how the end of the request's body is determined.
pub fn check(head: &[u8], limits: HeadLimits) -> Result<RequestFraming, Fault> {
    let mut rest = Some(head.strip_suffix(b"\n\r\n").ok_or(Fault::RequestLine)?);
    let mut lines = std::iter::from_fn(|| {
        let text = rest?;
        let (line, behind) = match memchr::memchr(b'\n', text).and_then(|at| text.split_at_checked(at)) {
            Some((line, behind)) => (line, behind.get(1..)),
            None => (text, None),
        };
        rest = behind;
        Some(line.strip_suffix(b"\r").ok_or(Fault::BareLineFeed))
    });
    let version = check_request_line(lines.next().unwrap_or(Err(Fault::RequestLine))?)?;
    let mut fields = FramingFields::default();
    for (count, line) in lines.enumerate() {
        if count >= limits.fields_max {
            return Err(Fault::TooLarge);
        }
        fields.add_line(line?)?;
    }
    fields.framing(version)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Http1Version {
    Old,
    Current,
}

fn check_request_line(line: &[u8]) -> Result<Http1Version, Fault> {
    if !every(line, |byte| !byte.is_ascii_control()) {
        return Err(Fault::RequestLine);
    }
    let mut parts = line.split(|byte| *byte == b' ');
    let (Some(method), Some(target), Some(version), None) = (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(Fault::RequestLine);
    };
    if method.is_empty() || !every(method, is_token) {
        return Err(Fault::RequestLine);
    }
    let version = match version {
        b"HTTP/1.1" => Http1Version::Current,
        b"HTTP/1.0" => Http1Version::Old,
        other if other.starts_with(b"HTTP/") => return Err(Fault::Version),
        _ => return Err(Fault::RequestLine),
    };
    if matches!(method, b"CONNECT" | b"TRACE") {
        return Err(Fault::Method);
    }
    if !target.starts_with(b"/") || !every(target, |byte| byte.is_ascii_graphic() && byte != b'#') {
        return Err(Fault::Target);
    }
    Ok(version)
}

/// The header fields that determine the end of the body, and whether the head contains `host`.
#[derive(Default)]
struct FramingFields {
    has_host: bool,
    length: Option<u64>,
    is_chunked: bool,
}

impl FramingFields {
    fn add_line(&mut self, line: &[u8]) -> Result<(), Fault> {
        if line.starts_with(b" ") || line.starts_with(b"\t") {
            return Err(Fault::Folded);
        }
        let colon = memchr::memchr(b':', line).ok_or(Fault::FieldName)?;
        let (name, value) = line.split_at_checked(colon).ok_or(Fault::FieldName)?;
        if name.is_empty() || !every(name, is_token) {
            return Err(Fault::FieldName);
        }
        let value = value.strip_prefix(b":").unwrap_or_default();
        if !every(value, is_field_content) {
            return Err(Fault::FieldValue);
        }
        let value = value.trim_ascii();
        if name.eq_ignore_ascii_case(b"host") {
            if self.has_host || !is_authority(value) {
                return Err(Fault::Host);
            }
            self.has_host = true;
        } else if name.eq_ignore_ascii_case(b"content-length") {
            let number = content_length(value).ok_or(Fault::ContentLength)?;
            if self.length.replace(number).is_some() {
                return Err(Fault::ContentLength);
            }
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            if self.is_chunked || !value.eq_ignore_ascii_case(b"chunked") {
                return Err(Fault::TransferEncoding);
            }
            self.is_chunked = true;
        } else if name.eq_ignore_ascii_case(b"upgrade") && !is_known_upgrade(value) {
            return Err(Fault::Upgrade);
        }
        Ok(())
    }

    fn framing(&self, version: Http1Version) -> Result<RequestFraming, Fault> {
        match (self.is_chunked, self.length) {
            // An HTTP/1.0 client is allowed to omit the host.
            _ if !self.has_host && version == Http1Version::Current => Err(Fault::Host),
            (true, Some(_)) => Err(Fault::TwoLengths),
            (true, None) if version == Http1Version::Old => Err(Fault::TransferEncoding),
            (true, None) => Ok(RequestFraming::Chunked),
            (false, None | Some(0)) => Ok(RequestFraming::Empty),
            (false, Some(length)) => Ok(RequestFraming::Length(length)),
        }
    }
}

/// Whether `is_so` is true for all bytes. The function does not stop early, so that the compiler can generate code that checks
/// many bytes at a time.
fn every(bytes: &[u8], is_so: impl Fn(u8) -> bool) -> bool {
    bytes.iter().fold(true, |all, byte| all & is_so(*byte))
}

/// For each byte, whether it is allowed in a token.
static TOKEN: [bool; 256] = {
    let (mut table, mut byte) = ([false; 256], 0_u8);
    let mut rest: &mut [bool] = &mut table;
    while let [is_token, behind @ ..] = rest {
        let is_sign = matches!(
            byte,
            b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'^'..=b'`' | b'|' | b'~'
        );
        *is_token = byte.is_ascii_alphanumeric() || is_sign;
        byte = byte.wrapping_add(1);
        rest = behind;
    }
    table
};

/// Whether a byte is allowed in a token (RFC 9110 section 5.6.2). Called for each byte of a request's field names.
pub(super) fn is_token(byte: u8) -> bool {
    TOKEN.get(usize::from(byte)).is_some_and(|is_token| *is_token)
}

/// Whether a byte is allowed in a header field's value (RFC 9110 section 5.5), including the obsolete bytes from 0x80 on.
pub(super) fn is_field_content(byte: u8) -> bool {
    byte == b'\t' || byte >= b' ' && byte != 0x7f
}

fn content_length(value: &[u8]) -> Option<u64> {
    if value.is_empty() || value.len() > LENGTH_DIGITS_MAX || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(value).ok()?.parse().ok()
}

/// Whether a value has the form `HOST[:PORT]`, without a user name (RFC 9110 section 7.2).
fn is_authority(value: &[u8]) -> bool {
    let (host, port) = match value.strip_prefix(b"[") {
        Some(rest) => {
            let Some(end) = memchr::memchr(b']', rest) else {
                return false;
            };
            let (inside, behind) = rest.split_at_checked(end).unwrap_or_default();
            if inside.is_empty()
                || !inside
                    .iter()
                    .all(|byte| byte.is_ascii_hexdigit() || b":.".contains(byte))
            {
                return false;
            }
            (inside, behind.strip_prefix(b"]").unwrap_or_default())
        }
        None => {
            let end = memchr::memchr(b':', value).unwrap_or(value.len());
            let (host, behind) = value.split_at_checked(end).unwrap_or_default();
            let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~%!$&'()*+;=".contains(byte);
            if !host.iter().all(is_name) {
                return false;
            }
            (host, behind)
        }
    };
    let port_is_number = |digits: &[u8]| digits.len() <= 5 && digits.iter().all(u8::is_ascii_digit);
    !host.is_empty() && (port.is_empty() || port.strip_prefix(b":").is_some_and(port_is_number))
}

fn is_known_upgrade(value: &[u8]) -> bool {
    let mut names = value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    names.all(|name| UPGRADES.iter().any(|known| name.eq_ignore_ascii_case(known)))
}

#[cfg(test)]
mod tests;
