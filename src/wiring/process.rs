//! Whose process weir runs in.

/// Whose process weir runs in. Signals, the service manager and the end of the process are the business of its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Process {
    /// weir's: `weir serve` or `weir demo`.
    Own,
    /// Another program's, to whose server weir's services were added.
    Foreign,
}
