//! Rules for retries: what may be retried, after which pause, and how much extra load a provider may get. Time and randomness are
//! arguments.

use std::time::Duration;

/// The maximum pause, requested by a provider, after which weir itself retries. After a longer pause, the client has to retry.
pub(crate) const RETRY_AFTER_OBEYED_MAX: Duration = Duration::from_secs(5);
/// The cooldown of a credential after a rate limit, if the provider states no pause.
pub(crate) const COOLDOWN_AFTER_LIMIT: Duration = Duration::from_secs(10);
/// The cooldown of a credential after the provider refused it.
pub(crate) const COOLDOWN_AFTER_REFUSAL: Duration = Duration::from_secs(60);
/// The maximum cooldown of a credential, even if the provider requests a longer one.
pub(crate) const COOLDOWN_MAX: Duration = Duration::from_secs(15 * 60);

/// The retry rules of a provider, from its rule file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// The HTTP statuses after which the request is sent again.
    pub statuses: Vec<u16>,
    /// The maximum number of times that one request is sent to the provider, at least 1.
    pub attempts: u8,
    /// The pause before the second attempt.
    pub backoff: Duration,
    /// The maximum pause between two attempts.
    pub backoff_max: Duration,
    /// The load that retries may add, in percent of first attempts.
    pub budget_percent: u16,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            // With 520 to 524 and 527, Cloudflare reports that the server behind it does not work.
            statuses: vec![500, 502, 503, 504, 520, 521, 522, 523, 524, 527, 529],
            attempts: 2,
            backoff: Duration::from_millis(250),
            backoff_max: Duration::from_secs(4),
            budget_percent: 10,
        }
    }
}

impl RetryPolicy {
    /// Whether a request is sent again after this status.
    pub fn is_retryable(&self, status: u16) -> bool {
        self.statuses.contains(&status)
    }

    /// Returns the pause after `attempts` attempts. It is between half a step and a whole one, and the step doubles with each
    /// attempt. `dice`, from 0 to 1, chooses the value, so that requests that failed together are not retried together.
    pub fn pause(&self, attempts: u32, dice: f64) -> Duration {
        let doublings = attempts.saturating_sub(1).min(16);
        let step = self.backoff.saturating_mul(1 << doublings).min(self.backoff_max);
        step.mul_f64(0.5 + dice.clamp(0.0, 1.0) / 2.0)
    }
}

/// The retry budget of one provider. Each first attempt deposits a share of a retry. Each retry withdraws a whole retry, and so
/// does an attempt that fails over to this provider while the provider is known to fail. Amounts are in hundredths of a retry,
/// without rounding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RetryBudget {
    percent: u32,
    saved: u32,
}

/// The number of retries that are allowed before any first attempt. It is also the maximum that the budget saves.
pub(crate) const BUDGET_RESERVE: u32 = 3;
const WHOLE: u32 = 100;

impl RetryBudget {
    /// Creates a budget with a full reserve, or without any if `percent` is 0.
    pub(crate) fn new(percent: u16) -> Self {
        let percent = u32::from(percent);
        Self {
            percent,
            saved: if percent == 0 { 0 } else { BUDGET_RESERVE * WHOLE },
        }
    }

    /// Deposits the share of one first attempt.
    pub(crate) fn deposit(&mut self) {
        let most = BUDGET_RESERVE * WHOLE.max(self.percent);
        self.saved = self.saved.saturating_add(self.percent).min(most);
    }

    /// Withdraws one retry. Returns false if the budget is used up.
    pub(crate) fn withdraw(&mut self) -> bool {
        match self.saved.checked_sub(WHOLE) {
            Some(left) => {
                self.saved = left;
                true
            }
            None => false,
        }
    }
}

/// Returns the wait that the provider requests; `None` if it requests none. It is read from `retry-after-ms`, from `retry-after`
/// in seconds or as a date (RFC 9110 section 10.2.3), or from the reset headers of Anthropic (RFC 3339) and OpenAI (`6m0s`,
/// `20ms`) whose remaining count is 0. `header` returns the value of a header, and `now_unix_ms` is the current time.
pub(crate) fn retry_after<'a>(header: impl Fn(&str) -> Option<&'a str>, now_unix_ms: i64) -> Option<Duration> {
    let until = |unix_ms: i64| Duration::from_millis(u64::try_from(unix_ms.saturating_sub(now_unix_ms)).unwrap_or(0));
    if let Some(text) = header("retry-after-ms")
        && let Some(wait) = seconds(text, 0.001)
    {
        return Some(wait);
    }
    if let Some(text) = header("retry-after") {
        if let Some(wait) = seconds(text, 1.0) {
            return Some(wait);
        }
        if let Ok(date) = jiff::fmt::rfc2822::parse(&text.replace("GMT", "+0000")) {
            return Some(until(date.timestamp().as_millisecond()));
        }
    }
    let mut longest = None;
    for kind in ["requests", "tokens", "input-tokens", "output-tokens"] {
        if header(&format!("anthropic-ratelimit-{kind}-remaining")) == Some("0")
            && let Some(reset) = header(&format!("anthropic-ratelimit-{kind}-reset"))
            && let Ok(reset) = reset.parse::<jiff::Timestamp>()
        {
            longest = longest.max(Some(until(reset.as_millisecond())));
        }
        if header(&format!("x-ratelimit-remaining-{kind}")) == Some("0")
            && let Some(reset) = header(&format!("x-ratelimit-reset-{kind}"))
        {
            longest = longest.max(spelled_duration(reset));
        }
    }
    longest
}

/// Returns the wait that the body of a Gemini error requests (`RetryInfo.retryDelay`, such as `"7s"` or `"0.5s"`); `None` if it
/// requests none.
pub(crate) fn retry_delay(body: &[u8]) -> Option<Duration> {
    let body: serde_json::Value = serde_json::from_slice(body).ok()?;
    let error = body.get("error").or_else(|| body.get(0)?.get("error"))?;
    let details = error.get("details")?.as_array()?;
    let delay = details.iter().find_map(|detail| detail.get("retryDelay"))?.as_str()?;
    spelled_duration(delay)
}

fn seconds(text: &str, unit: f64) -> Option<Duration> {
    let number: f64 = text.trim().parse().ok()?;
    Duration::try_from_secs_f64(number * unit).ok()
}

/// Parses a duration such as `6m0s`, `1h2m`, `20ms`, `7s` or `0.5s`.
fn spelled_duration(text: &str) -> Option<Duration> {
    let mut left = text.trim();
    let mut sum = Duration::ZERO;
    while !left.is_empty() {
        let digits = left.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, rest) = left.split_at_checked(digits)?;
        let end = rest
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(rest.len());
        let (unit, rest) = rest.split_at_checked(end)?;
        let unit = match unit {
            "ms" => 0.001,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            "d" => 86400.0,
            _ => return None,
        };
        sum = sum.checked_add(seconds(number, unit)?)?;
        left = rest;
    }
    (text.trim() != "").then_some(sum)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// 2026-11-21T00:00:00Z.
    const NOW_MS: i64 = 1_795_219_200_000;

    fn waits(headers: &[(&str, &str)]) -> Option<u128> {
        let header = |name: &str| {
            headers
                .iter()
                .find(|(known, _)| *known == name)
                .map(|(_, value)| *value)
        };
        retry_after(header, NOW_MS).map(|wait| wait.as_millis())
    }

    #[test]
    fn every_spelling_of_a_pause_is_read() {
        for (headers, expected) in [
            (&[("retry-after", "7")][..], Some(7_000)),
            (&[("retry-after", " 0.5 ")], Some(500)),
            (&[("retry-after-ms", "250"), ("retry-after", "7")], Some(250)),
            (&[("retry-after", "Sat, 21 Nov 2026 00:00:30 GMT")], Some(30_000)),
            (&[("retry-after", "Fri, 20 Nov 2026 00:00:30 GMT")], Some(0)),
            (&[("retry-after", "soon")], None),
            (&[("retry-after", "-1")], None),
            (&[], None),
            (
                &[
                    ("anthropic-ratelimit-tokens-remaining", "0"),
                    ("anthropic-ratelimit-tokens-reset", "2026-11-21T00:01:00Z"),
                ],
                Some(60_000),
            ),
            (
                &[
                    ("anthropic-ratelimit-tokens-remaining", "9"),
                    ("anthropic-ratelimit-tokens-reset", "2026-11-21T00:01:00Z"),
                ],
                None,
            ),
            (
                &[
                    ("x-ratelimit-remaining-requests", "0"),
                    ("x-ratelimit-reset-requests", "6m0s"),
                ],
                Some(360_000),
            ),
        ] {
            assert_eq!(waits(headers), expected, "{headers:?}");
        }
    }

    #[test]
    fn the_pause_in_a_gemini_body_is_read_in_both_framings() {
        let error = r#"{"error":{"code":429,"details":[{"@type":"a"},{"@type":"b","retryDelay":"7.5s"}]}}"#;
        assert_eq!(retry_delay(error.as_bytes()), Some(Duration::from_millis(7_500)));
        assert_eq!(
            retry_delay(format!("[{error}]").as_bytes()),
            Some(Duration::from_millis(7_500))
        );
        assert_eq!(retry_delay(b"{}"), None);
        assert_eq!(retry_delay(b"<html>"), None);
    }

    #[test]
    fn durations_are_spelled_in_units() {
        for (text, millis) in [
            ("20ms", Some(20)),
            ("1h2m", Some(3_720_000)),
            ("1.5s", Some(1_500)),
            ("s", None),
            ("5", None),
            ("5y", None),
            ("", None),
        ] {
            assert_eq!(spelled_duration(text).map(|d| d.as_millis()), millis, "{text}");
        }
    }

    #[test]
    fn pauses_double_and_stay_between_half_and_whole() {
        let policy = RetryPolicy::default();
        assert_eq!(policy.pause(1, 1.0), Duration::from_millis(250));
        assert_eq!(policy.pause(1, 0.0), Duration::from_millis(125));
        assert_eq!(policy.pause(3, 1.0), Duration::from_secs(1));
        assert_eq!(policy.pause(60, 1.0), Duration::from_secs(4));
    }

    proptest! {
        #[test]
        fn a_storm_adds_no_more_than_its_share_and_the_reserve(percent in 0_u16..=300, firsts in 0_u32..2_000) {
            let mut budget = RetryBudget::new(percent);
            let mut further = 0;
            for _ in 0..firsts {
                budget.deposit();
                while budget.withdraw() {
                    further += 1;
                }
            }
            prop_assert!(further * 100 <= firsts * u32::from(percent) + BUDGET_RESERVE * 100);
        }
    }
}
