//! The end of a request.

use crate::domain::{faults::refusal::Refusal, wire::protocol::Break};

/// How a request ended. Decided once, and read by the charge, the row, the access log and the metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The answer was complete by its protocol.
    Complete,
    /// The provider answered with a status of 400 or above.
    ProviderError,
    /// The provider answered 2xx but reported a failure in the body or stream.
    InBandError,
    /// The answer had begun but could not be completed.
    Broken(Break),
    /// The client got a refusal from weir, no matter whether the client, weir or the provider was at fault.
    Refused(Refusal),
    /// The client disconnected before the answer was complete.
    ClientLeft,
}

impl From<Refusal> for End {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// The label of refusals that were decided before anything was sent to a provider.
const REFUSED: &str = "refused";

/// The recorded status if the client left before it got one, as in nginx's log.
const CLIENT_LEFT: u16 = 499;

impl End {
    /// The label `outcome` in metrics, access log and consumption log: one of a fixed set, in snake_case.
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

    /// The recorded status of the request (docs/interface.md, The public record): the status that the client got, or one that
    /// expresses a failure after a status of 200.
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

    /// Whether a forwarded request is billed (docs/interface.md, The public record). Requests that weir refused, and requests
    /// that the provider rejected as the client's mistake, are not.
    pub(crate) fn is_billed(&self, status: u16) -> bool {
        match self {
            Self::Refused(_) => self.label() != REFUSED,
            Self::ProviderError => matches!(status, 408 | 429 | 500..),
            // The answer was read after the client left, and it may report such a mistake.
            Self::ClientLeft => !matches!(status, 400..=407 | 409..=428 | 430..=498),
            Self::Complete | Self::InBandError | Self::Broken(_) => true,
        }
    }

    /// Whether a billed request with this label counts for the provider's published stability (docs/interface.md, The public
    /// record). It does not if the client left before the answer was complete.
    pub(crate) fn is_published(label: &str) -> bool {
        label != Self::ClientLeft.label()
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
}
