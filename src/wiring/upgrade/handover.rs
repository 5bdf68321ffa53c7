//! The messages of an upgrade, and the predecessor as its successor sees it on the standard input. Two processes exchange one
//! line of JSON each, in turns, over a socket that is the successor's standard input:
//!
//! | predecessor | successor |
//! |---|---|
//! | [`UpgradeOffer`], with the listening sockets | |
//! | | [`SuccessorMessage::Prepared`]: everything but the store is read and bound |
//! | [`StoreHandover`]: the store's files are closed | |
//! | | [`SuccessorMessage::Serving`]: it serves |
//!
//! In place of each message, the successor may send [`SuccessorMessage::Failed`], or end. After [`SuccessorMessage::Serving`], the predecessor calls the
//! successor's store ([`crate::store::embedded::handover`]) until it ends.

use std::{
    io::{self, BufRead, IoSlice, IoSliceMut, Read, Write},
    mem::MaybeUninit,
    net::{SocketAddr, TcpListener},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
};

use rustix::{
    cmsg_space,
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
        recvmsg, sendmsg,
    },
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    config::Config,
    store::embedded::handover::HandoverState,
    wiring::{StartError, listeners::InheritedSocket, upgrade::kept_in},
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
        let (offer, sockets) = receive_offer(&line).map_err(connection_error)?;
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
        send(&self.line, &SuccessorMessage::Prepared).map_err(connection_error)?;
        let take: StoreHandover = receive(&self.line).map_err(connection_error)?;
        tracing::info!("this process has the store now");
        fail::fail_point!("successor_has_the_store");
        Ok(take.carried.unwrap_or_default())
    }

    /// Reports that this process serves. From then on, the predecessor's calls to the store come over the returned connection.
    ///
    /// # Errors
    /// The connection cannot be used.
    pub(in crate::wiring) fn report_serving(self) -> Result<UnixStream, StartError> {
        if let Err(error) = send(&self.line, &SuccessorMessage::Serving) {
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
        let _ = send(&self.0, &SuccessorMessage::Failed(why.to_owned()));
    }
}

fn connection_error(error: io::Error) -> StartError {
    StartError::failed(
        "the running process, which --successor expects at the standard input",
        error,
    )
}

/// The version of the protocol; raised with each incompatible change.
pub(super) const PROTOCOL: u32 = 1;
/// Maximum number of sockets: one for each listener.
pub(super) const SOCKETS_MAX: usize = 16;
/// Maximum length of an offer, in bytes.
const OFFER_BYTES_MAX: usize = 16 * 1024;
/// Maximum length of any other message, in bytes: one contains the holds of all running requests.
const LINE_BYTES_MAX: u64 = 256 << 20;

/// The predecessor's offer; the sockets come with it, in the same order.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct UpgradeOffer {
    /// [`PROTOCOL`].
    pub(super) protocol: u32,
    /// Each socket's listener, and its configured address.
    pub(super) sockets: Vec<(String, SocketAddr)>,
    /// The locations of its store and journal, which the successor must share.
    pub(super) kept_in: String,
}

/// Hands over the closed store, with the state that is not in its files; `None` for a shared store.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct StoreHandover {
    pub(super) carried: Option<HandoverState>,
}

/// A message of the successor.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum SuccessorMessage {
    /// Only the store is missing.
    Prepared,
    /// The successor serves.
    Serving,
    /// The successor does not start, for this reason.
    Failed(String),
}

/// Sends an offer with its sockets.
pub(super) fn send_offer(to: &UnixStream, offer: &UpgradeOffer, sockets: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(SOCKETS_MAX))];
    let mut rights = SendAncillaryBuffer::new(&mut space);
    let line = message_line(offer)?;
    if line.len() > OFFER_BYTES_MAX || !rights.push(SendAncillaryMessage::ScmRights(sockets)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let sent = sendmsg(to, &[IoSlice::new(&line)], &mut rights, SendFlags::NOSIGNAL)?;
    if sent == line.len() {
        Ok(())
    } else {
        Err(io::ErrorKind::WriteZero.into())
    }
}

/// Waits for an offer and its sockets.
pub(super) fn receive_offer(from: &UnixStream) -> io::Result<(UpgradeOffer, Vec<OwnedFd>)> {
    let mut bytes = vec![0; OFFER_BYTES_MAX];
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(SOCKETS_MAX))];
    let mut rights = RecvAncillaryBuffer::new(&mut space);
    let read = recvmsg(
        from,
        &mut [IoSliceMut::new(&mut bytes)],
        &mut rights,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    let sockets = rights.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(sockets) => sockets.collect(),
        _ => Vec::new(),
    });
    let sockets = sockets.collect();
    let line = bytes.get(..read.bytes).and_then(|line| line.strip_suffix(b"\n"));
    let offer = serde_json::from_slice(line.ok_or(io::ErrorKind::UnexpectedEof)?)?;
    Ok((offer, sockets))
}

/// A message as a line.
pub(super) fn message_line(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    Ok(line)
}

/// Sends a message.
pub(super) fn send(to: &UnixStream, message: &impl Serialize) -> io::Result<()> {
    send_line(to, &message_line(message)?)
}

/// Sends a line from [`message_line`].
pub(super) fn send_line(mut to: &UnixStream, line: &[u8]) -> io::Result<()> {
    to.write_all(line)
}

/// Waits for one message. The other side sends nothing more before it is answered, so nothing is lost by buffering.
pub(super) fn receive<T: DeserializeOwned>(from: &UnixStream) -> io::Result<T> {
    let mut line = Vec::new();
    io::BufReader::new(from.take(LINE_BYTES_MAX)).read_until(b'\n', &mut line)?;
    if line.pop() != Some(b'\n') {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(serde_json::from_slice(&line)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{net::TcpListener, os::fd::AsFd};

    #[test]
    fn an_offer_comes_with_its_sockets_and_words_come_one_by_one() {
        let (old, new) = UnixStream::pair().unwrap();
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = socket.local_addr().unwrap();
        let offer = UpgradeOffer {
            protocol: PROTOCOL,
            sockets: vec![("gateway".to_owned(), at)],
            kept_in: "here".to_owned(),
        };
        send_offer(&old, &offer, &[socket.as_fd()]).unwrap();
        let (received, sockets) = receive_offer(&new).unwrap();
        assert_eq!((received.sockets, received.kept_in.as_str()), (offer.sockets, "here"));
        let [received] = <[OwnedFd; 1]>::try_from(sockets).unwrap();
        assert_eq!(TcpListener::from(received).local_addr().unwrap(), at);
        send(&new, &SuccessorMessage::Prepared).unwrap();
        assert!(matches!(receive(&old), Ok(SuccessorMessage::Prepared)));
        send(&new, &SuccessorMessage::Failed("no\nroom".to_owned())).unwrap();
        assert!(matches!(receive(&old), Ok(SuccessorMessage::Failed(why)) if why == "no\nroom"));
        drop(new);
        let end = receive::<SuccessorMessage>(&old).unwrap_err();
        assert_eq!(end.kind(), io::ErrorKind::UnexpectedEof);
    }
}
