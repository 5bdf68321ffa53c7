//! Connects to a provider over both address families of its host, in the spirit of RFC 8305.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use async_trait::async_trait;
use futures_util::future::{FutureExt, select_ok};
use pingora::{
    Error, ErrorType, OrErr, Result,
    connectors::l4::Connect,
    protocols::{
        GetProxyDigest,
        l4::{socket::SocketAddr as PeerAddress, stream::Stream},
    },
};
use tokio::net::TcpStream;

use crate::{
    edges::clock,
    gateway::{attempt::deadline, drain::Drain},
    providers::pools::{ProviderBackend, ProviderBackends},
};

/// How long only the first address is tried (RFC 8305 section 8, "Connection Attempt Delay").
pub(crate) const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// Connects to one backend, and keeps a second handle on the socket for [`deadline`].
///
/// The address family that the system prefers goes first. If it fails or does not answer within [`ATTEMPT_DELAY`], the other one
/// is tried at the same time, and the first established connection is used. The winner is remembered for the backend
/// ([`Places::answered`]), so that later requests do not wait again. One attempt runs at most two connects, within one connect
/// timeout.
#[derive(Debug)]
pub(crate) struct Connector {
    /// The connect timeout, for both families together.
    timeout: Duration,
    place: ProviderBackend,
    places: Arc<ProviderBackends>,
    /// Aborts the connect when the drain ends.
    drain: Drain,
}

impl Connector {
    /// A connector for one attempt at a backend, which is one of `places`.
    pub(crate) fn new(timeout: Duration, place: ProviderBackend, places: Arc<ProviderBackends>, drain: Drain) -> Self {
        Self {
            timeout,
            place,
            places,
            drain,
        }
    }

    async fn race(&self, first: SocketAddr) -> io::Result<TcpStream> {
        let Some(second) = self.places.second(&self.place) else {
            return TcpStream::connect(first).await;
        };
        let mut at_first = TcpStream::connect(first).boxed();
        let alone = tokio::time::timeout(ATTEMPT_DELAY, &mut at_first).await;
        let (connected, winner) = match alone {
            Ok(Ok(connected)) => return Ok(connected),
            // If both fail, the error of the preferred family is returned.
            Ok(Err(error)) => (TcpStream::connect(second).await.map_err(|_| error)?, second),
            Err(_) => {
                let at_first = at_first.map(|done| done.map(|connected| (connected, first)));
                let at_second = TcpStream::connect(second).map(|done| done.map(|connected| (connected, second)));
                select_ok([at_first.boxed(), at_second.boxed()]).await?.0
            }
        };
        self.places.on_family_answered(&self.place, winner, clock::instant());
        Ok(connected)
    }
}

#[async_trait]
impl Connect for Connector {
    async fn connect(&self, first: &PeerAddress) -> Result<Stream> {
        let first = first
            .as_inet()
            .ok_or_else(|| Error::explain(ErrorType::ConnectError, "the peer is not an IP address"))?;
        let connected = tokio::select! {
            connected = tokio::time::timeout(self.timeout, self.race(*first)) => connected,
            () = self.drain.expired() => return Error::e_explain(ErrorType::ConnectError, "the process stops"),
        };
        let socket = connected
            .or_err(ErrorType::ConnectTimedout, "connecting to the provider")?
            .or_err(ErrorType::ConnectRefused, "connecting to the provider")?;
        let (socket, digest) = deadline::with_handle(socket)?;
        let mut stream = Stream::from(socket);
        stream.set_proxy_digest(digest);
        Ok(stream)
    }
}

#[cfg(test)]
mod tests;
