//! Texts: they are UTF-8, wherever they are cut.

use super::*;

const TEXT: &str = "\u{3BA}\u{E9}\u{20AC}\u{FFFF}\u{1D11E}\u{10FFFF}\u{7F}\0z";

/// Bytes of which the last one cannot follow the others in UTF-8, while those before it can still become valid.
const INVALID: [&[u8]; 17] = [
    &[0x80],
    &[0xBF],
    &[0xC0],
    &[0xC1],
    &[0xF5],
    &[0xFE],
    &[0xFF],
    &[0xC3, 0x28],
    // Overlong forms.
    &[0xE0, 0x9F],
    &[0xF0, 0x8F],
    // Half a surrogate pair.
    &[0xED, 0xA0],
    // Beyond U+10FFFF.
    &[0xF4, 0x90],
    &[0xE2, 0x82, 0x41],
    &[0xE2, 0x82, 0xC3],
    &[0xF0, 0x9F, 0x41],
    &[0xF0, 0x9F, 0x98, 0x41],
    &[0xF0, 0x9F, 0x98, 0xF0],
];

#[test]
fn a_text_can_be_cut_in_the_middle_of_a_character() {
    let text = TEXT.as_bytes();
    let whole = by_server(&from_client(0x81, text));
    let length = u64::try_from(text.len()).unwrap();
    let events = [
        start(MessageKind::Text, Some(length)),
        payload(text),
        FrameEvent::MessageEnd,
    ];
    assert_eq!(whole.events, events);
    // A frame for each byte.
    let frames: Vec<u8> = text
        .iter()
        .enumerate()
        .flat_map(|(number, byte)| from_client(u8::from(number == 0), std::slice::from_ref(byte)))
        .chain(from_client(0x80, b""))
        .collect();
    let events = [start(MessageKind::Text, None), payload(text), FrameEvent::MessageEnd];
    assert_eq!(by_server(&frames).events, events);
}

#[test]
fn a_text_that_cannot_become_valid_is_refused_at_the_byte_that_shows_it() {
    let code = |sent: &[u8]| by_server(sent).fault.map(|fault| fault.code);
    for invalid in INVALID {
        // The header announces more than arrives.
        let all = [TEXT.as_bytes(), invalid, &[b'z'; 20]].concat();
        let sent = from_client(0x81, &all);
        let end = sent.len() - 20;
        assert_eq!(code(&sent[..end - 1]), None, "{invalid:02X?}");
        assert_eq!(code(&sent[..end]), Some(INVALID_PAYLOAD), "{invalid:02X?}");
        // Each byte in a frame of its own.
        let frames = |bytes: &[u8]| {
            let frames = bytes.iter().enumerate();
            frames
                .flat_map(|(number, byte)| from_client(u8::from(number == 0), std::slice::from_ref(byte)))
                .collect::<Vec<_>>()
        };
        assert_eq!(code(&frames(&invalid[..invalid.len() - 1])), None, "{invalid:02X?}");
        assert_eq!(code(&frames(invalid)), Some(INVALID_PAYLOAD), "{invalid:02X?}");
    }
}

#[test]
fn a_text_ends_with_a_complete_character() {
    for incomplete in [&[0xC3][..], &[0xE2, 0x82], &[0xF0, 0x9F, 0x98]] {
        let fragments = [from_client(0x01, incomplete), from_client(0x80, b"")].concat();
        for sent in [from_client(0x81, incomplete), fragments] {
            let decoded = by_server(&sent);
            assert_eq!(
                decoded.fault.map(|fault| fault.code),
                Some(INVALID_PAYLOAD),
                "{sent:02X?}"
            );
            assert!(!decoded.events.contains(&FrameEvent::MessageEnd));
        }
    }
}

#[test]
fn the_next_text_is_checked_from_its_own_beginning() {
    let sent = [from_client(0x81, "\u{E9}".as_bytes()), from_client(0x81, b"\xA9")].concat();
    assert_eq!(by_server(&sent).fault.map(|fault| fault.code), Some(INVALID_PAYLOAD));
}

#[test]
fn a_binary_message_contains_any_bytes() {
    for invalid in INVALID {
        let decoded = by_server(&from_client(0x82, invalid));
        assert_eq!((decoded.fault, decoded.events.len()), (None, 3));
    }
}
