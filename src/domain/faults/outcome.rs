//! The outcomes of a request.

/// The one way in which a request ended; a bounded label for metrics and the access log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Outcome {
    /// The provider's answer was complete and reached the client.
    Ok,
    /// The provider answered with a status of 400 or above, or with a redirect.
    ProviderError,
    /// The provider answered 2xx and said in the body or the stream that it failed.
    InBandError,
    /// The provider's answer ended before it was complete.
    ProviderCut,
    /// The provider was silent for longer than allowed.
    ProviderTimeout,
    /// No connection to the provider could be made.
    ProviderUnreachable,
    /// The provider refused the credential that this service holds.
    CredentialRefused,
    /// The client left before the answer was complete.
    ClientGone,
    /// weir ended the answer: nothing was left to pay for the rest, and the key is set to be cut then.
    LimitReached,
    /// weir was being stopped, and the time that running requests are given had passed.
    Stopped,
    /// weir said no itself, before anything was sent to a provider.
    Refused,
    /// weir failed.
    Internal,
}

impl Outcome {
    /// The label, in snake_case.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::ProviderError => "provider_error",
            Self::InBandError => "in_band_error",
            Self::ProviderCut => "provider_cut",
            Self::ProviderTimeout => "provider_timeout",
            Self::ProviderUnreachable => "provider_unreachable",
            Self::CredentialRefused => "credential_refused",
            Self::ClientGone => "client_gone",
            Self::LimitReached => "limit_reached",
            Self::Stopped => "stopped",
            Self::Refused => "refused",
            Self::Internal => "internal",
        }
    }
}

/// The status that stands for a client that left before it got one (as nginx logs it).
const CLIENT_LEFT: u16 = 499;

impl Outcome {
    /// The status that the request is recorded with (docs/interface.md, The public record): what the client got, or what
    /// stands for it where the answer failed behind its 200.
    pub(crate) fn recorded_status(self, answered: u16) -> u16 {
        match self {
            Self::ProviderCut | Self::InBandError | Self::ProviderUnreachable => answered.max(502),
            Self::ProviderTimeout => answered.max(504),
            Self::Stopped => answered.max(503),
            Self::Internal => answered.max(500),
            Self::ClientGone if answered == 0 => CLIENT_LEFT,
            Self::Ok
            | Self::ProviderError
            | Self::CredentialRefused
            | Self::ClientGone
            | Self::LimitReached
            | Self::Refused => answered,
        }
    }

    /// Whether a request that was forwarded is billed (docs/interface.md, The public record): all but what weir refused and
    /// what the provider says was the client's own mistake.
    pub(crate) fn is_billed(self, status: u16) -> bool {
        match self {
            Self::Refused => false,
            Self::ProviderError => matches!(status, 408 | 429 | 500..),
            // Its answer was read without it, and may have been such a mistake.
            Self::ClientGone => !matches!(status, 400..=407 | 409..=428 | 430..=498),
            Self::Ok
            | Self::InBandError
            | Self::ProviderCut
            | Self::ProviderTimeout
            | Self::ProviderUnreachable
            | Self::CredentialRefused
            | Self::LimitReached
            | Self::Stopped
            | Self::Internal => true,
        }
    }

    /// Whether a billed request with this label says how its provider behaves (docs/interface.md, The public record): all
    /// but those whose client left before their answer was complete.
    pub(crate) fn is_published(label: &str) -> bool {
        label != Self::ClientGone.as_str()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_failure_behind_a_200_is_recorded_as_one() {
        for (outcome, answered, recorded) in [
            (Outcome::Ok, 200, 200),
            (Outcome::ProviderError, 529, 529),
            (Outcome::ProviderCut, 200, 502),
            (Outcome::InBandError, 200, 502),
            (Outcome::ProviderTimeout, 200, 504),
            (Outcome::ProviderTimeout, 504, 504),
            (Outcome::ProviderUnreachable, 503, 503),
            (Outcome::CredentialRefused, 503, 503),
            (Outcome::ClientGone, 0, 499),
            (Outcome::ClientGone, 200, 200),
            (Outcome::LimitReached, 200, 200),
            (Outcome::Stopped, 200, 503),
            (Outcome::Stopped, 0, 503),
            (Outcome::Internal, 0, 500),
        ] {
            assert_eq!(outcome.recorded_status(answered), recorded, "{outcome:?}");
        }
    }

    #[test]
    fn the_clients_own_mistakes_are_not_billed() {
        for status in [400, 404, 405, 413, 422] {
            assert!(!Outcome::ProviderError.is_billed(status), "{status}");
        }
        for status in [408, 429, 500, 503, 529] {
            assert!(Outcome::ProviderError.is_billed(status), "{status}");
        }
        assert!(!Outcome::Refused.is_billed(429));
        assert!(Outcome::ProviderUnreachable.is_billed(503));
    }

    #[test]
    fn who_left_is_billed_unless_its_request_was_a_mistake() {
        for status in [0, 200, 408, 429, 499, 500, 529] {
            assert!(Outcome::ClientGone.is_billed(status), "{status}");
        }
        for status in [400, 404, 405, 413, 422, 451] {
            assert!(!Outcome::ClientGone.is_billed(status), "{status}");
        }
    }

    #[test]
    fn only_who_left_is_not_published() {
        for outcome in ALL {
            assert_eq!(
                Outcome::is_published(outcome.as_str()),
                outcome != Outcome::ClientGone,
                "{outcome:?}"
            );
        }
        assert!(Outcome::is_published("crash"));
    }

    const ALL: [Outcome; 12] = [
        Outcome::Ok,
        Outcome::ProviderError,
        Outcome::InBandError,
        Outcome::ProviderCut,
        Outcome::ProviderTimeout,
        Outcome::ProviderUnreachable,
        Outcome::CredentialRefused,
        Outcome::ClientGone,
        Outcome::LimitReached,
        Outcome::Stopped,
        Outcome::Refused,
        Outcome::Internal,
    ];

    #[test]
    fn labels_differ_and_are_snake_case() {
        let labels: HashSet<&str> = ALL.iter().map(|outcome| outcome.as_str()).collect();
        assert_eq!(labels.len(), ALL.len());
        assert!(
            labels
                .iter()
                .all(|label| label.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'))
        );
    }
}
