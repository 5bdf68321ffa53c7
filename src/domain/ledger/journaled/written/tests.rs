//! Tests of `written`.

use proptest::prelude::*;
use smol_str::SmolStr;

use super::*;
use crate::domain::{
    keys::key::KeyId,
    ledger::{
        consumption::{Request, RequestEnd},
        node::NodeId,
    },
    wire::usage::RunKind,
};

/// Texts with and without what has to be escaped, shorter and longer than a block.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![3 => "[a-z0-9_.-]{0,40}", 1 => any::<String>(), 1 => "[a-z\"\\\\\n\u{1f}\u{7f}é中]{0,40}"]
}

fn count() -> impl Strategy<Value = u64> {
    prop_oneof![2 => Just(0), 2 => 0..10_000_u64, 1 => any::<u64>()]
}

fn usage() -> impl Strategy<Value = Usage> {
    prop::collection::vec(count(), Usage::NAMES.len()).prop_map(|counts| Usage::of_parts(counts.try_into().unwrap()))
}

fn source() -> impl Strategy<Value = UsageSource> {
    prop::sample::select(UsageSource::ALL.to_vec())
}

fn modifiers() -> impl Strategy<Value = Modifiers> {
    let name = || prop::option::weighted(0.3, text());
    (name(), name(), name()).prop_map(|(service_tier, speed, geo)| Modifiers {
        service_tier: service_tier.map(SmolStr::from),
        speed: speed.map(SmolStr::from),
        geo: geo.map(SmolStr::from),
    })
}

fn parts() -> impl Strategy<Value = Vec<Part>> {
    let part = (text(), usage(), prop::option::of(text()), count()).prop_map(
        |(model, usage, priced_as, above_input_tokens)| Part {
            run: RunKind::Fallback,
            model,
            usage,
            priced_as,
            price_version: None,
            above_input_tokens,
            cost_nano_usd: NanoUsd::from_nanos(7),
        },
    );
    prop_oneof![3 => Just(Vec::new()), 1 => prop::collection::vec(part, 1..3)]
}

fn tags() -> impl Strategy<Value = Vec<Tag>> {
    let tag = "[a-z]{1,8}=[a-z0-9:/@+]{1,20}".prop_map(|text| Tag::parse(&text).unwrap());
    prop_oneof![3 => Just(Vec::new()), 1 => prop::collection::vec(tag, 1..4)]
}

fn request() -> impl Strategy<Value = Request> {
    let texts = (text(), text(), text(), text(), text());
    let hold = prop::option::of(any::<i64>().prop_map(NanoUsd::from_nanos));
    (any::<i64>(), texts, any::<bool>(), tags(), hold).prop_map(
        |(admitted_ms, (id, account, protocol, model_asked, model), stream, tags, hold)| Request {
            admitted_ms,
            id: id.into(),
            account: account.into(),
            key: KeyId::parse("key_0123456789abcdef").unwrap(),
            protocol: protocol.into(),
            model_asked: model_asked.into(),
            model: model.into(),
            stream,
            tags,
            hold,
        },
    )
}

fn end() -> impl Strategy<Value = RequestEnd> {
    let texts = (text(), text());
    let numbers = (
        any::<i64>(),
        any::<u16>(),
        any::<i64>(),
        count(),
        prop::option::of(count()),
        prop::option::of(any::<u32>()),
    );
    (texts, numbers, usage(), source(), parts(), modifiers()).prop_map(
        |(
            (provider, price_version),
            (time_ms, status, cost, latency_ms, ttft_ms, attempts),
            usage,
            usage_source,
            parts,
            modifiers,
        )| {
            RequestEnd {
                time_ms,
                provider: provider.into(),
                status,
                outcome: "ok",
                usage,
                usage_source,
                parts,
                modifiers,
                price_version: price_version.into(),
                cost: NanoUsd::from_nanos(cost),
                latency_ms,
                ttft_ms,
                attempts,
            }
        },
    )
}

fn lease() -> impl Strategy<Value = Option<LeaseId>> {
    let holder = NodeId::none();
    prop::option::of(any::<u64>()).prop_map(move |number| {
        number.map(|number| LeaseId {
            holder: holder.clone(),
            number,
        })
    })
}

fn record() -> impl Strategy<Value = Record> {
    let admitted = (request(), text(), text(), any::<[u32; 4]>(), lease()).prop_map(
        |(request, provider, price_version, [input_tokens, input_cost, latency_ms, tokens_estimated], lease)| {
            Record::Admit(Box::new(Admitted {
                request,
                provider: provider.into(),
                price_version: price_version.into(),
                input_tokens: input_tokens.into(),
                input_cost: NanoUsd::from_nanos(input_cost.into()),
                latency_ms: latency_ms.into(),
                tokens_estimated: tokens_estimated.into(),
                lease,
            }))
        },
    );
    let checkpoint = (text(), end()).prop_map(|(request, end)| {
        Record::Checkpoint(Box::new(Checkpoint {
            request: request.into(),
            status: end.status,
            usage: end.usage,
            source: end.usage_source,
            modifiers: end.modifiers,
            parts: end.parts,
            cost: end.cost,
            provider: end.provider,
            latency_ms: end.latency_ms,
            ttft_ms: end.ttft_ms,
            attempts: end.attempts,
        }))
    });
    let step = |account, seq, settlement| Record::Step {
        account,
        step: Step {
            seq,
            change: Change::Settle(Box::new(settlement)),
        },
    };
    let charged = (text(), any::<u64>(), request(), end(), count(), lease()).prop_map(
        move |(account, seq, request, end, tokens, lease)| {
            step(
                account.into(),
                seq,
                Settlement::of(Row::new(request, end), tokens).in_lease(lease),
            )
        },
    );
    let free = (text(), any::<u64>(), request(), count()).prop_map(move |(account, seq, request, tokens)| {
        let Request {
            id, key, admitted_ms, ..
        } = request;
        step(
            account.into(),
            seq,
            Settlement::without_charge(id, key, admitted_ms, tokens),
        )
    });
    let other = (text(), any::<u64>()).prop_map(|(account, seq)| Record::Step {
        account: account.into(),
        step: Step {
            seq,
            change: Change::Suspend,
        },
    });
    prop_oneof![3 => admitted, 3 => checkpoint, 4 => charged, 1 => free, 1 => other]
}

proptest! {
    #[test]
    fn a_record_is_written_as_serde_writes_it(record in record()) {
        let mut written = b"before".to_vec();
        record.write_json(&mut written).unwrap();
        let by_serde = [b"before".as_slice(), &serde_json::to_vec(&record).unwrap()].concat();
        prop_assert_eq!(String::from_utf8(written), String::from_utf8(by_serde));
    }

    #[test]
    fn a_record_is_read_as_serde_reads_it(record in record(), moved in any::<bool>()) {
        let mut json = serde_json::to_value(&record).unwrap();
        let mut written = Vec::new();
        record.write_json(&mut written).unwrap();
        if moved && let Some(tag) = json.as_object_mut().and_then(|fields| fields.shift_remove("kind")) {
            json["kind"] = tag;
            written = json.to_string().into_bytes();
        }
        prop_assert_eq!(Record::is_step(&written), !moved && matches!(record, Record::Step { .. }));
        prop_assert_eq!(Record::read_json(&written).unwrap(), serde_json::from_slice(&written).unwrap());
    }
}

#[test]
fn a_text_is_not_taken_for_a_tag() {
    let suspended = Record::Step {
        account: r#"","change":{"op":"settle","#.into(),
        step: Step {
            seq: 1,
            change: Change::Suspend,
        },
    };
    let json = serde_json::to_vec(&suspended).unwrap();
    assert_eq!(Record::read_json(&json).unwrap(), suspended);
    assert!(
        Record::read_json(br#"{"kind":"step","account":"a","step":{"seq":1,"change":{"op":"settle","x":1}}}"#).is_err()
    );
    assert!(Record::read_json(br#"{"kind":"admit","row":1}"#).is_err());
}
