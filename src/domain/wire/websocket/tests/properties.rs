//! Properties of the decoder and of what it is built from, over any bytes in any pieces.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::*;
use crate::domain::wire::websocket::Utf8Check;

/// The pieces of `bytes` between these places, some of them empty.
fn pieces<'a>(bytes: &'a [u8], cuts: &[Index]) -> Vec<&'a [u8]> {
    let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
    places.sort_unstable();
    let starts = std::iter::once(0).chain(places.iter().copied());
    let ends = places.iter().copied().chain([bytes.len()]);
    starts.zip(ends).map(|(start, end)| &bytes[start..end]).collect()
}

fn cuts() -> impl Strategy<Value = Vec<Index>> {
    vec(any::<Index>(), 0..8)
}

fn roles() -> impl Strategy<Value = FrameRole> {
    select(vec![FrameRole::Server, FrameRole::Client])
}

fn texts() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<char>(), 0..30).prop_map(|text| text.into_iter().collect::<String>().into_bytes())
}

fn payloads() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => texts(),
        2 => vec(any::<u8>(), 0..30),
        1 => vec(any::<u8>(), 120..130),
        1 => (65_530..65_540_usize).prop_map(|length| vec![b'x'; length]),
    ]
}

/// Frames that follow each other as they may, most of the time, and in which any byte may be another one.
fn wires() -> impl Strategy<Value = Vec<u8>> {
    let firsts = prop_oneof![
        20 => select(vec![0x81_u8, 0x82, 0x01, 0x02, 0x00, 0x80, 0x88, 0x89, 0x8A]),
        1 => any::<u8>(),
    ];
    let masks = prop_oneof![4 => any::<[u8; 4]>().prop_map(Some), 1 => Just(None::<[u8; 4]>)];
    let frames = vec((firsts, payloads(), masks), 0..8);
    let frames = frames.prop_map(|frames| {
        let bytes = |(first, payload, mask): &(u8, Vec<u8>, Option<[u8; 4]>)| frame(*first, payload, *mask);
        frames.iter().flat_map(bytes).collect::<Vec<u8>>()
    });
    let changes = vec((any::<Index>(), any::<u8>()), 0..2);
    (frames, changes).prop_map(|(mut bytes, changes)| {
        if !bytes.is_empty() {
            for (place, byte) in changes {
                let place = place.index(bytes.len());
                bytes[place] = byte;
            }
        }
        bytes
    })
}

/// A message to be sent, in a frame for each piece.
#[derive(Clone, Debug)]
struct SentMessage {
    kind: MessageKind,
    payload: Vec<u8>,
    cuts: Vec<Index>,
    /// The payload of a ping that is sent before each frame but the first.
    ping: Option<Vec<u8>>,
    mask: [u8; 4],
}

fn messages() -> impl Strategy<Value = SentMessage> {
    let contents = prop_oneof![
        texts().prop_map(|text| (MessageKind::Text, text)),
        payloads().prop_map(|bytes| (MessageKind::Binary, bytes)),
    ];
    let pings = prop_oneof![Just(None::<Vec<u8>>), vec(any::<u8>(), 0..=125).prop_map(Some)];
    let parts = (contents, cuts(), pings, any::<[u8; 4]>());
    parts.prop_map(|((kind, payload), cuts, ping, mask)| SentMessage {
        kind,
        payload,
        cuts,
        ping,
        mask,
    })
}

impl SentMessage {
    /// Writes the message for this receiver, and what the receiver is to make of it.
    fn write(&self, receiver: FrameRole, out: &mut BytesMut, events: &mut Vec<FrameEvent>) {
        let mask = (receiver == FrameRole::Server).then_some(self.mask);
        let frames = pieces(&self.payload, &self.cuts);
        let length = (frames.len() == 1).then(|| u64::try_from(self.payload.len()).unwrap());
        events.push(start(self.kind, length));
        for (number, piece) in frames.iter().enumerate() {
            if let Some(ping) = self.ping.as_ref().filter(|_| number > 0) {
                write_control(out, ControlOpcode::Ping, ping, mask);
                events.push(FrameEvent::Ping(Bytes::copy_from_slice(ping)));
            }
            let header = FrameHeader {
                is_final: number + 1 == frames.len(),
                opcode: match number {
                    0 => Opcode::Message(self.kind),
                    _ => Opcode::Continuation,
                },
                length: u64::try_from(piece.len()).unwrap(),
                mask,
            };
            header.write(out);
            let begin = out.len();
            out.extend_from_slice(piece);
            if let Some(mask) = mask {
                mask_in_place(&mut out[begin..], mask, 0);
            }
            if !piece.is_empty() {
                push(events, payload(piece));
            }
        }
        events.push(FrameEvent::MessageEnd);
    }
}

proptest! {
    #[test]
    fn pieces_do_not_matter(bytes in wires(), role in roles(), cuts in cuts()) {
        let whole = without_invalid_text(decoded(role, [&bytes[..]]));
        prop_assert_eq!(&without_invalid_text(decoded(role, pieces(&bytes, &cuts))), &whole);
        if bytes.len() < 4096 {
            prop_assert_eq!(&without_invalid_text(decoded(role, bytes.chunks(1))), &whole);
        }
    }

    #[test]
    fn any_bytes_have_an_end(bytes in vec(any::<u8>(), 0..200), role in roles(), step in 1..20_usize) {
        let whole = without_invalid_text(decoded(role, [&bytes[..]]));
        prop_assert_eq!(without_invalid_text(decoded(role, bytes.chunks(step))), whole);
    }

    #[test]
    fn what_is_encoded_is_decoded(
        messages in vec(messages(), 0..5),
        receiver in roles(),
        cuts in cuts(),
        code in select(vec![1000_u16, 1012, 4999]),
    ) {
        let (mut sent, mut events) = (BytesMut::new(), Vec::new());
        for message in &messages {
            message.write(receiver, &mut sent, &mut events);
        }
        let mask = (receiver == FrameRole::Server).then_some([9, 8, 7, 6]);
        write_close(&mut sent, code, "the end", mask);
        events.push(FrameEvent::Close(Some((code, "the end".to_owned()))));
        let received = decoded(receiver, pieces(&sent, &cuts));
        prop_assert_eq!(received, Decoded { events, fault: None, rest: 0 });
    }

    #[test]
    fn a_payload_can_be_masked_in_pieces(bytes in vec(any::<u8>(), 0..100), mask: [u8; 4], cut: Index) {
        let expected: Vec<u8> = bytes.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask).collect();
        let mut masked = bytes.clone();
        let cut = cut.index(bytes.len() + 1);
        mask_in_place(&mut masked[cut..], mask, cut);
        mask_in_place(&mut masked[..cut], mask, 0);
        prop_assert_eq!(&masked, &expected);
        mask_in_place(&mut masked, mask, 0);
        prop_assert_eq!(masked, bytes);
    }

    #[test]
    fn a_text_in_pieces_is_valid_when_the_whole_text_is(
        bytes in prop_oneof![texts(), vec(any::<u8>(), 0..8), vec(select(b"\xE2\x82\xAC\xF0\x9F\x98\x80a".to_vec()), 0..12)],
        cuts in cuts(),
    ) {
        let mut check = Utf8Check::default();
        let in_pieces = pieces(&bytes, &cuts).into_iter().try_for_each(|piece| check.push(piece));
        match std::str::from_utf8(&bytes) {
            Ok(_) => prop_assert!(in_pieces.is_ok() && check.is_complete()),
            Err(error) if error.error_len().is_none() => prop_assert!(in_pieces.is_ok() && !check.is_complete()),
            Err(_) => prop_assert!(in_pieces.is_err()),
        }
    }
}
