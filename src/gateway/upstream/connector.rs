//! Connects to a provider over both address families of its name, in the spirit of RFC 8305.
//!
//! The family that the system prefers goes first. If it fails or does not answer soon, the other one is tried at the
//! same time and the first established connection is used. The winner is remembered for the place
//! ([`Places::answered`]), so later requests do not wait again. One attempt runs at most two connects, within one
//! connect timeout.

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
    providers::pools::{Place, Places},
};

/// How long the first address is tried alone (RFC 8305 section 8, "Connection Attempt Delay").
pub(crate) const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// Connects to one place, and keeps a second handle on the socket for [`deadline`].
#[derive(Debug)]
pub(crate) struct Connector {
    /// Limits the TCP connect, over both families together.
    timeout: Duration,
    place: Place,
    places: Arc<Places>,
    /// Aborts the connect when the process has no more time.
    drain: Drain,
}

impl Connector {
    /// A connector for one attempt at `place`, which is one of `places`.
    pub(crate) fn new(timeout: Duration, place: Place, places: Arc<Places>, drain: Drain) -> Self {
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
            // If both fail, the error reported is that of the preferred family.
            Ok(Err(error)) => (TcpStream::connect(second).await.map_err(|_| error)?, second),
            Err(_) => {
                let at_first = at_first.map(|done| done.map(|connected| (connected, first)));
                let at_second = TcpStream::connect(second).map(|done| done.map(|connected| (connected, second)));
                select_ok([at_first.boxed(), at_second.boxed()]).await?.0
            }
        };
        self.places.answered(&self.place, winner, clock::instant());
        Ok(connected)
    }
}

#[async_trait]
impl Connect for Connector {
    async fn connect(&self, first: &PeerAddress) -> Result<Stream> {
        let first = first
            .as_inet()
            .ok_or_else(|| Error::explain(ErrorType::ConnectError, "not an internet address"))?;
        let connected = tokio::select! {
            connected = tokio::time::timeout(self.timeout, self.race(*first)) => connected,
            () = self.drain.out_of_time() => return Error::e_explain(ErrorType::ConnectError, "weir ends"),
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
