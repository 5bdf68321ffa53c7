//! The messages of an upgrade, and the predecessor as its successor sees it on the standard input. Two processes exchange one
//! line of JSON each, in turns, over a socket that is the successor's standard input:
//!
//! | predecessor | successor |
//! |---|---|
//! | [`Offer`], with the listening sockets | |
//! | | [`Word::Prepared`]: everything but the store is read and bound |
//! | [`Take`]: the store's files are closed | |
//! | | [`Word::Serving`]: it serves |
//!
//! In place of each message, the successor may send [`Word::Failed`], or end. After [`Word::Serving`], the predecessor calls the
//! successor's store ([`crate::store::embedded::handover`]) until it ends.

use std::{
    io,
    net::TcpListener,
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
};

use crate::{
    config::Config,
    store::embedded::handover::HandoverState,
    wiring::{
        StartError,
        listeners::InheritedSocket,
        upgrade::{
            kept_in,
            message::{self, PROTOCOL, StoreHandover, SuccessorMessage, UpgradeOffer},
        },
    },
};

/// The process that this one replaces.
pub(in crate::wiring) struct Predecessor {
    line: UnixStream,
    offer: UpgradeOffer,
    sockets: Vec<OwnedFd>,
}

/// Reports to the predecessor that this process does not start.
pub(in crate::wiring) struct FailureReporter(UnixStream);

impl Predecessor {
    /// Takes over the connection on the standard input, and reads the offer from it.
    ///
    /// # Errors
    /// This process was not started by a serving one, or by one with another protocol.
    pub(in crate::wiring) fn from_stdin() -> Result<Self, StartError> {
        let line = io::stdin().as_fd().try_clone_to_owned().map_err(connection_error)?;
        let line = UnixStream::from(line);
        let (offer, sockets) = message::receive_offer(&line).map_err(connection_error)?;
        let this = Self { line, offer, sockets };
        if this.offer.protocol != PROTOCOL {
            let why = format!(
                "this version cannot replace the running one (protocol {PROTOCOL}, not {}): restart weir",
                this.offer.protocol
            );
            this.failure_reporter()?.report(&why);
            return Err(StartError::Listen(why));
        }
        Ok(this)
    }

    /// A handle for reporting a failure.
    pub(in crate::wiring) fn failure_reporter(&self) -> Result<FailureReporter, StartError> {
        self.line.try_clone().map(FailureReporter).map_err(connection_error)
    }

    /// Checks that the predecessor has its store and journal at the same locations as `config`.
    ///
    /// # Errors
    /// It does not: its unsettled charges would be lost.
    pub(in crate::wiring) fn check_locations(&self, config: &Config) -> Result<(), StartError> {
        let (before, now) = (&self.offer.kept_in, kept_in(config));
        if *before == now {
            return Ok(());
        }
        Err(StartError::Configuration(format!(
            "the running process uses {before}, but the configuration has {now}: this change needs a restart"
        )))
    }

    /// Takes its listening sockets.
    pub(in crate::wiring) fn take_sockets(&mut self) -> Vec<InheritedSocket> {
        let sockets = std::mem::take(&mut self.sockets).into_iter().map(TcpListener::from);
        let listeners = std::mem::take(&mut self.offer.sockets).into_iter();
        let inherited = listeners
            .zip(sockets)
            .map(|((name, at), socket)| InheritedSocket { name, at, socket });
        inherited.collect()
    }

    /// Reports that only the store is missing, and waits for it. Returns the predecessor's state that is not in the store's
    /// files.
    ///
    /// # Errors
    /// The predecessor goes on serving.
    pub(in crate::wiring) fn take_store(&self) -> Result<HandoverState, StartError> {
        tracing::info!("everything but the store is ready; requesting the store");
        fail::fail_point!("successor_prepared");
        message::send(&self.line, &SuccessorMessage::Prepared).map_err(connection_error)?;
        let take: StoreHandover = message::receive(&self.line).map_err(connection_error)?;
        tracing::info!("this process has the store now");
        fail::fail_point!("successor_has_the_store");
        Ok(take.carried.unwrap_or_default())
    }

    /// Reports that this process serves. From then on, the predecessor's calls to the store come over the returned connection.
    ///
    /// # Errors
    /// The connection cannot be used.
    pub(in crate::wiring) fn report_serving(self) -> Result<UnixStream, StartError> {
        if let Err(error) = message::send(&self.line, &SuccessorMessage::Serving) {
            // A predecessor that gives up the upgrade kills this process: so it is dead, and no other process serves.
            tracing::warn!(%error, "the previous process has ended and cannot be told that this one serves");
        }
        self.line.set_nonblocking(true).map_err(connection_error)?;
        Ok(self.line)
    }
}

impl FailureReporter {
    /// Reports why this process does not start.
    pub(in crate::wiring) fn report(&self, why: &str) {
        // A predecessor that has ended needs no message.
        let _ = message::send(&self.0, &SuccessorMessage::Failed(why.to_owned()));
    }
}

fn connection_error(error: io::Error) -> StartError {
    StartError::failed(
        "the running process, which --successor expects at the standard input",
        error,
    )
}
