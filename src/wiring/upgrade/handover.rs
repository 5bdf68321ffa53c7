//! The messages of an upgrade, and the successor's handle of its predecessor. The two processes are connected by a socket, which
//! is the successor's standard input. They take turns in sending one line of JSON:
//!
//! | predecessor | successor |
//! |---|---|
//! | [`UpgradeOffer`], with the listening sockets | |
//! | | [`SuccessorMessage::Prepared`]: everything but the store has been read and bound |
//! | [`StoreHandover`]: the store's files are closed | |
//! | | [`SuccessorMessage::Serving`]: the successor serves |
//!
//! Instead of any of its messages, the successor can send [`SuccessorMessage::Failed`], or end. After
//! [`SuccessorMessage::Serving`], the predecessor calls the store through the successor ([`crate::store::embedded::handover`])
//! until the predecessor ends.

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

/// The process that this process replaces, with its offer.
pub(in crate::wiring) struct Predecessor {
    line: UnixStream,
    offer: UpgradeOffer,
    sockets: Vec<OwnedFd>,
}

/// Reports to the predecessor that this process does not start.
pub(in crate::wiring) struct FailureReporter(UnixStream);

impl Predecessor {
    /// Takes over the connection on standard input, and reads the predecessor's offer from it.
    ///
    /// # Errors
    /// This process was not started by a serving weir, or the serving weir uses another version of the protocol.
    pub(in crate::wiring) fn from_stdin() -> Result<Self, StartError> {
        let line = io::stdin().as_fd().try_clone_to_owned().map_err(connection_error)?;
        let line = UnixStream::from(line);
        let (offer, sockets) = receive_offer(&line).map_err(connection_error)?;
        let this = Self { line, offer, sockets };
        if this.offer.protocol != PROTOCOL {
            let why = format!(
                "this version cannot replace the running version (upgrade protocol {PROTOCOL}, not {}): restart weir instead",
                this.offer.protocol
            );
            this.failure_reporter()?.report(&why);
            return Err(StartError::Listen(why));
        }
        Ok(this)
    }

    /// Returns a handle for reporting that this process failed to start.
    pub(in crate::wiring) fn failure_reporter(&self) -> Result<FailureReporter, StartError> {
        self.line.try_clone().map(FailureReporter).map_err(connection_error)
    }

    /// Checks that the predecessor's store and journal have the same locations as in `config`.
    ///
    /// # Errors
    /// The locations differ. An upgrade to other locations would lose the predecessor's unsettled charges, so weir must be
    /// restarted.
    pub(in crate::wiring) fn check_locations(&self, config: &Config) -> Result<(), StartError> {
        let (before, now) = (&self.offer.kept_in, kept_in(config));
        if *before == now {
            return Ok(());
        }
        Err(StartError::Configuration(format!(
            "the running process uses {before}, but the configuration has {now}: this change needs a restart"
        )))
    }

    /// Takes the listening sockets that the predecessor has sent.
    pub(in crate::wiring) fn take_sockets(&mut self) -> Vec<InheritedSocket> {
        let sockets = std::mem::take(&mut self.sockets).into_iter().map(TcpListener::from);
        let listeners = std::mem::take(&mut self.offer.sockets).into_iter();
        let inherited = listeners
            .zip(sockets)
            .map(|((name, at), socket)| InheritedSocket { name, at, socket });
        inherited.collect()
    }

    /// Reports to the predecessor that this process needs only the store, and waits until the predecessor hands over the store.
    /// Returns the part of the predecessor's state that is in no file.
    ///
    /// # Errors
    /// The predecessor has not handed over the store, and continues to serve.
    pub(in crate::wiring) fn take_store(&self) -> Result<HandoverState, StartError> {
        tracing::info!("everything but the store is ready; requesting the store from the previous process");
        fail::fail_point!("successor_prepared");
        send(&self.line, &SuccessorMessage::Prepared).map_err(connection_error)?;
        let take: StoreHandover = receive(&self.line).map_err(connection_error)?;
        tracing::info!("this process has the store now");
        fail::fail_point!("successor_has_the_store");
        Ok(take.carried.unwrap_or_default())
    }

    /// Reports to the predecessor that this process serves. From then on, the predecessor's calls of the store arrive on the
    /// returned connection.
    ///
    /// # Errors
    /// The connection cannot be used.
    pub(in crate::wiring) fn report_serving(self) -> Result<UnixStream, StartError> {
        if let Err(error) = send(&self.line, &SuccessorMessage::Serving) {
            // A predecessor that abandons the upgrade kills this process. This process still runs, so the predecessor has ended,
            // and no other process serves.
            tracing::warn!(%error, "cannot report to the previous process that this process now serves requests, because the previous process has ended");
        }
        self.line.set_nonblocking(true).map_err(connection_error)?;
        Ok(self.line)
    }
}

impl FailureReporter {
    /// Reports why this process does not start.
    pub(in crate::wiring) fn report(&self, why: &str) {
        // A failure is ignored, because a predecessor that has ended needs no message.
        let _ = send(&self.0, &SuccessorMessage::Failed(why.to_owned()));
    }
}

fn connection_error(error: io::Error) -> StartError {
    StartError::failed(
        "cannot communicate with the running process, which --successor expects on standard input",
        error,
    )
}

/// The version of the protocol. Each incompatible change increases it.
pub(super) const PROTOCOL: u32 = 1;
/// The maximum number of handed-over sockets. Each listener has one.
pub(super) const SOCKETS_MAX: usize = 16;
/// The maximum length of an offer, in bytes.
const OFFER_BYTES_MAX: usize = 16 * 1024;
/// The maximum length of each message except an offer, in bytes. It is large, because [`StoreHandover`] contains the holds of all
/// running requests.
const LINE_BYTES_MAX: u64 = 256 << 20;

/// The predecessor's offer. The listening sockets are sent with it, in the same order as in `sockets`.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct UpgradeOffer {
    /// The version of the predecessor's protocol.
    pub(super) protocol: u32,
    /// The name of each socket's listener, and its configured address.
    pub(super) sockets: Vec<(String, SocketAddr)>,
    /// The locations of the predecessor's store and journal, which must also be the successor's.
    pub(super) kept_in: String,
}

/// Hands over the store, whose files the predecessor has closed. `carried` is the part of the predecessor's state that is in no
/// file; `None` if several processes share the store.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct StoreHandover {
    pub(super) carried: Option<HandoverState>,
}

/// A message from the successor to the predecessor.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum SuccessorMessage {
    /// The successor is ready except for the store.
    Prepared,
    /// The successor serves.
    Serving,
    /// The successor does not start, for this reason.
    Failed(String),
}

/// Sends an offer together with its sockets.
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

/// Encodes a message as a line of JSON.
pub(super) fn message_line(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    Ok(line)
}

/// Sends a message of the upgrade as a line of JSON.
pub(super) fn send(to: &UnixStream, message: &impl Serialize) -> io::Result<()> {
    send_line(to, &message_line(message)?)
}

/// Sends a line that [`message_line`] has returned.
pub(super) fn send_line(mut to: &UnixStream, line: &[u8]) -> io::Result<()> {
    to.write_all(line)
}

/// Waits for one message. The read buffer never contains bytes of a further message, because the other process sends nothing more
/// until it gets an answer.
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
