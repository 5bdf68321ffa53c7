//! A weir that serves, and all that its end needs.

use std::{sync::Arc, time::Duration};

use tempfile::NamedTempFile;
use tokio::{io::AsyncReadExt, net::UnixStream, runtime::Runtime, sync::watch, task::JoinHandle};

use crate::wiring::{
    StartError, listeners::Listeners, parts::Parts, phase::Phase, process::Process, upgrade::predecessor::Predecessor,
};

/// A weir that serves, until [`Running::until_stopped`].
pub(crate) struct Running {
    /// The parts that it runs.
    pub parts: Parts,
    /// Where its background tasks run.
    pub background: Runtime,
    /// Whose process it is in.
    pub(super) process: Process,
    pub(super) phase: watch::Receiver<Phase>,
    /// How long requests may go on when nothing new is taken.
    pub(super) drain_time: Duration,
    /// Turns true when another process serves in its place.
    pub(super) handed_over: watch::Receiver<bool>,
    pub(super) listeners: Arc<Listeners>,
    /// Turns true when the listeners beside the gateway are to take nothing new.
    pub(super) side_closing: watch::Sender<bool>,
    /// Ends with the process before.
    pub(super) predecessor: Option<JoinHandle<()>>,
    pub(super) server: ServerEnd,
    /// Has to be there as long as the server.
    pub(super) _roots: Option<NamedTempFile>,
}

/// The end of the server that weir's services are part of.
pub(super) struct ServerEnd {
    /// Ends the server; `None` where its owner does.
    pub(super) order: Option<watch::Sender<bool>>,
    /// Turns true when the server has dropped all that ran in it.
    pub(super) ended: watch::Receiver<bool>,
}

impl Running {
    /// Tells the process before that this one serves, answers what that one asks of the store, and knows when it has ended.
    pub(super) fn after(mut self, predecessor: Predecessor) -> Result<Self, StartError> {
        let line = predecessor.serving()?;
        let unheard = |error| StartError::failed("the line to the process before", error);
        let mut line = self
            .background
            .block_on(async { UnixStream::from_std(line) })
            .map_err(unheard)?;
        self.predecessor = Some(match self.parts.money.embedded() {
            Some(store) => self.background.spawn(store.serve_predecessor(line)),
            // It only closes it, in the end.
            None => self.background.spawn(async move { drop(line.read_u8().await) }),
        });
        Ok(self)
    }
}
