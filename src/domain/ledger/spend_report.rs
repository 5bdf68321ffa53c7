//! Reports of spending and usage for people and programs: a key's quota, usage by day, model, key or tag, and the views of
//! accounts and keys.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::domain::{
    ledger::{KeySpend, KeyTerms, QuotaReset, QuotaUse, period::resets_at, spend_limit::spent_percent},
    money::NanoUsd,
};

const CENT_NANOS: i64 = 10_000_000;
/// The percentages from which the severity is `warning` and `critical`: the same at which response headers warn.
const WARNING_PERCENT: i128 = 75;
const CRITICAL_PERCENT: i128 = 95;

/// The report of a key's quota and spending at a time of the store's clock, in the form in which Claude Code requests it from its
/// own gateway, which describes it at `GET /protocol` (<https://code.claude.com/docs/en/claude-apps-gateway>). Amounts are
/// whole cents, rounded down.
pub(crate) fn quota_report(terms: &KeyTerms, spend: &KeySpend, now_ms: i64) -> Value {
    let Some(quota) = terms.quota else {
        let of = |spent: NanoUsd| json!({ "limit": null, "used_credits": cents(spent), "utilization": null });
        let extra = json!({
            "is_enabled": true,
            "monthly_limit": null,
            "used_credits": cents(spend.month),
            "utilization": null,
            "currency": "USD",
            "daily": of(spend.day),
            "weekly": of(spend.week),
        });
        return json!({ "extra_usage": extra, "limits": [] });
    };
    let standing = QuotaUse {
        quota,
        spent: spend.for_reset(terms.reset),
        resets_at: resets_at(terms.reset, now_ms),
    };
    let percent = spent_percent(&standing);
    let percent_told = i64::try_from(percent).unwrap_or(i64::MAX);
    let extra = json!({
        "is_enabled": true,
        "monthly_limit": cents(quota),
        "used_credits": cents(standing.spent),
        "utilization": percent_told,
        "currency": "USD",
    });
    let limit = json!({
        "kind": "spend",
        // A quota that never resets has no period. The client shows none for a word other than the three it knows.
        "group": if terms.reset == QuotaReset::None { "total" } else { terms.reset.as_str() },
        "percent": percent_told,
        "resets_at": standing.resets_at.and_then(rfc3339_time),
        "severity": match percent {
            CRITICAL_PERCENT.. => "critical",
            WARNING_PERCENT.. => "warning",
            _ => "normal",
        },
        "is_active": true,
    });
    json!({ "extra_usage": extra, "limits": [limit] })
}

fn cents(amount: NanoUsd) -> i64 {
    amount.nanos().max(0) / CENT_NANOS
}

/// `2027-01-01T00:00:00.000Z`
fn rfc3339_time(unix: i64) -> Option<String> {
    let at = Timestamp::from_second(unix).ok()?;
    Some(at.strftime("%Y-%m-%dT%H:%M:%S.000Z").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-22T12:00:00Z, a Sunday.
    const NOW_MS: i64 = 1_795_348_800_000;

    fn spend(dollars: i64) -> KeySpend {
        let spent = NanoUsd::from_nanos(dollars * 1_000_000_000);
        KeySpend {
            all: spent,
            day: spent,
            week: spent,
            month: spent,
            ..KeySpend::default()
        }
    }

    fn told(quota: Option<i64>, reset: QuotaReset, spent: i64) -> Value {
        let terms = KeyTerms {
            quota: quota.map(|dollars| NanoUsd::from_nanos(dollars * 1_000_000_000)),
            reset,
            ..KeyTerms::default()
        };
        quota_report(&terms, &spend(spent), NOW_MS)
    }

    #[test]
    fn a_quota_is_told_in_cents_with_its_period() {
        let monthly = told(Some(500), QuotaReset::Monthly, 410);
        assert_eq!(
            monthly,
            json!({
                "extra_usage": {
                    "is_enabled": true, "monthly_limit": 50_000, "used_credits": 41_000, "utilization": 82, "currency": "USD"
                },
                "limits": [{
                    "kind": "spend", "group": "monthly", "percent": 82, "resets_at": "2026-12-01T00:00:00.000Z",
                    "severity": "warning", "is_active": true
                }]
            })
        );
        for (reset, group, resets_at) in [
            (QuotaReset::Daily, "daily", json!("2026-11-23T00:00:00.000Z")),
            (QuotaReset::Weekly, "weekly", json!("2026-11-23T00:00:00.000Z")),
            (QuotaReset::None, "total", Value::Null),
        ] {
            let limit = &told(Some(1), reset, 0)["limits"][0];
            assert_eq!((&limit["group"], &limit["resets_at"]), (&json!(group), &resets_at));
        }
        for (spent, severity) in [(74, "normal"), (75, "warning"), (95, "critical"), (200, "critical")] {
            assert_eq!(
                told(Some(100), QuotaReset::Daily, spent)["limits"][0]["severity"],
                severity
            );
        }
    }

    #[test]
    fn without_a_quota_only_what_was_spent_is_told() {
        let unlimited = told(None, QuotaReset::None, 12);
        let of = json!({ "limit": null, "used_credits": 1200, "utilization": null });
        assert_eq!(unlimited["limits"], json!([]));
        let extra = &unlimited["extra_usage"];
        assert_eq!(
            (&extra["daily"], &extra["weekly"], &extra["used_credits"]),
            (&of, &of, &json!(1200))
        );
        assert_eq!(
            (&extra["monthly_limit"], &extra["utilization"]),
            (&Value::Null, &Value::Null)
        );
    }
}
