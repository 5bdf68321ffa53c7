//! Tests of the daily sums.

use super::*;
use crate::domain::ledger::consumption::{PriceModifiers, row_json_tests::row};

/// Saturday 2026-11-21, 12:00 UTC.
const START_MS: i64 = 1_795_262_400_000;
const ROW: &str = r#"{"time_ms":1795262400000,"admitted_ms":1795262399995,"request_id":"r","account":"acme",
    "key_id":"key_0000000000000001","protocol":"messages","model_asked":"m","model":"m","provider":"p","status":200,
    "outcome":"ok","stream":true,"input_uncached":5,"usage_source":"reported","price_version":"1","cost_nano_usd":7,
    "latency_ms":12,"ttft_ms":null}"#;

fn key_id(number: u8) -> KeyId {
    KeyId::parse(&format!("key_{number:016}")).unwrap()
}

fn tagged(request: usize, tags: &[&str]) -> Row {
    let mut row: Row = serde_json::from_str(ROW).unwrap();
    row.request_id = format!("r{request}").into();
    row.tags = tags.iter().map(|tag| Tag::parse(tag).unwrap()).collect();
    row
}

#[test]
fn a_row_counts_for_its_account_its_key_and_each_of_its_tags() {
    let mut failed = tagged(2, &["team=b"]);
    (failed.status, failed.model) = (502, "other".into());
    let sums = DailySums::of_day(&[tagged(1, &["team=a", "team=b", "session=x"]), failed]);
    let told: Vec<_> = sums
        .iter()
        .map(|sum| {
            let Sums { requests, errors, .. } = sum.sums;
            (sum.subject.store_name(), sum.model.to_string(), requests, errors)
        })
        .collect();
    let key = SumSubject::Key(key_id(1)).store_name();
    let one = |subject: &str, model: &str, errors| (subject.to_owned(), model.to_owned(), 1, errors);
    assert_eq!(
        told,
        [
            one("a", "m", 0),
            one("a", "other", 1),
            one(&key, "m", 0),
            one(&key, "other", 1),
            one("t:team=a", "m", 0),
            one("t:team=b", "m", 0),
            one("t:team=b", "other", 1),
        ]
    );
}

#[test]
fn a_row_from_before_there_were_holds_and_attempts_is_read_and_written_as_it_was() {
    let row: Row = serde_json::from_str(ROW).unwrap();
    assert_eq!((row.hold_nano_usd, row.attempts), (None, None));
    let json = serde_json::to_string(&row).unwrap();
    assert!(!json.contains("hold") && !json.contains("attempts"), "{json}");
    assert_eq!(serde_json::from_str::<Row>(&json).unwrap(), row);
}

#[test]
fn rows_and_sums_are_read_as_they_were_written() {
    let mut parts = Usage::default().parts();
    for (number, part) in (1..).zip(&mut parts) {
        *part = number;
    }
    let mut row = tagged(1, &["team=a"]);
    row.usage = Usage::from_parts(parts);
    row.modifiers = PriceModifiers {
        service_tier: Some("flex".into()),
        speed: Some("fast".into()),
        geo: Some("us".into()),
    };
    let json = serde_json::to_string(&row).unwrap();
    assert_eq!(serde_json::from_str::<Row>(&json).unwrap(), row, "{json}");
    let sums = Sums::of(&row);
    let json = serde_json::to_string(&sums).unwrap();
    assert_eq!(serde_json::from_str::<Sums>(&json).unwrap(), sums, "{json}");
}

proptest::proptest! {
    #[test]
    fn rows_that_differ_in_any_column_have_other_sums(
        rows in proptest::collection::vec(row(), 1..4),
        other in row(),
        at: proptest::sample::Index,
    ) {
        let sum = |rows: &[Row]| rows.iter().fold(Sums::default(), |sum, row| sum.plus(&Sums::of(row)));
        let whole = sum(&rows);
        let mut changed = rows.clone();
        changed[at.index(rows.len())] = other;
        proptest::prop_assert_eq!(sum(&changed).digest == whole.digest, changed == rows);
        proptest::prop_assert!(whole.digest < DIGESTS);
    }

    #[test]
    fn rows_that_are_added_up_before_come_to_what_each_adds(
        rows in proptest::collection::vec((0..3_i64, 0..3_u8, 0..3_u8, 0..150_u8, -2..9_i64), 0..400),
        first in 0..400_usize,
    ) {
        let rows: Vec<Row> = rows.into_iter().enumerate().map(|(number, (day, key, model, tag, cost))| {
            let mut row = tagged(number, &[]);
            // Half of them have tags, of which there are more than have sums of their own.
            row.tags = (tag % 2 == 0).then(|| Tag::parse(&format!("n={tag}")).unwrap()).into_iter().collect();
            (row.time_ms, row.key_id, row.model) = (START_MS + day * DAY_MS, key_id(key), format!("m{model}").into());
            (row.cost_nano_usd, row.status) = (NanoUsd::from_nanos(cost), 200 + 300 * u16::from(key == 2));
            row
        }).collect();
        let (mut each, mut tags) = (DailySums::default(), BTreeMap::<i64, DayTags>::new());
        for row in &rows {
            each.add(row, tags.entry(day_of(row)).or_default());
        }
        let (mut together, mut tags) = (DailySums::default(), BTreeMap::<i64, DayTags>::new());
        let (before, after) = rows.split_at(first.min(rows.len()));
        for batch in [before, after] {
            let mut sums = RowSums::default();
            for row in batch {
                sums.add(row, tags.entry(day_of(row)).or_default());
            }
            together.extend(sums.into_sums().iter());
        }
        proptest::prop_assert_eq!(together, each);
    }
}

#[test]
fn so_many_tags_a_day_have_sums_of_their_own() {
    let rows = (0..=TAGS_A_DAY_MAX + 1).map(|number| {
        let again = format!("again={}", number % 2);
        match number {
            0 => tagged(number, &["n=0", &again]),
            _ => tagged(number, &[&format!("n={number}"), "n=0", &again]),
        }
    });
    let sums = DailySums::of_day(&rows.collect::<Vec<_>>());
    let day = START_MS.div_euclid(DAY_MS);
    let tags = sums.select(&(day..=day), &SumSelector::Tags);
    let own = tags.iter().filter(|sum| matches!(sum.subject, SumSubject::Tag(_)));
    assert_eq!(own.count(), TAGS_A_DAY_MAX);
    let requests = |subject: &SumSubject| {
        let found = tags.iter().find(|sum| sum.subject == *subject);
        found.map(|sum| sum.sums.requests)
    };
    // n=0, n=1, ... and both of `again`: four of the names come too late.
    assert_eq!(requests(&SumSubject::OtherTags), Some(4));
    assert_eq!(requests(&SumSubject::Tag(Tag::parse("n=0").unwrap())), Some(102));
}

#[test]
fn sums_stay_within_what_is_counted_exactly() {
    let mut row = tagged(1, &[]);
    row.usage.input_uncached = u64::MAX;
    row.cost_nano_usd = NanoUsd::from_nanos(i64::MAX);
    let one = Sums::of(&row);
    assert_eq!((one.usage.input_uncached, one.cost_nano_usd), (COUNT_MAX, NanoUsd::MAX));
    assert_eq!(one.plus(&one).usage.input_uncached, COUNT_MAX);
    row.cost_nano_usd = NanoUsd::from_nanos(-1);
    assert_eq!(Sums::of(&row).cost_nano_usd, NanoUsd::ZERO);
}

#[test]
fn a_subject_is_read_as_it_was_written() {
    for subject in [
        SumSubject::Account,
        SumSubject::Key(key_id(3)),
        SumSubject::OtherTags,
        SumSubject::Tag(Tag::parse("a=k:b").unwrap()),
    ] {
        assert_eq!(SumSubject::parse(&subject.store_name()), Some(subject));
    }
    for none in ["", "b", "k:", "t:x", "x:y", "tags"] {
        assert_eq!(SumSubject::parse(none), None, "{none}");
    }
}

#[test]
fn a_difference_says_where_and_how_much() {
    let rows = [tagged(1, &[]), tagged(2, &[])];
    let whole = DailySums::of_day(&rows);
    assert_eq!(differences(&whole, &whole), []);
    let part = DailySums::of_day(&rows[..1]);
    let found = differences(&part, &whole);
    assert_eq!(found.len(), 2);
    let (kept, of_rows) = (found[0].kept.cost_nano_usd, found[0].of_rows.cost_nano_usd);
    assert_eq!((kept, of_rows), (NanoUsd::from_nanos(7), NanoUsd::from_nanos(14)));
    assert_eq!(found[0].subject, SumSubject::Account);
}
