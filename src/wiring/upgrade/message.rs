//! What the process that serves and the one that is to take its place say to each other, over a socket that is the new one's
//! standard input: a line of JSON each, in turns.
//!
//! | old | new |
//! |---|---|
//! | [`Offer`], with the listening sockets | |
//! | | [`Word::Prepared`]: all is read and bound but the store |
//! | [`Take`]: the store's files are closed | |
//! | | [`Word::Serving`]: it serves |
//!
//! Instead of each word of the new one there may be [`Word::Failed`], or its end. After [`Word::Serving`] the old one asks the
//! new one's store ([`crate::store::embedded::handover`]), until it ends.

use std::{
    io::{self, BufRead, IoSlice, IoSliceMut, Read, Write},
    mem::MaybeUninit,
    net::SocketAddr,
    os::{
        fd::{BorrowedFd, OwnedFd},
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

use crate::store::embedded::handover::Carried;

/// Changes with what the two may not understand of each other.
pub(super) const PROTOCOL: u32 = 1;
/// The most sockets that are handed over: one for each listener.
pub(super) const SOCKETS_MAX: usize = 16;
/// The longest offer, in bytes.
const OFFER_BYTES_MAX: usize = 16 * 1024;
/// The longest other line, in bytes: what is held for all running requests.
const LINE_BYTES_MAX: u64 = 256 << 20;

/// What the old process offers, with the sockets in their order.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Offer {
    /// [`PROTOCOL`].
    pub(super) protocol: u32,
    /// Each socket's listener, and the address that its configuration has.
    pub(super) sockets: Vec<(String, SocketAddr)>,
    /// Where it keeps keys, accounts and what it owes: who takes its place must not do so elsewhere.
    pub(super) kept_in: String,
}

/// The store is closed, and this is what its files do not have; `None` where many share it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Take {
    pub(super) carried: Option<Carried>,
}

/// What the new process says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Word {
    /// It needs nothing more but the store.
    Prepared,
    /// It serves.
    Serving,
    /// It does not come up, and why.
    Failed(String),
}

/// Sends an offer with its sockets.
pub(super) fn send_offer(to: &UnixStream, offer: &Offer, sockets: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(SOCKETS_MAX))];
    let mut rights = SendAncillaryBuffer::new(&mut space);
    let line = text(offer)?;
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
pub(super) fn receive_offer(from: &UnixStream) -> io::Result<(Offer, Vec<OwnedFd>)> {
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

/// One line as it is sent.
pub(super) fn text(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    Ok(line)
}

/// Sends one line.
pub(super) fn send(to: &UnixStream, message: &impl Serialize) -> io::Result<()> {
    send_line(to, &text(message)?)
}

/// Sends what [`text`] has made.
pub(super) fn send_line(mut to: &UnixStream, line: &[u8]) -> io::Result<()> {
    to.write_all(line)
}

/// Waits for one line. Nothing follows it before it is answered, so nothing more is read.
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
    use std::{net::TcpListener, os::fd::AsFd};

    use super::*;

    #[test]
    fn an_offer_comes_with_its_sockets_and_words_come_one_by_one() {
        let (old, new) = UnixStream::pair().unwrap();
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = socket.local_addr().unwrap();
        let offer = Offer {
            protocol: PROTOCOL,
            sockets: vec![("gateway".to_owned(), at)],
            kept_in: "here".to_owned(),
        };
        send_offer(&old, &offer, &[socket.as_fd()]).unwrap();
        let (received, sockets) = receive_offer(&new).unwrap();
        assert_eq!((received.sockets, received.kept_in.as_str()), (offer.sockets, "here"));
        let [received] = <[OwnedFd; 1]>::try_from(sockets).unwrap();
        assert_eq!(TcpListener::from(received).local_addr().unwrap(), at);
        send(&new, &Word::Prepared).unwrap();
        assert!(matches!(receive(&old), Ok(Word::Prepared)));
        send(&new, &Word::Failed("no\nroom".to_owned())).unwrap();
        assert!(matches!(receive(&old), Ok(Word::Failed(why)) if why == "no\nroom"));
        drop(new);
        let end = receive::<Word>(&old).unwrap_err();
        assert_eq!(end.kind(), io::ErrorKind::UnexpectedEof);
    }
}
