//! A running weir, and all that its end needs.

use std::{sync::Arc, time::Duration};

use tempfile::NamedTempFile;
use tokio::{io::AsyncReadExt, net::UnixStream, runtime::Runtime, sync::watch, task::JoinHandle};

use crate::wiring::{
    StartError, listeners::ListeningSockets, parts::NodeParts, phase::Phase, process::ProcessOwner,
    upgrade::predecessor::Predecessor,
};

/// A running weir; [`Running::until_stopped`] waits for its end.
pub(crate) struct RunningWeir {
    /// Its parts.
    pub parts: NodeParts,
    /// The runtime of its background tasks.
    pub background: Runtime,
    /// The owner of its process.
    pub(super) process: ProcessOwner,
    pub(super) phase: watch::Receiver<Phase>,
    /// How long running requests may go on after the gateway has closed.
    pub(super) drain_time: Duration,
    /// Turns true when the successor serves.
    pub(super) handed_over: watch::Receiver<bool>,
    pub(super) listeners: Arc<ListeningSockets>,
    /// Turned true to close the listeners other than the gateway's.
    pub(super) side_closing: watch::Sender<bool>,
    /// Ends with the predecessor.
    pub(super) predecessor: Option<JoinHandle<()>>,
    pub(super) server: ServerEnd,
    /// Must exist as long as the server.
    pub(super) _roots: Option<NamedTempFile>,
}

/// The end of the server that weir's services are part of.
pub(super) struct ServerEnd {
    /// Ends the server; `None` if its owner does.
    pub(super) order: Option<watch::Sender<bool>>,
    /// Turns true when the server has dropped everything that ran in it.
    pub(super) ended: watch::Receiver<bool>,
}

impl RunningWeir {
    /// Tells the predecessor that this process serves, then handles its calls to the store until it ends.
    pub(super) fn announce_to(mut self, predecessor: Predecessor) -> Result<Self, StartError> {
        let line = predecessor.report_serving()?;
        let unheard = |error| StartError::failed("the connection to the predecessor", error);
        let mut line = self
            .background
            .block_on(async { UnixStream::from_std(line) })
            .map_err(unheard)?;
        self.predecessor = Some(match self.parts.money.embedded() {
            Some(store) => self.background.spawn(store.serve_predecessor(line)),
            // The predecessor only closes it when it ends.
            None => self.background.spawn(async move { drop(line.read_u8().await) }),
        });
        Ok(self)
    }
}
