//! The work that a request's output limit does not cover.

/// The work in an answer that the request's output limit does not cover: the limit applies to each run of a model, and the model
/// runs again after a call of a provider's own tool; images do not count toward the limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnlimitedWork {
    /// Calls of the provider's own tools, such as searches and code execution.
    pub tool_calls: u64,
    /// Images in the answer.
    pub images: u64,
}
