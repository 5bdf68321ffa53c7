//! What goes wrong behind an answer's status line: a failure that weir tells the client of, an error that the provider sends.

/// A failure of a stream whose status line was already sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MidStreamFailure {
    /// The kind of failure, which decides the in-band error's type.
    pub kind: FailureKind,
    /// The message for the client. It is escaped where needed.
    pub message: String,
}

/// Why a stream ends early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailureKind {
    /// The provider closed or reset the connection.
    ProviderCut,
    /// The provider was silent for longer than its time limit.
    ProviderTimeout,
    /// The key's quota or the account's balance is used up.
    LimitReached,
    /// weir is shutting down.
    Stopped,
    /// An error of weir's own.
    Internal,
}

/// An error inside an answer. Never contains the message, which is the provider's text and may quote the prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InBandError {
    /// The error's type (Messages, Responses) or status (Gemini).
    pub kind: String,
    /// The error's code, when it has one.
    pub code: Option<String>,
}
