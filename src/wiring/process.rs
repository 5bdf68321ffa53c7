//! The process that weir runs in: its owner, its signals, its service manager, and its file descriptors.

/// The owner of the process that weir runs in. Signals, the service manager and the end of the process are the owner's task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProcessOwner {
    /// weir's: `weir serve` or `weir demo`.
    Own,
    /// Another program's, with weir's services added to its server.
    Foreign,
}
