//! Tests of `websocket`.

mod properties;
mod text;

use super::*;

const LIMITS: FrameLimits = FrameLimits {
    message_bytes_max: 1 << 20,
    fragments_max: 64,
};
const MASK: Option<[u8; 4]> = Some([0x37, 0xFA, 0x21, 0x3D]);

/// What a decoder has made of some bytes. Pieces of a payload that follow each other are one piece.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Decoded {
    events: Vec<FrameEvent>,
    fault: Option<FrameFault>,
    /// How many bytes were left.
    rest: usize,
}

fn decoded_within<'a>(limits: FrameLimits, role: FrameRole, pieces: impl IntoIterator<Item = &'a [u8]>) -> Decoded {
    let (mut decoder, mut bytes) = (FrameDecoder::new(role, limits), BytesMut::new());
    let (mut events, mut fault) = (Vec::new(), None::<FrameFault>);
    for piece in pieces {
        bytes.extend_from_slice(piece);
        loop {
            match decoder.next_event(&mut bytes) {
                Ok(None) => break,
                Ok(Some(event)) => push(&mut events, event),
                Err(here) => {
                    assert!(here.reason.len() <= CLOSE_REASON_BYTES_MAX, "{here:?}");
                    assert!(fault.is_none_or(|before| before == here));
                    fault = Some(here);
                    assert!(bytes.is_empty());
                    break;
                }
            }
        }
    }
    let rest = bytes.len();
    Decoded { events, fault, rest }
}

fn decoded<'a>(role: FrameRole, pieces: impl IntoIterator<Item = &'a [u8]>) -> Decoded {
    decoded_within(LIMITS, role, pieces)
}

/// What a server makes of these bytes, which is the same byte by byte.
#[track_caller]
fn by_server(bytes: &[u8]) -> Decoded {
    let whole = decoded(FrameRole::Server, [bytes]);
    let single = decoded(FrameRole::Server, bytes.chunks(1));
    assert_eq!(without_invalid_text(single), without_invalid_text(whole.clone()));
    whole
}

/// How much of an invalid text is passed on before its fault depends on the pieces.
fn without_invalid_text(mut decoded: Decoded) -> Decoded {
    if decoded.fault.is_some_and(|fault| fault.code == INVALID_PAYLOAD) {
        while let Some(FrameEvent::Payload(_)) = decoded.events.last() {
            decoded.events.pop();
        }
    }
    decoded
}

fn push(events: &mut Vec<FrameEvent>, event: FrameEvent) {
    if let FrameEvent::Payload(piece) = &event {
        assert!(!piece.is_empty());
        if let Some(FrameEvent::Payload(before)) = events.last_mut() {
            *before = [&before[..], &piece[..]].concat().into();
            return;
        }
    }
    events.push(event);
}

fn start(kind: MessageKind, length: Option<u64>) -> FrameEvent {
    FrameEvent::MessageStart { kind, length }
}

fn payload(bytes: &[u8]) -> FrameEvent {
    FrameEvent::Payload(Bytes::copy_from_slice(bytes))
}

/// A frame with this first byte, encoded without the code that is tested.
fn frame(first: u8, payload: &[u8], mask: Option<[u8; 4]>) -> Vec<u8> {
    let mask_bit = if mask.is_some() { 0x80 } else { 0 };
    let mut bytes = vec![first];
    match payload.len() {
        length @ 0..=125 => bytes.push(mask_bit | u8::try_from(length).unwrap()),
        length @ 126..=0xFFFF => {
            bytes.push(mask_bit | 126);
            bytes.extend(u16::try_from(length).unwrap().to_be_bytes());
        }
        length => {
            bytes.push(mask_bit | 127);
            bytes.extend(u64::try_from(length).unwrap().to_be_bytes());
        }
    }
    bytes.extend(mask.into_iter().flatten());
    let mask = mask.unwrap_or_default();
    bytes.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    bytes
}

fn from_client(first: u8, payload: &[u8]) -> Vec<u8> {
    frame(first, payload, MASK)
}

#[test]
fn the_examples_of_the_rfc_are_decoded() {
    let hello = [0x7F, 0x9F, 0x4D, 0x51, 0x58];
    let masked = |first: u8| [&[first, 0x85, 0x37, 0xFA, 0x21, 0x3D][..], &hello].concat();
    let text = [
        start(MessageKind::Text, Some(5)),
        payload(b"Hello"),
        FrameEvent::MessageEnd,
    ];
    assert_eq!(by_server(&masked(0x81)).events, text);
    let pong = [FrameEvent::Pong(Bytes::from_static(b"Hello"))];
    assert_eq!(by_server(&masked(0x8A)).events, pong);
    let by_client = |bytes: &[u8]| decoded(FrameRole::Client, [bytes]).events;
    assert_eq!(by_client(b"\x81\x05Hello"), text);
    let ping = [FrameEvent::Ping(Bytes::from_static(b"Hello"))];
    assert_eq!(by_client(b"\x89\x05Hello"), ping);
    let in_fragments = [
        start(MessageKind::Text, None),
        payload(b"Hello"),
        FrameEvent::MessageEnd,
    ];
    assert_eq!(by_client(b"\x01\x03Hel\x80\x02lo"), in_fragments);
    let long = [&b"\x82\x7E\x01\x00"[..], &[7; 256]].concat();
    assert_eq!(
        by_client(&long)[..2],
        [start(MessageKind::Binary, Some(256)), payload(&[7; 256])]
    );
    let longer = [&b"\x82\x7F\0\0\0\0\0\x01\0\0"[..], &[7; 65_536]].concat();
    assert_eq!(by_client(&longer)[0], start(MessageKind::Binary, Some(65_536)));
    assert_eq!(by_client(&longer)[1..], [payload(&[7; 65_536]), FrameEvent::MessageEnd]);
}

#[test]
fn a_message_is_passed_on_as_it_arrives() {
    let sent = from_client(0x81, b"hello");
    let (mut decoder, mut bytes) = (FrameDecoder::new(FrameRole::Server, LIMITS), BytesMut::new());
    let mut arrive = |piece: &[u8]| {
        bytes.extend_from_slice(piece);
        std::iter::from_fn(|| decoder.next_event(&mut bytes).unwrap()).collect::<Vec<_>>()
    };
    assert!(arrive(&sent[..5]).is_empty());
    assert_eq!(arrive(&sent[5..6]), [start(MessageKind::Text, Some(5))]);
    assert!(arrive(&[]).is_empty());
    assert_eq!(arrive(&sent[6..8]), [payload(b"he")]);
    assert_eq!(arrive(&sent[8..10]), [payload(b"ll")]);
    assert_eq!(arrive(&sent[10..]), [payload(b"o"), FrameEvent::MessageEnd]);
    assert!(arrive(&[]).is_empty());
}

#[test]
fn a_piece_is_the_memory_in_which_it_arrived() {
    let sent = from_client(0x82, &[1; 1000]);
    let mut bytes = BytesMut::from(&sent[..]);
    let payload_place = bytes[8..].as_ptr();
    let mut decoder = FrameDecoder::new(FrameRole::Server, LIMITS);
    let started = decoder.next_event(&mut bytes);
    assert_eq!(started, Ok(Some(start(MessageKind::Binary, Some(1000)))));
    let Ok(Some(FrameEvent::Payload(piece))) = decoder.next_event(&mut bytes) else {
        panic!("no payload");
    };
    assert_eq!((piece.as_ptr(), &piece[..]), (payload_place, &[1; 1000][..]));
}

#[test]
fn an_empty_message_has_no_payload() {
    let events = by_server(&from_client(0x82, b"")).events;
    assert_eq!(events, [start(MessageKind::Binary, Some(0)), FrameEvent::MessageEnd]);
    let fragments = [from_client(0x01, b""), from_client(0x00, b""), from_client(0x80, b"")].concat();
    assert_eq!(
        by_server(&fragments).events,
        [start(MessageKind::Text, None), FrameEvent::MessageEnd]
    );
}

#[test]
fn control_frames_are_passed_on_between_the_fragments_of_a_message() {
    let sent = [
        from_client(0x01, b"a"),
        from_client(0x89, b"1"),
        from_client(0x00, b"b"),
        from_client(0x8A, b""),
        from_client(0x80, b"c"),
        from_client(0x82, b"d"),
    ];
    let events = [
        start(MessageKind::Text, None),
        payload(b"a"),
        FrameEvent::Ping(Bytes::from_static(b"1")),
        payload(b"b"),
        FrameEvent::Pong(Bytes::new()),
        payload(b"c"),
        FrameEvent::MessageEnd,
        start(MessageKind::Binary, Some(1)),
        payload(b"d"),
        FrameEvent::MessageEnd,
    ];
    assert_eq!(by_server(&sent.concat()).events, events);
}

#[test]
fn a_header_that_violates_the_protocol_is_refused_at_the_byte_that_does() {
    let to_server: [&[u8]; 29] = [
        // Reserved bits.
        &[0xC1],
        &[0xA1],
        &[0x91],
        &[0xC0],
        &[0xC9],
        // Reserved opcodes.
        &[0x83],
        &[0x84],
        &[0x85],
        &[0x86],
        &[0x87],
        &[0x8B],
        &[0x8C],
        &[0x8D],
        &[0x8E],
        &[0x8F],
        &[0x03],
        &[0x0B],
        // Control frames in fragments, and with too many bytes.
        &[0x08],
        &[0x09],
        &[0x0A],
        &[0x88, 0xFE],
        &[0x89, 0xFE],
        &[0x8A, 0xFF],
        // Not masked.
        &[0x81, 0x05],
        &[0x88, 0x00],
        // Lengths that have a shorter form, and one with the top bit.
        &[0x81, 0xFE, 0x00, 0x7D],
        &[0x82, 0xFE, 0x00, 0x00],
        &[0x81, 0xFF, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF],
        &[0x81, 0xFF, 0x80, 0, 0, 0, 0, 0, 0, 0],
    ];
    for bytes in to_server {
        let before = by_server(&bytes[..bytes.len() - 1]);
        assert_eq!((before.fault, before.events.len()), (None, 0), "{bytes:02X?}");
        let fault = by_server(bytes).fault.map(|fault| fault.code);
        assert_eq!(fault, Some(PROTOCOL_ERROR), "{bytes:02X?}");
    }
    let masked = decoded(FrameRole::Client, [&[0x81, 0x85][..]]);
    assert_eq!(masked.fault.map(|fault| fault.code), Some(PROTOCOL_ERROR));
}

#[test]
fn the_frames_of_two_messages_do_not_mix() {
    let cases = [
        from_client(0x80, b"a"),
        from_client(0x00, b"a"),
        [from_client(0x01, b"a"), from_client(0x81, b"b")].concat(),
        [from_client(0x02, b"a"), from_client(0x02, b"b")].concat(),
        [from_client(0x81, b"a"), from_client(0x80, b"b")].concat(),
    ];
    for sent in cases {
        let fault = by_server(&sent).fault.map(|fault| fault.code);
        assert_eq!(fault, Some(PROTOCOL_ERROR), "{sent:02X?}");
    }
}

#[test]
fn nothing_is_decoded_after_a_fault() {
    let sent = [from_client(0x81, b"a"), vec![0xFF], from_client(0x81, b"b")].concat();
    let decoded = by_server(&sent);
    assert_eq!(decoded.events.len(), 3);
    assert_eq!(decoded.fault.map(|fault| fault.code), Some(PROTOCOL_ERROR));
}

#[test]
fn a_message_beyond_the_limit_is_refused_at_its_header() {
    let limits = FrameLimits {
        message_bytes_max: 300,
        fragments_max: 3,
    };
    let decoded = |bytes: &[u8]| decoded_within(limits, FrameRole::Server, [bytes]);
    let at_limit = decoded(&from_client(0x82, &[0; 300]));
    assert_eq!((at_limit.fault, at_limit.events.len()), (None, 3));
    // Of the next message only the header arrives.
    let beyond = decoded(&from_client(0x82, &[0; 301])[..8]);
    assert_eq!(beyond.fault.map(|fault| fault.code), Some(TOO_BIG));
    let largest = [0x82, 0xFF, 0x7F, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0];
    assert_eq!(decoded(&largest).fault.map(|fault| fault.code), Some(TOO_BIG));
    let fragments = |last: usize| [from_client(0x02, &[0; 200]), from_client(0x80, &vec![0; last])].concat();
    assert_eq!(decoded(&fragments(100)).fault, None);
    let beyond = decoded(&fragments(101)[..200 + 8 + 6]);
    assert_eq!(beyond.fault.map(|fault| fault.code), Some(TOO_BIG));
    // Control frames do not count.
    let with_pings = [
        from_client(0x02, &[0; 200]),
        from_client(0x89, &[0; 125]),
        from_client(0x80, &[0; 100]),
    ];
    assert_eq!(decoded(&with_pings.concat()).fault, None);
}

#[test]
fn a_message_with_too_many_fragments_is_refused() {
    let limits = FrameLimits {
        message_bytes_max: 300,
        fragments_max: 3,
    };
    let sent = |continuations: usize| {
        let between = from_client(0x00, b"").repeat(continuations);
        [from_client(0x01, b""), between, from_client(0x80, b"")].concat()
    };
    let decoded = |bytes: &[u8]| {
        decoded_within(limits, FrameRole::Server, [bytes])
            .fault
            .map(|fault| fault.code)
    };
    assert_eq!(decoded(&sent(1)), None);
    // Each message may have as many.
    assert_eq!(decoded(&[sent(1), sent(1)].concat()), None);
    assert_eq!(decoded(&sent(2)), Some(TOO_BIG));
}

#[test]
fn a_close_frame_is_the_last_one() {
    let closed = |payload: &[u8]| {
        let sent = [
            from_client(0x01, b"a"),
            from_client(0x88, payload),
            from_client(0x89, b""),
            vec![0xFF],
        ];
        let decoded = by_server(&sent.concat());
        assert_eq!((decoded.fault, decoded.rest), (None, 0));
        decoded.events[2..].to_vec()
    };
    assert_eq!(closed(b""), [FrameEvent::Close(None)]);
    assert_eq!(closed(b"\x03\xE8"), [FrameEvent::Close(Some((1000, String::new())))]);
    let reason = "a reason: \u{20AC}";
    let with_reason = [&b"\x03\xE9"[..], reason.as_bytes()].concat();
    assert_eq!(
        closed(&with_reason),
        [FrameEvent::Close(Some((1001, reason.to_owned())))]
    );
    let longest = [&b"\x0B\xB8"[..], &[b'x'; 123]].concat();
    assert_eq!(closed(&longest), [FrameEvent::Close(Some((3000, "x".repeat(123))))]);
}

#[test]
fn a_close_frame_has_a_code_that_can_be_sent() {
    let named = [1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014];
    let sendable = |code: u16| named.contains(&code) || (3000..5000).contains(&code);
    for code in (0..5100).chain([u16::MAX]) {
        let decoded = decoded(FrameRole::Server, [&from_client(0x88, &code.to_be_bytes())[..]]);
        if sendable(code) {
            assert_eq!(decoded.events, [FrameEvent::Close(Some((code, String::new())))]);
        } else {
            let fault = decoded.fault.map(|fault| fault.code);
            assert_eq!((fault, decoded.events.len()), (Some(PROTOCOL_ERROR), 0), "{code}");
        }
    }
    let code = |payload: &[u8]| by_server(&from_client(0x88, payload)).fault.map(|fault| fault.code);
    assert_eq!(code(b"\x03"), Some(PROTOCOL_ERROR));
    assert_eq!(code(b"\x03\xE8\xE2\x82"), Some(INVALID_PAYLOAD));
}

#[test]
fn a_header_is_written_in_its_shortest_form() {
    for length in [0, 1, 125, 126, 65_535, 65_536] {
        for mask in [None, MASK] {
            for (kind, first) in [(MessageKind::Text, 0x81), (MessageKind::Binary, 0x82)] {
                let mut out = BytesMut::from("before");
                write_message_header(&mut out, kind, length as u64, mask);
                let expected = frame(first, &vec![0; length], mask);
                assert_eq!(out[6..], expected[..expected.len() - length], "{length} {mask:?}");
            }
        }
    }
    let mut out = BytesMut::new();
    write_text_header(&mut out, 2, None);
    assert_eq!(out[..], [0x81, 2]);
}

#[test]
fn a_control_frame_is_written_with_at_most_125_bytes() {
    for mask in [None, MASK] {
        for (opcode, first) in [
            (ControlOpcode::Close, 0x88),
            (ControlOpcode::Ping, 0x89),
            (ControlOpcode::Pong, 0x8A),
        ] {
            for (length, written) in [(0, 0), (1, 1), (125, 125), (126, 125)] {
                let mut out = BytesMut::from("before");
                write_control(&mut out, opcode, &vec![b'x'; length], mask);
                assert_eq!(out[6..], frame(first, &vec![b'x'; written], mask));
            }
        }
        for (reason, written) in [
            (String::new(), 0),
            ("x".repeat(123), 123),
            ("x".repeat(124), 123),
            ("\u{E9}".repeat(61), 122),
            ("\u{E9}".repeat(62), 122),
            ("\u{E9}".repeat(500), 122),
        ] {
            let mut out = BytesMut::new();
            write_close(&mut out, 1008, &reason, mask);
            let payload = [&1008_u16.to_be_bytes()[..], &reason.as_bytes()[..written]].concat();
            assert_eq!(out[..], frame(0x88, &payload, mask), "{reason}");
        }
    }
}

#[test]
fn a_handshake_is_accepted_with_the_key_of_the_rfc() {
    let accepted = accept_key("dGhlIHNhbXBsZSBub25jZQ==");
    assert_eq!(accepted.as_deref(), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
}

#[test]
fn a_key_is_the_base64_form_of_16_bytes() {
    assert!(accept_key("AAAAAAAAAAAAAAAAAAAAAA==").is_some());
    for key in [
        "",
        "dGhlIHNhbXBsZSBub25jZQ",
        " dGhlIHNhbXBsZSBub25jZQ==",
        "dGhlIHNhbXBsZSBub25jZQ= ",
        // 15, 17 and 18 bytes, and a letter that is not in the alphabet.
        "AAAAAAAAAAAAAAAAAAAA",
        "AAAAAAAAAAAAAAAAAAAAAAA=",
        "AAAAAAAAAAAAAAAAAAAAAAAA",
        "AAAAAAAAAAAAAAAAAAAA_A==",
    ] {
        assert_eq!(accept_key(key), None, "{key:?}");
    }
}
