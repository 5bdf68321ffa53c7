//! What Messages clients are told of a spend limit in response headers: the `anthropic-ratelimit-unified-*` set as Claude Code
//! reads it from its own gateway, which describes it at `GET /protocol` (<https://code.claude.com/docs/en/claude-apps-gateway>).

use crate::domain::ledger::{QuotaUse, Reset};

/// A header's name, in lower case, and its value.
pub(crate) type Header = (&'static str, String);

/// What the names of all headers begin with that tell of limits: those here, and a provider's own.
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

/// The percentages of a quota from which on its user is warned, the highest first.
const WARNED_FROM_PERCENT: [i128; 2] = [95, 75];

/// On a success: how much of the quota was spent when the request was admitted, and from 75 % and 95 % on a warning.
pub(crate) fn of_success(standing: &QuotaUse) -> Vec<Header> {
    let percent = percent(standing);
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
    headers.extend(resets(standing));
    headers
}

/// On the refusal of a key whose quota is spent. With `representative-claim` or `overage-status` Claude Code would put words of
/// its own in the place of the message, so they are not there.
pub(crate) fn of_spent_quota(standing: &QuotaUse, reset: Reset) -> Vec<Header> {
    let mut headers = rejected("org_spend_cap_reached");
    headers.push((UTILIZATION, ratio(percent(standing))));
    headers.push((THRESHOLD, ratio(100)));
    headers.extend(resets(standing));
    if reset != Reset::None {
        headers.push((PERIOD, reset.as_str().to_owned()));
    }
    headers
}

/// On the refusal of a key whose account has no money. Nothing is known of when that ends, so nothing is said.
pub(crate) fn of_spent_balance() -> Vec<Header> {
    rejected("out_of_credits")
}

/// On the refusal of a key whose account may spend nothing at all.
pub(crate) fn of_disabled_account() -> Vec<Header> {
    rejected("org_level_disabled")
}

/// Signed in to a gateway, Claude Code shows the message of a 429 as it is only where a reason stands beside it.
fn rejected(reason: &str) -> Vec<Header> {
    vec![(STATUS, "rejected".to_owned()), (DISABLED_REASON, reason.to_owned())]
}

fn resets(standing: &QuotaUse) -> impl Iterator<Item = Header> {
    let at = standing.resets_at.map(|at| at.to_string());
    [RESET, OVERAGE_RESET]
        .into_iter()
        .filter_map(move |name| Some((name, at.clone()?)))
}

/// How much of the quota is spent, in whole percent, rounded down: nobody is said to have passed what he has not. All of a quota
/// of nothing is spent.
pub(super) fn percent(standing: &QuotaUse) -> i128 {
    let (spent, quota) = (i128::from(standing.spent.nanos()), i128::from(standing.quota.nanos()));
    match quota {
        ..=0 => 100,
        quota => spent.max(0) * 100 / quota,
    }
}

/// 75 as `0.75`, 90 as `0.9`, 100 as `1`.
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

    fn value(headers: &[Header], name: &str) -> Option<String> {
        let name = format!("anthropic-ratelimit-unified-{name}");
        let found: Vec<&Header> = headers.iter().filter(|(found, _)| *found == name).collect();
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
            let headers = of_success(&standing(spent, 10_000, Some(1_796_083_200)));
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
        let headers = of_spent_quota(&standing(151, 100, Some(1_796_083_200)), Reset::Monthly);
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
            of_success(&never),
            of_spent_quota(&never, Reset::None),
            of_spent_balance(),
            of_disabled_account(),
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
            let headers = of_success(&standing(spent, quota, None));
            assert_eq!(value(&headers, "overage-utilization").as_deref(), Some(utilization));
        }
    }
}
