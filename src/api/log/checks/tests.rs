//! Tests of what is told of differences.

use super::*;
use crate::domain::ledger::ids::Tag;

#[test]
fn of_sums_that_differ_the_differing_numbers_are_told() {
    let sums = |errors, usage| Sums {
        requests: 2,
        errors,
        cost_nano_usd: NanoUsd::from_nanos(5),
        digest: 7 + errors,
        usage,
    };
    let usage = Usage {
        output_text: 3,
        ..Usage::default()
    };
    let difference = SumDifference {
        day: 0,
        subject: SumSubject::Tag(Tag::parse("team=a").unwrap()),
        model: "m".into(),
        kept: sums(1, Usage { cache_read: 4, ..usage }),
        of_rows: sums(0, usage),
    };
    let told = serde_json::to_string(&SumsDifference::from(&difference)).unwrap();
    let expected = r#"{"of":"tag","name":"team=a","model":"m","kept":{"errors":1,"cache_read":4},"rows":{"errors":0}}"#;
    assert_eq!(told, expected);
    let read: SumsDifference = serde_json::from_str(&told).unwrap();
    assert_eq!(read.kept.errors, Some(1));
    let of_rows = Sums {
        digest: 0x1234,
        ..difference.kept
    };
    let told = serde_json::to_value(SumsDifference::from(&SumDifference { of_rows, ..difference })).unwrap();
    let expected = serde_json::json!([{ "digest": "000000000008" }, { "digest": "000000001234" }]);
    assert_eq!(serde_json::json!([told["kept"], told["rows"]]), expected);
}
