//! Tests of `row_json`, and rows for other tests.

use proptest::prelude::*;
use smol_str::SmolStr;

use super::*;
use crate::domain::{
    keys::KeyId,
    ledger::{
        consumption::{CostShare, UsageSource},
        ids::Tag,
    },
    money::NanoUsd,
    wire::usage::RunKind,
};

/// Strings of different lengths, with and without characters that must be escaped.
pub(in crate::domain::ledger) fn text() -> impl Strategy<Value = String> {
    prop_oneof![3 => "[a-z0-9_.-]{0,40}", 1 => any::<String>(), 1 => "[a-z\"\\\\\n\u{1f}\u{7f}é中]{0,40}"]
}

pub(in crate::domain::ledger) fn count() -> impl Strategy<Value = u64> {
    prop_oneof![2 => Just(0), 2 => 0..10_000_u64, 1 => any::<u64>()]
}

pub(in crate::domain::ledger) fn usage() -> impl Strategy<Value = Usage> {
    prop::collection::vec(count(), Usage::NAMES.len()).prop_map(|counts| Usage::from_parts(counts.try_into().unwrap()))
}

pub(in crate::domain::ledger) fn source() -> impl Strategy<Value = UsageSource> {
    prop::sample::select(UsageSource::ALL.to_vec())
}

pub(in crate::domain::ledger) fn modifiers() -> impl Strategy<Value = PriceModifiers> {
    let name = || prop::option::weighted(0.3, text());
    (name(), name(), name()).prop_map(|(service_tier, speed, geo)| PriceModifiers {
        service_tier: service_tier.map(SmolStr::from),
        speed: speed.map(SmolStr::from),
        geo: geo.map(SmolStr::from),
    })
}

pub(in crate::domain::ledger) fn parts() -> impl Strategy<Value = Vec<CostShare>> {
    let versions = (prop::option::of(text()), prop::option::of(text()));
    let run = prop::sample::select(RunKind::ALL.to_vec());
    let part = (run, text(), usage(), versions, count()).prop_map(
        |(run, model, usage, (priced_as, price_version), above_input_tokens)| CostShare {
            run,
            model,
            usage,
            priced_as,
            price_version,
            above_input_tokens,
            cost_nano_usd: NanoUsd::from_nanos(7),
        },
    );
    prop_oneof![3 => Just(Vec::new()), 1 => prop::collection::vec(part, 1..3)]
}

pub(in crate::domain::ledger) fn tags() -> impl Strategy<Value = Vec<Tag>> {
    let tag = "[a-z]{1,8}=[a-z0-9:/@+]{1,20}".prop_map(|text| Tag::parse(&text).unwrap());
    prop_oneof![3 => Just(Vec::new()), 1 => prop::collection::vec(tag, 1..4)]
}

fn losses() -> impl Strategy<Value = Vec<SmolStr>> {
    prop_oneof![3 => Just(Vec::new()), 1 => prop::collection::vec(text().prop_map(SmolStr::from), 1..4)]
}

fn transport() -> impl Strategy<Value = RequestTransport> {
    prop_oneof![Just(RequestTransport::Http), Just(RequestTransport::WebSocket)]
}

/// Any row.
pub(in crate::domain::ledger) fn row() -> BoxedStrategy<Row> {
    let texts = (text(), text(), text(), text(), text(), text(), text());
    let numbers = (any::<i64>(), any::<i64>(), any::<u16>(), any::<i64>(), count());
    let options = (
        prop::option::of(count()),
        prop::option::of(any::<i64>()),
        prop::option::of(any::<u32>()),
    );
    let way = (transport(), prop::option::weighted(0.3, text()), losses());
    let kept = (usage(), source(), parts(), modifiers(), tags());
    (texts, numbers, options, kept, way, any::<bool>(), "[A-Za-z0-9]{16}")
        .prop_map(|(texts, numbers, (ttft_ms, hold, attempts), kept, way, stream, key)| {
            let (transport, translated, losses) = way;
            let (request_id, account, protocol, model_asked, model, provider, price_version) = texts;
            let (time_ms, admitted_ms, status, cost, latency_ms) = numbers;
            let (usage, usage_source, parts, modifiers, tags) = kept;
            Row {
                time_ms,
                admitted_ms,
                request_id: request_id.into(),
                account: account.into(),
                key_id: KeyId::parse(&format!("key_{key}")).unwrap(),
                protocol: protocol.into(),
                model_asked: model_asked.into(),
                model: model.into(),
                provider: provider.into(),
                status,
                outcome: "ok".into(),
                stream,
                tags,
                usage,
                usage_source,
                parts,
                modifiers,
                price_version: price_version.into(),
                cost_nano_usd: NanoUsd::from_nanos(cost),
                latency_ms,
                ttft_ms,
                hold_nano_usd: hold.map(NanoUsd::from_nanos),
                attempts,
                transport,
                translated: translated.map(SmolStr::from),
                losses,
            }
        })
        .boxed()
}

proptest! {
    #[test]
    fn a_row_is_written_as_serde_writes_it(row in row()) {
        let mut written = b"before".to_vec();
        row.write_json(&mut written).unwrap();
        let by_serde = [b"before".as_slice(), &serde_json::to_vec(&row).unwrap()].concat();
        prop_assert_eq!(String::from_utf8(written), String::from_utf8(by_serde));
    }
}
