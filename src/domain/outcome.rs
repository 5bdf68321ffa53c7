//! How a request ended.

/// The one way in which a request ended; a bounded label for metrics and the access log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The provider's answer was complete and reached the client.
    Ok,
    /// The provider answered with a status of 400 or above.
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
    /// weir said no itself, before anything was sent to a provider.
    Refused,
    /// weir failed.
    Internal,
}

impl Outcome {
    /// Every outcome, in the order of declaration: for metrics that are registered before the first request.
    pub const ALL: [Self; 10] = [
        Self::Ok,
        Self::ProviderError,
        Self::InBandError,
        Self::ProviderCut,
        Self::ProviderTimeout,
        Self::ProviderUnreachable,
        Self::CredentialRefused,
        Self::ClientGone,
        Self::Refused,
        Self::Internal,
    ];

    /// The label, in snake_case.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::ProviderError => "provider_error",
            Self::InBandError => "in_band_error",
            Self::ProviderCut => "provider_cut",
            Self::ProviderTimeout => "provider_timeout",
            Self::ProviderUnreachable => "provider_unreachable",
            Self::CredentialRefused => "credential_refused",
            Self::ClientGone => "client_gone",
            Self::Refused => "refused",
            Self::Internal => "internal",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn labels_differ_and_are_snake_case() {
        let labels: HashSet<&str> = Outcome::ALL.iter().map(|outcome| outcome.as_str()).collect();
        assert_eq!(labels.len(), Outcome::ALL.len());
        assert!(
            labels
                .iter()
                .all(|label| label.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'))
        );
    }
}
