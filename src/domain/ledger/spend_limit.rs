//! Response headers about spend limits for Messages clients: the headers `anthropic-ratelimit-unified-*` as Claude Code reads
//! them from its own gateway, which describes them at `GET /protocol` (<https://code.claude.com/docs/en/claude-apps-gateway>).

use crate::domain::ledger::{QuotaReset, QuotaUse};

/// The name of a header, in lower case, and the header's value.
pub(crate) type SpendHeader = (&'static str, String);

/// The prefix of all headers about limits, both of those in this file and of a provider's own.
pub(crate) const PREFIX: &str = "anthropic-ratelimit-";

const STATUS: &str = "anthropic-ratelimit-unified-status";
const RESET: &str = "anthropic-ratelimit-unified-reset";
const CLAIM: &str = "anthropic-ratelimit-unified-representative-claim";
const OVERAGE_STATUS: &str = "anthropic-ratelimit-unified-overage-status";
const OVERAGE_RESET: &str = "anthropic-ratelimit-unified-overage-reset";
const UTILIZATION: &str = "anthropic-ratelimit-unified-overage-utilization";
const THRESHOLD: &str = "anthropic-ratelimit-unified-overage-surpassed-threshold";
const PERIOD: &str = "anthropic-ratelimit-unified-overage-period";
const DISABLED_REASON: &str = "anthropic-ratelimit-unified-overage-disabled-reason";

/// The percentages of a quota from which the client is warned, the highest first.
const WARNED_FROM_PERCENT: [i128; 2] = [95, 75];

/// Returns the headers of a successful answer: how much of the quota was spent at admission, and a warning from 75 % and from 95
/// %.
pub(crate) fn success_headers(standing: &QuotaUse) -> Vec<SpendHeader> {
    let percent = spent_percent(standing);
    let surpassed = WARNED_FROM_PERCENT.into_iter().find(|from| percent >= *from);
    let status = if surpassed.is_some() {
        "allowed_warning"
    } else {
        "allowed"
    };
    let mut headers = vec![
        (STATUS, status.to_owned()),
        (CLAIM, "overage".to_owned()),
        (OVERAGE_STATUS, status.to_owned()),
        (UTILIZATION, ratio(percent)),
    ];
    headers.extend(surpassed.map(|from| (THRESHOLD, ratio(from))));
    headers.extend(reset_headers(standing));
    headers
}

/// Returns the headers of a refusal because a key's quota is used up. `representative-claim` and `overage-status` are left out,
/// because Claude Code would replace the message with its own words.
pub(crate) fn spent_quota_headers(standing: &QuotaUse, reset: QuotaReset) -> Vec<SpendHeader> {
    let mut headers = rejected_headers("org_spend_cap_reached");
    headers.push((UTILIZATION, ratio(spent_percent(standing))));
    headers.push((THRESHOLD, ratio(100)));
    headers.extend(reset_headers(standing));
    if reset != QuotaReset::None {
        headers.push((PERIOD, reset.as_str().to_owned()));
    }
    headers
}

/// Returns the headers of a refusal because an account's balance is used up. The time at which that changes is unknown and left
/// out.
pub(crate) fn spent_balance_headers() -> Vec<SpendHeader> {
    rejected_headers("out_of_credits")
}

/// Returns the headers of a refusal because an account is not allowed to spend anything.
pub(crate) fn disabled_account_headers() -> Vec<SpendHeader> {
    rejected_headers("org_level_disabled")
}

/// Returns the headers that every refusal has. When signed in to a gateway, Claude Code displays the message of a 429 unchanged
/// only if there is a reason.
fn rejected_headers(reason: &str) -> Vec<SpendHeader> {
    vec![(STATUS, "rejected".to_owned()), (DISABLED_REASON, reason.to_owned())]
}

fn reset_headers(standing: &QuotaUse) -> impl Iterator<Item = SpendHeader> {
    let at = standing.resets_at.map(|at| at.to_string());
    [RESET, OVERAGE_RESET]
        .into_iter()
        .filter_map(move |name| Some((name, at.clone()?)))
}

/// Returns the spent part of the quota in whole percent, rounded down so that no threshold is reported early; 100 for a quota of
/// zero.
pub(super) fn spent_percent(standing: &QuotaUse) -> i128 {
    let (spent, quota) = (i128::from(standing.spent.nanos()), i128::from(standing.quota.nanos()));
    match quota {
        ..=0 => 100,
        quota => spent.max(0) * 100 / quota,
    }
}

/// Formats 75 as `0.75`, 90 as `0.9`, and 100 as `1`.
fn ratio(percent: i128) -> String {
    let (whole, hundredths) = (percent / 100, percent % 100);
    match (hundredths, hundredths % 10) {
        (0, _) => whole.to_string(),
        (_, 0) => format!("{whole}.{}", hundredths / 10),
        _ => format!("{whole}.{hundredths:02}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::money::NanoUsd;

    fn standing(spent: i64, quota: i64, resets_at: Option<i64>) -> QuotaUse {
        QuotaUse {
            quota: NanoUsd::from_nanos(quota),
            spent: NanoUsd::from_nanos(spent),
            resets_at,
        }
    }

    fn value(headers: &[SpendHeader], name: &str) -> Option<String> {
        let name = format!("anthropic-ratelimit-unified-{name}");
        let found: Vec<&SpendHeader> = headers.iter().filter(|(found, _)| *found == name).collect();
        assert!(found.len() <= 1, "{name} twice");
        found.first().map(|(_, value)| value.clone())
    }

    #[test]
    fn a_success_tells_how_near_the_limit_is() {
        for (spent, utilization, threshold) in [
            (0, "0", None),
            (1_000, "0.1", None),
            (7_499, "0.74", None),
            (7_500, "0.75", Some("0.75")),
            (9_499, "0.94", Some("0.75")),
            (9_500, "0.95", Some("0.95")),
            (9_999, "0.99", Some("0.95")),
            (15_100, "1.51", Some("0.95")),
        ] {
            let headers = success_headers(&standing(spent, 10_000, Some(1_796_083_200)));
            let status = if threshold.is_some() {
                "allowed_warning"
            } else {
                "allowed"
            };
            for (name, expected) in [
                ("status", Some(status)),
                ("overage-status", Some(status)),
                ("representative-claim", Some("overage")),
                ("overage-utilization", Some(utilization)),
                ("overage-surpassed-threshold", threshold),
                ("reset", Some("1796083200")),
                ("overage-reset", Some("1796083200")),
            ] {
                assert_eq!(value(&headers, name).as_deref(), expected, "{spent} {name}");
            }
        }
    }

    #[test]
    fn a_spent_quota_is_told_as_claude_codes_own_gateway_tells_it() {
        let headers = spent_quota_headers(&standing(151, 100, Some(1_796_083_200)), QuotaReset::Monthly);
        let expected = [
            ("status", "rejected"),
            ("overage-disabled-reason", "org_spend_cap_reached"),
            ("overage-utilization", "1.51"),
            ("overage-surpassed-threshold", "1"),
            ("reset", "1796083200"),
            ("overage-reset", "1796083200"),
            ("overage-period", "monthly"),
        ];
        assert_eq!(headers.len(), expected.len());
        for (name, text) in expected {
            assert_eq!(value(&headers, name).as_deref(), Some(text), "{name}");
        }
    }

    #[test]
    fn what_does_not_reset_has_no_time_and_no_period() {
        let never = standing(100, 100, None);
        for headers in [
            success_headers(&never),
            spent_quota_headers(&never, QuotaReset::None),
            spent_balance_headers(),
            disabled_account_headers(),
        ] {
            for name in ["reset", "overage-reset", "overage-period"] {
                assert_eq!(value(&headers, name), None, "{headers:?}");
            }
        }
    }

    #[test]
    fn any_figures_make_a_ratio() {
        for (spent, quota, utilization) in [
            (0, 0, "1"),
            (-5, 10, "0"),
            (1, i64::MAX, "0"),
            (i64::MAX, 1, "9223372036854775807"),
            (i64::MAX, i64::MAX, "1"),
        ] {
            let headers = success_headers(&standing(spent, quota, None));
            assert_eq!(value(&headers, "overage-utilization").as_deref(), Some(utilization));
        }
    }
}
