//! Failures and how weir reacts to them: the ends of requests, refusals, retries, circuit breakers, minimum transfer speeds, and
//! the stability of models.

pub(crate) mod circuit;
pub(crate) mod refusal;
pub(crate) mod stability;

use std::time::{Duration, Instant};

use crate::domain::{faults::refusal::Refusal, wire::protocol::Break};

/// The way in which a request ended. It is decided once per request, and determines the charge, the row, the access log and the
/// metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The answer was complete according to its protocol.
    Complete,
    /// The provider answered with a status of 400 or above.
    ProviderError,
    /// The provider answered with a 2xx status, but reported a failure in the body or the stream.
    InBandError,
    /// The answer had begun, but could not be completed.
    Broken(Break),
    /// The client got a refusal from weir. The cause may be the client, weir or the provider.
    Refused(Refusal),
    /// The client disconnected before the answer was complete.
    ClientLeft,
}

impl From<Refusal> for End {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// The value of the label `outcome` for refusals before anything was sent to a provider.
const REFUSED: &str = "refused";

/// The status that is recorded if the client disconnected before it got a status. nginx logs the same status in this case.
const CLIENT_LEFT: u16 = 499;

impl End {
    /// Returns the value of the label `outcome` for metrics, access log and consumption log: one of a fixed set, in snake_case.
    pub(crate) const fn label(&self) -> &'static str {
        match self {
            Self::Complete => "ok",
            Self::ProviderError => "provider_error",
            Self::InBandError => "in_band_error",
            Self::Broken(why) => match why {
                Break::ProviderCut | Break::ProviderEnded => "provider_cut",
                Break::ProviderTimeout => "provider_timeout",
                Break::LimitReached => "limit_reached",
                Break::Stopped => "stopped",
                Break::Internal => "internal",
            },
            Self::Refused(refusal) => match refusal {
                Refusal::ProviderBroken => "provider_cut",
                Refusal::ProviderTimeout => "provider_timeout",
                Refusal::ProviderUnreachable => "provider_unreachable",
                Refusal::ProviderCredentialRefused => "credential_refused",
                Refusal::ProviderRedirected { .. } => "provider_error",
                Refusal::Stopping => "stopped",
                Refusal::Internal => "internal",
                _ => REFUSED,
            },
            Self::ClientLeft => "client_gone",
        }
    }

    /// Returns the status to record (docs/interface.md, The public record). `answered` is the status that the client got, or 0 if
    /// it got none. Usually, the recorded status is `answered`. It is an error status in two cases: the answer failed after a 2xx
    /// status, or the client disconnected before it got a status.
    pub(crate) fn recorded_status(&self, answered: u16) -> u16 {
        match self {
            Self::InBandError | Self::Broken(Break::ProviderCut | Break::ProviderEnded) => answered.max(502),
            Self::Broken(Break::ProviderTimeout) => answered.max(504),
            Self::Broken(Break::Stopped) => answered.max(503),
            Self::Broken(Break::Internal) => answered.max(500),
            Self::Refused(refusal) => answered.max(refusal.status()),
            Self::ClientLeft if answered == 0 => CLIENT_LEFT,
            Self::Complete | Self::ProviderError | Self::Broken(Break::LimitReached) | Self::ClientLeft => answered,
        }
    }

    /// Whether a forwarded request is billed (docs/interface.md, The public record). A request is not billed if weir refused it
    /// before it sent anything to a provider, or if the provider rejected it because of a mistake of the client.
    pub(crate) fn is_billed(&self, status: u16) -> bool {
        match self {
            Self::Refused(_) => self.label() != REFUSED,
            Self::ProviderError => matches!(status, 408 | 429 | 500..),
            // The answer was still read after the client disconnected, and its status may report a mistake of the client.
            Self::ClientLeft => !matches!(status, 400..=407 | 409..=428 | 430..=498),
            Self::Complete | Self::InBandError | Self::Broken(_) => true,
        }
    }

    /// Whether a billed request with this value of the label `outcome` is included in the published stability (docs/interface.md,
    /// The public record). It is excluded if the client disconnected before the answer was complete.
    pub(crate) fn is_published(label: &str) -> bool {
        label != Self::ClientLeft.label()
    }
}

/// The minimum speed at which a peer must send or receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MinimumSpeed {
    /// The maximum total time that weir waits for the peer. Within this time, the minimum number of bytes must be transferred.
    pub wait_max: Duration,
    /// The minimum number of bytes for each second of `wait_max`. If it is 0, a single byte suffices.
    pub bytes_per_second_min: u64,
}

/// A measurement of the time for which weir has waited for a peer. The time in which weir has nothing to send to the peer, or
/// does not read from it, is not included, because the peer does not cause this delay.
#[derive(Debug)]
pub(crate) struct PeerPace {
    limit: MinimumSpeed,
    waiting_since: Option<Instant>,
    waited: Duration,
    moved: u64,
}

impl PeerPace {
    /// Creates a measurement without any waiting time.
    pub(crate) fn new(limit: MinimumSpeed) -> Self {
        Self {
            limit,
            waiting_since: None,
            waited: Duration::ZERO,
            moved: 0,
        }
    }

    /// Records that weir waits for the peer. The wait began at `now`, or at an earlier call if nothing was transferred since
    /// then. Returns the deadline of the wait.
    pub(crate) fn begin_wait(&mut self, now: Instant) -> Instant {
        let since = *self.waiting_since.get_or_insert(now);
        since + self.limit.wait_max.saturating_sub(self.waited)
    }

    /// Resets the measurement for the next transfer.
    pub(crate) fn restart(&mut self) {
        *self = Self::new(self.limit);
    }

    /// Records that `bytes` bytes were transferred, which ends the wait. `now` is called only if weir was waiting.
    pub(crate) fn on_moved(&mut self, bytes: usize, now: impl FnOnce() -> Instant) {
        if let Some(since) = self.waiting_since.take() {
            self.waited += now().saturating_duration_since(since);
        } else if self.waited.is_zero() {
            return;
        }
        self.moved = self.moved.saturating_add(bytes as u64);
        let enough = self
            .limit
            .bytes_per_second_min
            .saturating_mul(self.limit.wait_max.as_secs());
        if self.moved >= enough.max(1) {
            (self.waited, self.moved) = (Duration::ZERO, 0);
        }
    }
}

/// The time limits for the transfer of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BodyTimeLimit {
    /// The minimum speed of the peer.
    pub pace: MinimumSpeed,
    /// The maximum time from the first to the last byte.
    pub total: Duration,
}

/// A measurement of the time that the transfer of a body takes, with the limits for it.
#[derive(Debug)]
pub(crate) struct BodyTime {
    pace: PeerPace,
    end: Instant,
}

impl BodyTime {
    /// Creates the measurement for a body whose transfer begins at `now`.
    pub(crate) fn new(limit: BodyTimeLimit, now: Instant) -> Self {
        Self {
            pace: PeerPace::new(limit.pace),
            end: now + limit.total,
        }
    }

    /// Records that weir waits for further bytes of the body. Returns the deadline of the wait.
    pub(crate) fn begin_wait(&mut self, now: Instant) -> Instant {
        self.pace.begin_wait(now).min(self.end)
    }

    /// Records that `bytes` bytes of the body have arrived. `now` is called only if weir was waiting.
    pub(crate) fn on_moved(&mut self, bytes: usize, now: impl FnOnce() -> Instant) {
        self.pace.on_moved(bytes, now);
    }
}

/// The longest requested pause for which weir waits before it retries. If a provider requests a longer pause, weir does not wait.
/// It leaves the retry to the client.
pub(crate) const RETRY_AFTER_OBEYED_MAX: Duration = Duration::from_secs(5);
/// The cooldown of a credential after a rate limit, if the provider requests no pause.
pub(crate) const COOLDOWN_AFTER_LIMIT: Duration = Duration::from_secs(10);
/// The cooldown of a credential after the provider rejected it.
pub(crate) const COOLDOWN_AFTER_REFUSAL: Duration = Duration::from_secs(60);
/// The maximum cooldown of a credential, even if the provider requests a longer one.
pub(crate) const COOLDOWN_MAX: Duration = Duration::from_secs(15 * 60);

/// The retry rules of a provider, from its rule file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// The HTTP statuses after which the request is sent to the provider again.
    pub statuses: Vec<u16>,
    /// The maximum number of times that a request is sent to the provider, at least 1.
    pub attempts: u8,
    /// The pause before the second attempt.
    pub backoff: Duration,
    /// The maximum pause between two attempts.
    pub backoff_max: Duration,
    /// The maximum load that retries add, as a percentage of the number of first attempts.
    pub budget_percent: u16,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            // Cloudflare reports with the statuses 520 to 524 and 527 that the server for which it is a proxy does not work.
            statuses: vec![500, 502, 503, 504, 520, 521, 522, 523, 524, 527, 529],
            attempts: 2,
            backoff: Duration::from_millis(250),
            backoff_max: Duration::from_secs(4),
            budget_percent: 10,
        }
    }
}

impl RetryPolicy {
    /// Whether a request is sent again after an answer with this status.
    pub fn is_retryable(&self, status: u16) -> bool {
        self.statuses.contains(&status)
    }

    /// Returns the pause after `attempts` attempts. Its maximum doubles with each attempt, up to `backoff_max`. `dice`, from 0 to
    /// 1, chooses a pause between half the maximum and the maximum, so that requests that failed together are not retried
    /// together.
    pub fn pause(&self, attempts: u32, dice: f64) -> Duration {
        let doublings = attempts.saturating_sub(1).min(16);
        let step = self.backoff.saturating_mul(1 << doublings).min(self.backoff_max);
        step.mul_f64(0.5 + dice.clamp(0.0, 1.0) / 2.0)
    }
}

/// The retry budget of one provider. Each first attempt deposits a fraction of a retry. Each retry withdraws one retry. An
/// attempt that fails over to this provider also withdraws one if the provider is known to fail. Amounts are in hundredths of a
/// retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RetryBudget {
    percent: u32,
    saved: u32,
}

/// The number of retries that are allowed before the first deposit. The budget saves at most this number of retries, or this
/// number of deposits if a deposit is more than one retry.
pub(crate) const BUDGET_RESERVE: u32 = 3;
const WHOLE: u32 = 100;

impl RetryBudget {
    /// Creates a budget with a full reserve, or with an empty one if `percent` is 0.
    pub(crate) fn new(percent: u16) -> Self {
        let percent = u32::from(percent);
        Self {
            percent,
            saved: if percent == 0 { 0 } else { BUDGET_RESERVE * WHOLE },
        }
    }

    /// Deposits the fraction of a retry for one first attempt.
    pub(crate) fn deposit(&mut self) {
        let most = BUDGET_RESERVE * WHOLE.max(self.percent);
        self.saved = self.saved.saturating_add(self.percent).min(most);
    }

    /// Withdraws one retry. Returns `false` if the budget is used up.
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

/// Returns the wait that the provider requests; `None` if it requests none. The wait is read from `retry-after-ms`, or from
/// `retry-after` in seconds or as a date (RFC 9110 section 10.2.3). Without these headers, it is the longest wait in the rate
/// limit headers of Anthropic (RFC 3339) and OpenAI (`6m0s`, `20ms`). Only exhausted limits are considered. `header` returns the
/// value of a header, and `now_unix_ms` is the current time in milliseconds since the Unix epoch.
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

/// Returns the wait that the body of a Gemini error requests in `RetryInfo.retryDelay`, such as `"7s"` or `"0.5s"`; `None` if it
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
    use super::*;
    use crate::domain::faults::refusal::BodyShare;
    use proptest::prelude::*;

    fn redirected() -> End {
        Refusal::ProviderRedirected { status: 302 }.into()
    }

    /// Each end that has a label of its own, with the label.
    fn all() -> [(End, &'static str); 19] {
        [
            (End::Complete, "ok"),
            (End::ProviderError, "provider_error"),
            (redirected(), "provider_error"),
            (End::InBandError, "in_band_error"),
            (End::Broken(Break::ProviderCut), "provider_cut"),
            (End::Broken(Break::ProviderEnded), "provider_cut"),
            (End::Refused(Refusal::ProviderBroken), "provider_cut"),
            (End::Broken(Break::ProviderTimeout), "provider_timeout"),
            (End::Refused(Refusal::ProviderTimeout), "provider_timeout"),
            (End::Refused(Refusal::ProviderUnreachable), "provider_unreachable"),
            (End::Refused(Refusal::ProviderCredentialRefused), "credential_refused"),
            (End::ClientLeft, "client_gone"),
            (End::Broken(Break::LimitReached), "limit_reached"),
            (End::Broken(Break::Stopped), "stopped"),
            (End::Refused(Refusal::Stopping), "stopped"),
            (End::Broken(Break::Internal), "internal"),
            (End::Refused(Refusal::Internal), "internal"),
            (End::Refused(Refusal::KeyUnknown), "refused"),
            (
                End::Refused(Refusal::BodyShareUsed {
                    whose: BodyShare::Key,
                    bytes_max: 1,
                }),
                "refused",
            ),
        ]
    }

    #[test]
    fn each_end_has_its_label_whoever_was_told() {
        for (end, label) in all() {
            assert_eq!(end.label(), label, "{end:?}");
        }
    }

    #[test]
    fn a_failure_behind_a_200_is_recorded_as_one() {
        for (end, answered, recorded) in [
            (End::Complete, 200, 200),
            (End::ProviderError, 529, 529),
            (End::Broken(Break::ProviderCut), 200, 502),
            (End::Broken(Break::ProviderEnded), 200, 502),
            (End::InBandError, 200, 502),
            (End::Broken(Break::ProviderTimeout), 200, 504),
            (End::Refused(Refusal::ProviderTimeout), 504, 504),
            (End::Refused(Refusal::ProviderUnreachable), 503, 503),
            (End::Refused(Refusal::ProviderCredentialRefused), 503, 503),
            (redirected(), 502, 502),
            (End::ClientLeft, 0, 499),
            (End::ClientLeft, 200, 200),
            (End::Broken(Break::LimitReached), 200, 200),
            (End::Broken(Break::Stopped), 200, 503),
            (End::Broken(Break::Stopped), 0, 503),
            (End::Broken(Break::Internal), 0, 500),
        ] {
            assert_eq!(end.recorded_status(answered), recorded, "{end:?}");
        }
    }

    #[test]
    fn the_clients_own_mistakes_are_not_billed() {
        for status in [400, 404, 405, 413, 422] {
            assert!(!End::ProviderError.is_billed(status), "{status}");
        }
        for status in [408, 429, 500, 503, 529] {
            assert!(End::ProviderError.is_billed(status), "{status}");
        }
    }

    #[test]
    fn a_refusal_is_billed_where_a_provider_may_have_served_the_request() {
        assert!(!End::Refused(Refusal::KeyUnknown).is_billed(429));
        for (end, label) in all() {
            if matches!(end, End::Refused(_)) {
                assert_eq!(end.is_billed(502), label != "refused", "{end:?}");
            }
        }
    }

    #[test]
    fn a_client_that_left_is_billed_unless_its_request_was_a_mistake() {
        for status in [0, 200, 408, 429, 499, 500, 529] {
            assert!(End::ClientLeft.is_billed(status), "{status}");
        }
        for status in [400, 404, 405, 413, 422, 451] {
            assert!(!End::ClientLeft.is_billed(status), "{status}");
        }
    }

    #[test]
    fn only_a_client_that_left_is_not_published() {
        for (end, label) in all() {
            assert_eq!(End::is_published(label), end != End::ClientLeft, "{end:?}");
        }
        assert!(End::is_published("crash"));
    }

    const LIMIT: MinimumSpeed = MinimumSpeed {
        wait_max: Duration::from_secs(10),
        bytes_per_second_min: 5,
    };

    fn after(start: Instant, seconds: u64) -> Instant {
        start + Duration::from_secs(seconds)
    }

    #[test]
    fn waits_add_up_until_enough_has_moved() {
        let start = crate::edges::clock::instant();
        let mut pace = PeerPace::new(LIMIT);
        assert_eq!(pace.begin_wait(start), after(start, 10));
        assert_eq!(pace.begin_wait(after(start, 3)), after(start, 10), "one wait");
        pace.on_moved(49, || after(start, 4));
        assert_eq!(
            pace.begin_wait(after(start, 100)),
            after(start, 106),
            "four of ten seconds are gone"
        );
        pace.on_moved(1, || after(start, 105));
        assert_eq!(
            pace.begin_wait(after(start, 200)),
            after(start, 210),
            "50 bytes in 9 seconds"
        );
    }

    #[test]
    fn who_moves_a_byte_now_and_then_is_too_slow_at_the_limit() {
        let start = crate::edges::clock::instant();
        let mut pace = PeerPace::new(LIMIT);
        for second in (0..9).step_by(3) {
            assert_eq!(pace.begin_wait(after(start, second)), after(start, 10));
            pace.on_moved(1, || after(start, second + 3));
        }
        assert_eq!(pace.begin_wait(after(start, 9)), after(start, 10));
    }

    #[test]
    fn who_is_not_waited_for_is_never_late() {
        let start = crate::edges::clock::instant();
        let mut pace = PeerPace::new(LIMIT);
        for _ in 0..100 {
            pace.on_moved(0, || unreachable!("nobody waited"));
        }
        assert_eq!(pace.begin_wait(start), after(start, 10));
        pace.on_moved(1, || after(start, 9));
        pace.restart();
        assert_eq!(pace.begin_wait(after(start, 9)), after(start, 19));
    }

    #[test]
    fn a_body_has_its_pace_and_an_end() {
        let start = crate::edges::clock::instant();
        let limit = BodyTimeLimit {
            pace: LIMIT,
            total: Duration::from_secs(25),
        };
        let mut time = BodyTime::new(limit, start);
        assert_eq!(time.begin_wait(start), after(start, 10));
        time.on_moved(50, || after(start, 9));
        assert_eq!(time.begin_wait(after(start, 9)), after(start, 19));
        time.on_moved(50, || after(start, 18));
        assert_eq!(
            time.begin_wait(after(start, 18)),
            after(start, 25),
            "it has come fast enough, but all of it takes too long"
        );
    }

    #[test]
    fn without_a_rate_any_byte_will_do() {
        let start = crate::edges::clock::instant();
        let mut pace = PeerPace::new(MinimumSpeed {
            bytes_per_second_min: 0,
            ..LIMIT
        });
        assert_eq!(pace.begin_wait(start), after(start, 10));
        pace.on_moved(1, || after(start, 9));
        assert_eq!(pace.begin_wait(after(start, 9)), after(start, 19));
    }

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
