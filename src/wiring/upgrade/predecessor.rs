//! The process before, as the one that is to take its place has it on its standard input.

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
    store::embedded::handover::Carried,
    wiring::{
        StartError,
        listeners::Inherited,
        upgrade::{
            kept_in,
            message::{self, Offer, PROTOCOL, Take, Word},
        },
    },
};

/// The process before.
pub(in crate::wiring) struct Predecessor {
    line: UnixStream,
    offer: Offer,
    sockets: Vec<OwnedFd>,
}

/// What tells the process before that this one does not come up.
pub(in crate::wiring) struct Line(UnixStream);

impl Predecessor {
    /// Takes the line from the standard input, and the offer from there.
    ///
    /// # Errors
    /// This process was not started by one that serves, or not by one that this one understands.
    pub(in crate::wiring) fn meet() -> Result<Self, StartError> {
        let line = io::stdin().as_fd().try_clone_to_owned().map_err(unheard)?;
        let line = UnixStream::from(line);
        let (offer, sockets) = message::receive_offer(&line).map_err(unheard)?;
        let this = Self { line, offer, sockets };
        if this.offer.protocol != PROTOCOL {
            let why = format!(
                "this version cannot take over from the one that runs (protocol {PROTOCOL}, not {}): restart weir",
                this.offer.protocol
            );
            this.line()?.failed(&why);
            return Err(StartError::Listen(why));
        }
        Ok(this)
    }

    /// For a word about a failure.
    pub(in crate::wiring) fn line(&self) -> Result<Line, StartError> {
        self.line.try_clone().map(Line).map_err(unheard)
    }

    /// Whether it keeps everything where this configuration does.
    ///
    /// # Errors
    /// It does not: what it still owes would be settled nowhere.
    pub(in crate::wiring) fn keeps_as(&self, config: &Config) -> Result<(), StartError> {
        let (before, now) = (&self.offer.kept_in, kept_in(config));
        if *before == now {
            return Ok(());
        }
        Err(StartError::Configuration(format!(
            "the running process keeps everything in {before}, the configuration says {now}: that takes a restart"
        )))
    }

    /// Its listening sockets.
    pub(in crate::wiring) fn take_sockets(&mut self) -> Vec<Inherited> {
        let sockets = std::mem::take(&mut self.sockets).into_iter().map(TcpListener::from);
        let listeners = std::mem::take(&mut self.offer.sockets).into_iter();
        let inherited = listeners
            .zip(sockets)
            .map(|((name, at), socket)| Inherited { name, at, socket });
        inherited.collect()
    }

    /// Says that nothing is needed any more but the store, and waits for it: for what its files do not have.
    ///
    /// # Errors
    /// It goes on serving by itself.
    pub(in crate::wiring) fn take_store(&self) -> Result<Carried, StartError> {
        tracing::info!("all is read but the store, which is asked for");
        fail::fail_point!("successor_prepared");
        message::send(&self.line, &Word::Prepared).map_err(unheard)?;
        let take: Take = message::receive(&self.line).map_err(unheard)?;
        tracing::info!("the store is this process's now");
        fail::fail_point!("successor_has_the_store");
        Ok(take.carried.unwrap_or_default())
    }

    /// Says that this process serves. What it asks of the store from then on comes on the line.
    ///
    /// # Errors
    /// The line cannot be used.
    pub(in crate::wiring) fn serving(self) -> Result<UnixStream, StartError> {
        if let Err(error) = message::send(&self.line, &Word::Serving) {
            // It would have ended this process, had it gone back: so it is dead, and nobody else serves.
            tracing::warn!(%error, "the process before has ended and is not told that this one serves");
        }
        self.line.set_nonblocking(true).map_err(unheard)?;
        Ok(self.line)
    }
}

impl Line {
    /// Says why this process does not come up.
    pub(in crate::wiring) fn failed(&self, why: &str) {
        // One that has ended goes on by itself no more.
        let _ = message::send(&self.0, &Word::Failed(why.to_owned()));
    }
}

fn unheard(error: io::Error) -> StartError {
    StartError::failed(
        "the process before this one, which --successor expects at the standard input",
        error,
    )
}
