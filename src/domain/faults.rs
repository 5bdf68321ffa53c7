//! Failures and their consequences: how requests end, refusals, retries, circuit breakers, minimum speeds, and the stability of
//! models.

pub(crate) mod circuit;
pub(crate) mod refusal;
pub(crate) mod retry;
pub(crate) mod stability;

use std::time::{Duration, Instant};

use crate::domain::{faults::refusal::Refusal, wire::protocol::Break};

/// How a request ended. It is decided once. The charge, the row, the access log and the metrics follow from it.
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
    /// The client got a refusal from weir, whether the client, weir or the provider was at fault.
    Refused(Refusal),
    /// The client disconnected before the answer was complete.
    ClientLeft,
}

impl From<Refusal> for End {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// The label `outcome` of refusals that were decided before anything was sent to a provider.
const REFUSED: &str = "refused";

/// The recorded status if the client disconnected before it got a status. nginx uses the same status in its log.
const CLIENT_LEFT: u16 = 499;

impl End {
    /// Returns the label `outcome` for metrics, access log and consumption log: one of a fixed set, in snake_case.
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

    /// Returns the status to record (docs/interface.md, The public record). It is the status that the client got, `answered`, or
    /// one that expresses a failure after a 2xx status. `answered` is 0 if the client got no status.
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

    /// Whether a forwarded request is billed (docs/interface.md, The public record). A request is not billed if weir refused it,
    /// or if the provider rejected it as the client's mistake.
    pub(crate) fn is_billed(&self, status: u16) -> bool {
        match self {
            Self::Refused(_) => self.label() != REFUSED,
            Self::ProviderError => matches!(status, 408 | 429 | 500..),
            // After the client disconnected, the answer was still read, and it may report a mistake of the client.
            Self::ClientLeft => !matches!(status, 400..=407 | 409..=428 | 430..=498),
            Self::Complete | Self::InBandError | Self::Broken(_) => true,
        }
    }

    /// Whether a billed request with this label `outcome` is included in the published stability (docs/interface.md, The public
    /// record). It is not if the client disconnected before the answer was complete.
    pub(crate) fn is_published(label: &str) -> bool {
        label != Self::ClientLeft.label()
    }
}

/// The minimum speed at which a peer has to send or read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MinimumSpeed {
    /// The maximum total time to wait for the peer until the minimum number of bytes has been transferred.
    pub wait_max: Duration,
    /// The minimum number of bytes per second of `wait_max`. With 0, any byte is enough.
    pub bytes_per_second_min: u64,
}

/// Measures how long weir has waited for a peer. Only the time in which weir waits is measured, so a peer that has nothing to
/// send or read does not count as slow.
#[derive(Debug)]
pub(crate) struct PeerPace {
    limit: MinimumSpeed,
    waiting_since: Option<Instant>,
    waited: Duration,
    moved: u64,
}

impl PeerPace {
    /// Creates the measurement, with no time waited yet.
    pub(crate) fn new(limit: MinimumSpeed) -> Self {
        Self {
            limit,
            waiting_since: None,
            waited: Duration::ZERO,
            moved: 0,
        }
    }

    /// Records that weir waits for the peer. The wait began at `now`, or at an earlier call if nothing was transferred since.
    /// Returns the deadline of the wait.
    pub(crate) fn begin_wait(&mut self, now: Instant) -> Instant {
        let since = *self.waiting_since.get_or_insert(now);
        since + self.limit.wait_max.saturating_sub(self.waited)
    }

    /// Starts the measurement again, for the next transfer.
    pub(crate) fn restart(&mut self) {
        *self = Self::new(self.limit);
    }

    /// Records that `bytes` were transferred, which ends the wait. `now` is called only if weir was waiting.
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

/// Measures the time of one body's transfer against its limits.
#[derive(Debug)]
pub(crate) struct BodyTime {
    pace: PeerPace,
    end: Instant,
}

impl BodyTime {
    /// Creates the measurement for a body that begins at `now`.
    pub(crate) fn new(limit: BodyTimeLimit, now: Instant) -> Self {
        Self {
            pace: PeerPace::new(limit.pace),
            end: now + limit.total,
        }
    }

    /// Records that weir waits for more of the body. Returns the deadline of the wait.
    pub(crate) fn begin_wait(&mut self, now: Instant) -> Instant {
        self.pace.begin_wait(now).min(self.end)
    }

    /// Records that `bytes` of the body have arrived. `now` is called only if weir was waiting.
    pub(crate) fn on_moved(&mut self, bytes: usize, now: impl FnOnce() -> Instant) {
        self.pace.on_moved(bytes, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::faults::refusal::BodyShare;

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
}
