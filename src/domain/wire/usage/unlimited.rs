//! What vendors count outside the limit of output that a request sets.

/// What an answer shows of it. The limit holds for each run of a model, and a tool that the provider runs has the model run
/// again; images are made whatever the limit is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unlimited {
    /// Calls of the provider's own tools: searches, code that it ran, and others.
    pub tool_calls: u64,
    /// Images that were made.
    pub images: u64,
}
