//! Periods of counters, and rows that count in other ones than their day.

use jiff::Timestamp;

use crate::domain::ledger::proof::*;

fn key_id(number: u8) -> KeyId {
    KeyId::parse(&format!("key_{number:016}")).unwrap()
}

/// A row of the first key.
fn row(ended: &str, admitted: &str, nanos: i64) -> Row {
    let (time_ms, admitted_ms) = (ms(ended), ms(admitted));
    let row = format!(
        r#"{{"time_ms":{time_ms},"admitted_ms":{admitted_ms},"request_id":"r","account":"acme",
        "key_id":"key_0000000000000001","protocol":"messages","model_asked":"m","model":"m","provider":"p","status":200,
        "outcome":"ok","stream":true,"input_uncached":5,"usage_source":"reported","price_version":"1",
        "cost_nano_usd":{nanos},"latency_ms":12,"ttft_ms":null}}"#
    );
    serde_json::from_str(&row).unwrap()
}

fn ms(text: &str) -> i64 {
    text.parse::<Timestamp>().unwrap().as_millisecond()
}

fn day(text: &str) -> i64 {
    ms(&format!("{text}T00:00:00Z")).div_euclid(DAY_MS)
}

#[test]
fn periods_are_compared_until_their_counters_may_be_gone() {
    let now = ms("2026-11-24T02:30:00Z");
    let names = |from: &str, until: &str| -> Vec<String> {
        let kept = CountedPeriod::kept(&(day(from)..day(until)), now);
        kept.into_iter().map(|period| period.period.to_string()).collect()
    };
    assert_eq!(
        names("2026-11-22", "2026-11-24"),
        ["m202611", "w2026W47", "d20261122", "d20261123", "w2026W48"]
    );
    // What ended on the 17th may be gone; the weeks and the month that it lies in are not.
    assert_eq!(names("2026-11-16", "2026-11-19"), ["m202611", "w2026W47", "d20261118"]);
    assert_eq!(names("2026-10-01", "2026-11-01"), Vec::<String>::new());
    assert_eq!(names("2026-11-25", "2026-12-31"), Vec::<String>::new(), "not begun");
    assert_eq!(names("1970-01-01", "2200-01-01").len(), 1 + 2 + 7);
}

#[test]
fn a_row_that_ended_on_another_day_counts_where_it_was_admitted() {
    let rows = [
        row("2026-11-22T00:00:05Z", "2026-11-21T23:59:00Z", 1),
        row("2026-11-22T12:00:00Z", "2026-11-22T11:00:00Z", 20),
        row("2026-11-23T00:10:00Z", "2026-11-22T23:59:59.999Z", 300),
        row("2026-11-23T01:00:00Z", "2026-11-23T00:00:00Z", 4000),
    ];
    for (name, counted) in [
        ("d20261122", 320),
        ("w2026W47", 321),
        ("w2026W48", 4000),
        ("m202611", 4321),
    ] {
        let kept = CountedPeriod::kept(&(day("2026-11-21")..day("2026-11-24")), ms("2026-11-24T00:00:00Z"));
        let period = kept
            .into_iter()
            .find(|period| period.period.to_string() == name)
            .unwrap();
        let ended_in = |row: &&Row| period.days().contains(&day_of(row));
        let mut spent = SpendByKey::new();
        for row in rows.iter().filter(ended_in) {
            let of_key = spent.entry(key_id(1)).or_default();
            *of_key = of_key.saturating_add(row.cost_nano_usd);
        }
        let on_edge = |row: &&Row| period.edges().contains(&day_of(row));
        rows.iter()
            .filter(on_edge)
            .for_each(|row| period.correct(&mut spent, row));
        let counters = SpendByKey::from([(key_id(1), NanoUsd::from_nanos(counted))]);
        assert_eq!(period.differences(&counters, &spent), [], "{name}");
        let one_more = SpendByKey::from([(key_id(1), NanoUsd::from_nanos(counted + 1))]);
        let found = period.differences(&one_more, &spent);
        assert_eq!(found.len(), 1, "{name}");
        assert_eq!(
            (&found[0].key, found[0].counter, found[0].expected),
            (
                &Some(key_id(1)),
                NanoUsd::from_nanos(counted + 1),
                NanoUsd::from_nanos(counted)
            )
        );
    }
}

#[test]
fn a_key_that_only_one_side_knows_differs_unless_it_has_spent_nothing() {
    let of = |key, nanos| SpendByKey::from([(key_id(key), NanoUsd::from_nanos(nanos))]);
    assert_eq!(total_differences(&of(1, 0), &SpendByKey::new()), []);
    assert_eq!(total_differences(&of(1, 5), &of(2, 5)).len(), 2);
    assert_eq!(total_spend(&of(1, 5)), NanoUsd::from_nanos(5));
    let said = NanoUsd::from_nanos(5);
    assert_eq!(account_difference(said, said, CounterBasis::Keys), None);
}
