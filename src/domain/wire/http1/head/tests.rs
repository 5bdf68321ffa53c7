//! The head check against a table of hostile requests, against itself in pieces, and against another parser.

use proptest::prelude::*;

use super::*;
use crate::domain::wire::http1::{ChunkedContent, ChunkedTrailers};

#[path = "../../../../../tests/hostile/cases.rs"]
mod cases;

const LIMITS: HeadLimits = HeadLimits {
    bytes_max: 4096,
    fields_max: 20,
};
const PARTS: cases::Parts<'_> = cases::Parts {
    key: "k",
    body: "{}",
    next: "GET /hidden HTTP/1.1\r\nhost: hidden\r\n\r\n",
};

/// The length of the head and the framing of what follows, with the bytes in pieces of `step`.
fn read(bytes: &[u8], step: usize) -> Result<Option<(usize, RequestFraming)>, Fault> {
    // As the front does it: one empty line may stand before a request.
    let bytes = bytes.strip_prefix(b"\r\n").unwrap_or(bytes);
    let mut end = HeadEnd::default();
    for come in (0..bytes.len()).step_by(step).map(|at| (at + step).min(bytes.len())) {
        if let Some(length) = end.find(&bytes[..come], LIMITS)? {
            return Ok(Some((length, check(&bytes[..length], LIMITS)?)));
        }
    }
    Ok(None)
}

/// The status that the request is refused with before a byte of its body is used.
fn refused(bytes: &[u8]) -> Option<u16> {
    match read(bytes, 7) {
        Err(fault) => Some(fault.status()),
        Ok(Some((length, RequestFraming::Chunked))) => {
            let body = &bytes[length..];
            let read = ChunkedContent::default().push(body).and_then(|end| match end {
                Some(end) => ChunkedTrailers::default().push(&body[end..]),
                None => Ok(None),
            });
            read.is_err().then_some(400)
        }
        Ok(_) => None,
    }
}

#[test]
fn every_hostile_request_is_refused_and_every_plain_one_is_not() {
    let cases = cases::all(&PARTS);
    let hostile = cases.iter().filter(|case| case.refused.is_some()).count();
    assert!(hostile >= 400, "{hostile} only");
    for case in cases {
        assert_eq!(refused(&case.bytes), case.refused, "{}", case.name);
    }
}

#[test]
fn size_and_number_of_fields_are_limited() {
    let head = |bytes: usize| {
        let fixed = "GET / HTTP/1.1\r\nhost: x\r\na: \r\n\r\n".len();
        format!("GET / HTTP/1.1\r\nhost: x\r\na: {}\r\n\r\n", "v".repeat(bytes - fixed)).into_bytes()
    };
    let at_limit = head(LIMITS.bytes_max);
    assert_eq!(
        read(&at_limit, 100),
        Ok(Some((LIMITS.bytes_max, RequestFraming::Empty)))
    );
    assert_eq!(read(&head(LIMITS.bytes_max + 1), 100), Err(Fault::TooLarge));
    assert_eq!(read(&at_limit[..at_limit.len() - 1], 100), Ok(None));
    let fields =
        |count: usize| format!("GET / HTTP/1.1\r\nhost: x\r\n{}\r\n", "a: b\r\n".repeat(count - 1)).into_bytes();
    assert!(read(&fields(LIMITS.fields_max), 9).is_ok_and(|read| read.is_some()));
    assert_eq!(read(&fields(LIMITS.fields_max + 1), 9), Err(Fault::TooLarge));
}

#[test]
fn the_framing_is_what_the_fields_say() {
    let framing = |fields: &str| read(format!("POST / HTTP/1.1\r\nhost: x\r\n{fields}\r\n").as_bytes(), 1);
    let is = |fields: &str, wanted: RequestFraming| {
        assert!(framing(fields).is_ok_and(|read| read.is_some_and(|read| read.1 == wanted)))
    };
    is("", RequestFraming::Empty);
    is("content-length: 0\r\n", RequestFraming::Empty);
    is(
        "Content-Length: 9999999999999999999\r\n",
        RequestFraming::Length(9_999_999_999_999_999_999),
    );
    is("transfer-encoding: Chunked\r\n", RequestFraming::Chunked);
    is("x-content-length: 5\r\ncontent-lengths: 6\r\n", RequestFraming::Empty);
}

/// Bytes that heads are made of, and some that they are not.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    const WORDS: [&str; 11] = [
        "GET / HTTP/1.1\r\n",
        "host: x\r\n",
        "content-length: 5\r\n",
        "transfer-encoding: chunked\r\n",
        "\r\n",
        "\n",
        "\r",
        " ",
        ":",
        "a",
        "HTTP/1.0",
    ];
    let words = proptest::sample::select(&WORDS[..]).prop_map(|word| word.as_bytes().to_vec());
    let piece = prop_oneof![8 => words, 1 => any::<u8>().prop_map(|byte| vec![byte])];
    let rest = proptest::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat());
    (any::<bool>(), rest).prop_map(|(whole, rest)| match whole {
        true => [b"POST /v1/messages HTTP/1.1\r\nhost: x\r\n", &rest[..], b"\r\n"].concat(),
        false => rest,
    })
}

proptest! {
    #[test]
    fn pieces_do_not_matter(bytes in bytes(), step in 1..30_usize) {
        let (in_pieces, at_once) = (read(&bytes, step), read(&bytes, bytes.len().max(1)));
        prop_assert_eq!(in_pieces, at_once);
    }

    /// What is let in is read in the same way by the parser that Pingora uses.
    #[test]
    fn another_parser_reads_the_same(bytes in bytes()) {
        if let Ok(Some((length, framing))) = read(&bytes, 13) {
            let bytes = bytes.strip_prefix(b"\r\n").unwrap_or(&bytes);
            let mut fields = [httparse::EMPTY_HEADER; 32];
            let mut request = httparse::Request::new(&mut fields);
            prop_assert_eq!(request.parse(bytes), Ok(httparse::Status::Complete(length)));
            let named = |name: &str| request.headers.iter().filter(|field| field.name.eq_ignore_ascii_case(name)).count();
            let lengths = (named("content-length"), named("transfer-encoding"));
            let agree = match framing {
                RequestFraming::Empty | RequestFraming::Length(_) => lengths.0 <= 1 && lengths.1 == 0,
                RequestFraming::Chunked => lengths == (0, 1),
            };
            prop_assert!(agree);
        }
    }
}
