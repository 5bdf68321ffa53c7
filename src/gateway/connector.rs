//! Connecting to a provider: at both address families of its name, in the spirit of RFC 8305.
//!
//! The family that the system prefers goes first. When that fails, or does not answer soon, the other one is tried beside it, and
//! the first connection that stands is taken. Who was first is remembered for the place ([`Places::answered`]), so that
//! later requests do not wait for it again. At most two connects run for one attempt, within the limit of one.

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
    clock,
    gateway::{deadline, drain::Drain},
    pools::{Place, Places},
};

/// How long the first address may take alone (RFC 8305 section 8, "Connection Attempt Delay").
pub const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// Connects to one place. It keeps a second handle on the socket for [`deadline`].
#[derive(Debug)]
pub struct Connector {
    /// How long a TCP connect may take, whatever is tried.
    timeout: Duration,
    place: Place,
    places: Arc<Places>,
    /// Ends it sooner when the process has no more time.
    drain: Drain,
}

impl Connector {
    /// For one attempt at `place`, which is one of `places`.
    pub fn new(timeout: Duration, place: Place, places: Arc<Places>, drain: Drain) -> Self {
        Self {
            timeout,
            place,
            places,
            drain,
        }
    }

    async fn race(&self, first: SocketAddr) -> io::Result<TcpStream> {
        let Some(second) = self.place.second else {
            return TcpStream::connect(first).await;
        };
        let mut at_first = TcpStream::connect(first).boxed();
        let alone = tokio::time::timeout(ATTEMPT_DELAY, &mut at_first).await;
        let (connected, winner) = match alone {
            Ok(Ok(connected)) => return Ok(connected),
            // What is told of two failures is that of the family which the system prefers.
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
