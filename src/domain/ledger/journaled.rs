//! The records of a node's journal. They suffice to charge every admitted request exactly once, even after a crash, and to
//! restore data that a store has lost.
//!
//! The first byte of a record is the version, and the second byte is the kind. The other bytes are either the fields in their
//! order or JSON. No byte is zero. The unused space of a segment consists of zeros, so a write that a crash has cut short can be
//! distinguished from damage (`journal/replay.rs`).
//!
//! - A number has seven bits in each byte, the lowest bits first. If the highest bit of a byte is set, another byte follows. The
//!   last byte contains its seven bits plus one, so that it is never zero.
//! - A signed number is stored as an unsigned one: 0, -1, 1, -2, ... are stored as 0, 1, 2, 3, ...
//! - A string is its length in bytes, followed by its UTF-8. Each zero byte in it is replaced by two bytes that never occur in
//!   UTF-8.

mod read;
#[cfg(test)]
mod tests;
mod written;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use crate::domain::{
    keys::{KeyId, KeyRecord, secret::KeyDigest},
    ledger::{
        AccountRecord, Settlement, Step,
        consumption::{CostShare, PriceModifiers, Row, UsageSource},
        lease::LeaseId,
    },
    money::NanoUsd,
    wire::usage::Usage,
};

pub use crate::domain::ledger::journaled::read::reread;

/// The version of the record format. It is the first byte of each record, and differs from the byte that fills filler frames.
const VERSION: u8 = 2;

/// The kinds of records. The kind is the second byte of a record. Records that are written for each request have a binary form;
/// the others are JSON.
mod kind {
    /// The kind of [`super::Record::Admit`].
    pub(super) const ADMIT: u8 = 1;
    /// The kind of [`super::Record::Checkpoints`].
    pub(super) const CHECKPOINTS: u8 = 2;
    /// A step with the settlement of a billed request. The settlement can be computed from the request's row.
    pub(super) const CHARGE: u8 = 3;
    /// A step with the settlement of a request that is not billed.
    pub(super) const RELEASE: u8 = 4;
    /// A step of any other kind, as JSON.
    pub(super) const STEP: u8 = 5;
    /// A record of any other kind, as JSON.
    pub(super) const OTHER: u8 = 6;
}

/// Flags for the optional fields of a row or a checkpoint.
mod has {
    pub(super) const SERVICE_TIER: u64 = 1;
    pub(super) const SPEED: u64 = 1 << 1;
    pub(super) const GEO: u64 = 1 << 2;
    pub(super) const PARTS: u64 = 1 << 3;
    pub(super) const TTFT: u64 = 1 << 4;
    pub(super) const STREAM: u64 = 1 << 5;
    pub(super) const HOLD: u64 = 1 << 6;
    pub(super) const ATTEMPTS: u64 = 1 << 7;
    pub(super) const TAGS: u64 = 1 << 8;
    pub(super) const LEASE: u64 = 1 << 9;
    /// The request arrived on a client's WebSocket.
    pub(super) const WEB_SOCKET: u64 = 1 << 10;
    pub(super) const TRANSLATED: u64 = 1 << 11;
    pub(super) const LOSSES: u64 = 1 << 12;
    /// This flag and the next one are flags for a part of a row.
    pub(super) const PRICED_AS: u64 = 1;
    pub(super) const PRICE_VERSION: u64 = 1 << 1;
}

/// A record of the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum Record {
    /// A request is about to be forwarded. A step that settles the request follows this record, at the latest when weir starts
    /// again.
    #[serde(skip)]
    Admit(Box<AdmittedRequest>),
    /// The consumption of running requests up to now.
    #[serde(skip)]
    Checkpoints(Vec<Checkpoint>),
    /// A numbered change of an account: a settlement, or a change of the balance by an operator.
    Step {
        /// The account that changes.
        account: SmolStr,
        /// The change with its number.
        step: Step,
    },
    /// A key's record in the store, at one revision.
    Key {
        /// The digest of the key's secret, by which the store finds the key.
        digest: KeyDigest,
        /// The key's record.
        record: Box<KeyRecord>,
    },
    /// An account's record in the store, at one revision.
    Account {
        /// The account's name.
        account: SmolStr,
        /// The settings that operators have made for the account.
        record: AccountRecord,
    },
    /// A key was deleted.
    KeyGone {
        /// The id of the deleted key.
        id: KeyId,
        /// The key's last revision.
        revision: u64,
    },
}

/// A request with the data that is available at its admission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AdmittedRequest {
    /// The row that is used if weir crashes before the answer's head arrives. Its cost is the cost of the estimated input without
    /// a cache, at the most expensive of the request's providers.
    pub row: Arc<Row>,
    /// The number of tokens that admission has deducted from the limit of tokens per minute.
    pub tokens_estimated: u64,
    /// The lease from which the request was admitted; `None` if the request has a hold of its own.
    pub lease: Option<LeaseId>,
}

impl AdmittedRequest {
    /// Returns the settlement that ends the request's hold without a charge.
    pub(crate) fn without_charge(self) -> Settlement {
        let (request, key) = (self.row.request_id.clone(), self.row.key_id.clone());
        Settlement::without_charge(request, key, self.row.admitted_ms, self.tokens_estimated).with_lease(self.lease)
    }
}

/// The consumption of a running request up to now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Checkpoint {
    /// The request id that weir has assigned.
    pub request: SmolStr,
    /// The HTTP status of the answer; 0 before the answer's head has arrived.
    pub status: u16,
    /// The tokens that were used up to now.
    pub usage: Usage,
    /// Whether the usage is reported or estimated.
    pub source: UsageSource,
    /// The properties of the answer that modify its price, such as the service tier.
    pub modifiers: PriceModifiers,
    /// The consumption of each model; empty if only the requested model runs, in one price tier.
    pub parts: Vec<CostShare>,
    /// The cost up to now.
    pub cost: NanoUsd,
    /// The provider of the current attempt.
    pub provider: SmolStr,
    /// The number of milliseconds since the request's arrival.
    pub latency_ms: u64,
    /// The number of milliseconds from the request's arrival to the answer's first content; `None` before that.
    pub ttft_ms: Option<u64>,
    /// The number of attempts at providers.
    pub attempts: u32,
}

/// The bit that is set in a byte if the number continues in the next byte.
const MORE: u8 = 0x80;
const BITS: u32 = 7;
/// The two bytes that replace a zero byte in a string.
const ZERO: [u8; 2] = [0xC0, 0x80];

/// A writer that appends numbers and strings in the form that records use.
struct RecordWriter<'a> {
    out: &'a mut Vec<u8>,
    /// Whether zero bytes in strings are replaced.
    escapes: bool,
}

/// Calls `write` to append bytes to `out`. If these bytes contain a zero byte, they are removed, and `write` is called a second
/// time with a writer that replaces the zero bytes in strings. This is rare, and checking every string first would take longer.
fn without_zeros(out: &mut Vec<u8>, write: impl Fn(&mut RecordWriter<'_>)) {
    let begin = out.len();
    write(&mut RecordWriter { out, escapes: false });
    if memchr::memchr(0, out.get(begin..).unwrap_or_default()).is_some() {
        out.truncate(begin);
        write(&mut RecordWriter { out, escapes: true });
    }
}

impl RecordWriter<'_> {
    /// Appends a number.
    fn number(&mut self, number: u64) {
        let mut left = number;
        loop {
            let [low, ..] = left.to_le_bytes();
            if left < u64::from(!MORE) {
                return self.out.push(low + 1);
            }
            self.out.push(low | MORE);
            left >>= BITS;
        }
    }

    /// Appends a signed number.
    fn signed(&mut self, number: i64) {
        self.number(((number << 1) ^ (number >> (i64::BITS - 1))).cast_unsigned());
    }

    /// Appends a string.
    fn text(&mut self, text: &str) {
        let bytes = text.as_bytes();
        if self.escapes && bytes.contains(&0) {
            let parts: Vec<&[u8]> = bytes.split(|byte| *byte == 0).collect();
            return self.bytes(&parts.join(ZERO.as_slice()));
        }
        self.bytes(bytes);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.out.extend_from_slice(bytes);
    }
}

/// A reader for bytes that [`RecordWriter`] has written. Its methods return `None` for any other bytes.
struct RecordReader<'a>(&'a [u8]);

impl RecordReader<'_> {
    /// Whether all bytes were read.
    fn is_at_end(&self) -> bool {
        self.0.is_empty()
    }

    /// Reads a number.
    fn number(&mut self) -> Option<u64> {
        let (mut number, mut shift) = (0, 0);
        loop {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            let is_last = byte & MORE == 0;
            let bits = u64::from(if is_last { byte.checked_sub(1)? } else { byte & !MORE });
            let place = bits.checked_shl(shift)?;
            if place >> shift != bits {
                return None;
            }
            number |= place;
            if is_last {
                return Some(number);
            }
            shift += BITS;
        }
    }

    /// Reads a signed number.
    fn signed(&mut self) -> Option<i64> {
        let number = self.number()?;
        Some((number >> 1).cast_signed() ^ -(number & 1).cast_signed())
    }

    /// Reads a string.
    fn text(&mut self) -> Option<SmolStr> {
        self.text_as(|text| Some(text.into()))
    }

    /// Reads a string and converts it with `read`.
    fn text_as<T>(&mut self, read: impl FnOnce(&str) -> Option<T>) -> Option<T> {
        let length = usize::try_from(self.number()?).ok()?;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        match std::str::from_utf8(bytes) {
            Ok(text) => read(text),
            Err(_) => read(&with_zeros(bytes)?),
        }
    }
}

/// Returns the string with each [`ZERO`] replaced by a zero byte; `None` if the result is not valid UTF-8.
fn with_zeros(bytes: &[u8]) -> Option<String> {
    let [first, second] = ZERO;
    let mut parts = bytes.split(|byte| *byte == first);
    let mut text = parts.next()?.to_vec();
    for part in parts {
        text.push(0);
        text.extend_from_slice(part.strip_prefix(&[second])?);
    }
    String::from_utf8(text).ok()
}

/// The status in the row of a request that a crash of weir has ended before the head of the answer arrived. A proxy in front of
/// weir sends the client this status.
pub(crate) const CRASH_STATUS: u16 = 502;

/// Returns the settlement of a request that was running when weir crashed. It charges the consumption in the request's last
/// checkpoint. If there is no checkpoint, it charges the cost in the row that was created at the request's admission.
pub(crate) fn settlement_after_crash(admitted: AdmittedRequest, checkpoint: Option<Checkpoint>) -> Settlement {
    let AdmittedRequest {
        row: mut shared,
        tokens_estimated,
        lease,
    } = admitted;
    let row = Arc::make_mut(&mut shared);
    if let Some(last) = checkpoint {
        // Both the latency in the row and that in the checkpoint are counted from the request's arrival.
        let later = last.latency_ms.saturating_sub(row.latency_ms);
        row.time_ms = row.time_ms.saturating_add(i64::try_from(later).unwrap_or(i64::MAX));
        row.provider = last.provider;
        row.status = last.status;
        row.usage = last.usage;
        row.usage_source = last.source;
        row.parts = last.parts;
        row.modifiers = last.modifiers;
        row.cost_nano_usd = last.cost;
        row.latency_ms = row.latency_ms.max(last.latency_ms);
        row.ttft_ms = last.ttft_ms;
        row.attempts = Some(last.attempts);
    }
    if row.status == 0 {
        row.status = CRASH_STATUS;
    }
    Settlement::of(shared, tokens_estimated).with_lease(lease)
}

/// Returns the settlement of a request that was already charged. It ends the request and has no other effect.
pub(crate) fn settlement_of_charged(admitted: AdmittedRequest) -> Settlement {
    Settlement {
        tokens_estimated: 0,
        ..admitted.without_charge()
    }
}

#[cfg(test)]
mod bytes_tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_number_takes_a_byte_for_seven_bits() {
        for (number, bytes) in [
            (0, vec![1]),
            (126, vec![127]),
            (127, vec![255, 1]),
            (128, vec![128, 2]),
            ((127 << 7) - 1, vec![255, 127]),
            (u64::MAX, [vec![255; 9], vec![2]].concat()),
        ] {
            let mut out = Vec::new();
            without_zeros(&mut out, |to| to.number(number));
            assert_eq!(out, bytes, "{number}");
            assert_eq!(RecordReader(&out).number(), Some(number));
        }
        for bad in [
            &[][..],
            &[0],
            &[128],
            &[255; 10],
            &[255, 255, 255, 255, 255, 255, 255, 255, 255, 3],
        ] {
            assert_eq!(RecordReader(bad).number(), None, "{bad:?}");
        }
    }

    #[test]
    fn a_text_with_zeros_is_escaped_and_nothing_else_is() {
        for (text, bytes) in [
            ("", &[1][..]),
            ("é", &[3, 0xC3, 0xA9]),
            ("\0a\0", &[6, 0xC0, 0x80, b'a', 0xC0, 0x80]),
        ] {
            let mut out = Vec::new();
            without_zeros(&mut out, |to| to.text(text));
            assert_eq!(out, bytes);
        }
        for bad in [&[3, 0xC0, b'a'][..], &[2, 0xC0], &[2, 0xFF], &[3, b'a']] {
            assert_eq!(RecordReader(bad).text(), None, "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_and_has_no_zeros(numbers: Vec<u64>, signed: Vec<i64>, texts in prop::collection::vec("[\0a-zé]{0,9}", 0..5)) {
            let mut out = Vec::new();
            without_zeros(&mut out, |to| {
                numbers.iter().for_each(|number| to.number(*number));
                signed.iter().for_each(|number| to.signed(*number));
                texts.iter().for_each(|text| to.text(text));
            });
            prop_assert!(!out.contains(&0));
            let mut from = RecordReader(&out);
            for number in numbers {
                prop_assert_eq!(from.number(), Some(number));
            }
            for number in signed {
                prop_assert_eq!(from.signed(), Some(number));
            }
            for text in texts {
                prop_assert_eq!(from.text(), Some(text.into()));
            }
            prop_assert!(from.is_at_end());
        }
    }
}

#[cfg(test)]
mod crash_tests {
    use super::*;
    use crate::domain::{
        keys::KeyId,
        ledger::consumption::{CRASH, CostShare, PriceModifiers, RequestTransport, Row, UsageSource},
        money::NanoUsd,
        wire::usage::{RunKind, Usage},
    };

    fn admitted() -> AdmittedRequest {
        let row = Arc::new(Row {
            time_ms: 9_990,
            admitted_ms: 9_990,
            request_id: "r1".into(),
            account: "acme".into(),
            key_id: KeyId::parse("key_0123456789abcdef").unwrap(),
            protocol: "messages".into(),
            model_asked: "m".into(),
            model: "m".into(),
            provider: "first".into(),
            status: 0,
            outcome: CRASH.into(),
            stream: true,
            tags: Vec::new(),
            usage: Usage {
                input_uncached: 100,
                ..Usage::default()
            },
            usage_source: UsageSource::Estimated,
            parts: Vec::new(),
            modifiers: PriceModifiers::default(),
            price_version: "v1".into(),
            cost_nano_usd: NanoUsd::from_nanos(100),
            latency_ms: 20,
            ttft_ms: None,
            hold_nano_usd: None,
            attempts: None,
            transport: RequestTransport::WebSocket,
            translated: None,
            losses: Vec::new(),
        });
        AdmittedRequest {
            row,
            tokens_estimated: 700,
            lease: None,
        }
    }

    fn part() -> CostShare {
        CostShare {
            run: RunKind::Advisor,
            model: "n".to_owned(),
            usage: Usage {
                output_text: 7,
                ..Usage::default()
            },
            priced_as: None,
            price_version: None,
            above_input_tokens: 0,
            cost_nano_usd: NanoUsd::from_nanos(30),
        }
    }

    #[test]
    fn without_a_checkpoint_the_input_is_charged() {
        let settlement = settlement_after_crash(admitted(), None);
        let row = settlement.row.unwrap();
        assert_eq!(
            (settlement.cost, row.cost_nano_usd),
            (NanoUsd::from_nanos(100), NanoUsd::from_nanos(100))
        );
        assert_eq!((settlement.tokens_estimated, settlement.tokens_used), (700, 100));
        assert_eq!(
            (settlement.at_ms, row.time_ms, row.status, row.outcome.as_str()),
            (9_990, 9_990, 502, "crash")
        );
    }

    #[test]
    fn a_crash_leaves_what_was_held_and_no_attempts_that_nobody_counted() {
        let mut admitted = admitted();
        Arc::make_mut(&mut admitted.row).hold_nano_usd = Some(NanoUsd::from_nanos(5_000));
        let row = settlement_after_crash(admitted, None).row.unwrap();
        assert_eq!(
            (row.hold_nano_usd, row.attempts, row.transport),
            (Some(NanoUsd::from_nanos(5_000)), None, RequestTransport::WebSocket)
        );
    }

    #[test]
    fn the_last_checkpoint_is_charged() {
        let checkpoint = Checkpoint {
            request: "r1".into(),
            status: 200,
            usage: Usage {
                input_uncached: 90,
                output_text: 40,
                ..Usage::default()
            },
            source: UsageSource::Partial,
            modifiers: PriceModifiers {
                speed: Some("fast".into()),
                ..PriceModifiers::default()
            },
            parts: vec![part()],
            cost: NanoUsd::from_nanos(333),
            provider: "second".into(),
            latency_ms: 3_020,
            ttft_ms: Some(400),
            attempts: 2,
        };
        let settlement = settlement_after_crash(admitted(), Some(checkpoint));
        let row = settlement.row.unwrap();
        assert_eq!(
            (settlement.cost, settlement.tokens_used),
            (NanoUsd::from_nanos(333), 130)
        );
        assert_eq!(row.cost_nano_usd, settlement.cost);
        assert_eq!(row.parts, [part()]);
        assert_eq!((row.time_ms, row.latency_ms, row.ttft_ms), (12_990, 3_020, Some(400)));
        assert_eq!(
            (row.status, row.provider.as_str(), row.usage_source),
            (200, "second", UsageSource::Partial)
        );
        assert_eq!(
            (row.outcome.as_str(), row.modifiers.speed.as_deref()),
            ("crash", Some("fast"))
        );
        assert_eq!(row.attempts, Some(2));
    }
}
