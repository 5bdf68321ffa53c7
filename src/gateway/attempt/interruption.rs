//! Why weir itself ends an attempt. Pingora carries the reason from the hook that decides to the hooks that act on it, as
//! the cause of its own error.

use pingora::{Error, ErrorType};

use crate::domain::faults::refusal::Refusal;

/// A reason to end an attempt.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Interruption {
    /// What the provider has answered is to be followed by another attempt.
    #[error("another attempt follows")]
    Repeat,
    /// The client gets this refusal instead of an answer.
    #[error("the request is refused")]
    Refused(Refusal),
}

impl Interruption {
    /// Pingora's error with this cause. `context` is for a reader of the code: Pingora's log is off.
    pub(crate) fn error(self, etype: ErrorType, context: &'static str) -> Box<Error> {
        Error::because(etype, context, self)
    }

    /// The error for a provider's answer that cannot be passed on.
    pub(crate) fn unusable() -> Box<Error> {
        Self::Refused(Refusal::ProviderBroken)
            .error(ErrorType::InvalidHTTPHeader, "an answer that cannot be passed on")
            .into_up()
    }

    /// The interruption that `error` stands for, if it is one.
    pub(crate) fn of(error: &Error) -> Option<&Self> {
        error.root_cause().downcast_ref()
    }

    /// The refusal that `error` stands for, if it does.
    pub(crate) fn refusal(error: &Error) -> Option<&Refusal> {
        match Self::of(error)? {
            Self::Refused(refusal) => Some(refusal),
            Self::Repeat => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_found_behind_whatever_pingora_adds() {
        let refused = Interruption::Refused(Refusal::ProviderBroken);
        let error = refused
            .clone()
            .error(ErrorType::InvalidHTTPHeader, "an answer")
            .into_up();
        assert_eq!(Interruption::of(&error), Some(&refused));
        let wrapped = error.more_context("while passing it on");
        assert_eq!(Interruption::refusal(&wrapped), Some(&Refusal::ProviderBroken));
        assert_eq!(*wrapped.etype(), ErrorType::InvalidHTTPHeader);
        let repeated = Interruption::Repeat.error(ErrorType::Custom("to be tried again"), "after an answer");
        assert_eq!(Interruption::refusal(&repeated), None);
        let pingoras = Error::because(ErrorType::ReadError, "reading", std::io::Error::other("broken"));
        assert_eq!(Interruption::of(&pingoras), None);
        assert_eq!(Interruption::of(&Error::new(ErrorType::ConnectionClosed)), None);
    }
}
