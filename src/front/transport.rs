//! How an accepted socket becomes a stream of HTTP.

use std::{io, net::IpAddr};

use async_trait::async_trait;
use pingora::protocols::Stream;

/// The layers between an accepted socket and HTTP, such as TLS or a header of the PROXY protocol.
#[async_trait]
pub(crate) trait Transport: Send + Sync {
    /// Whether connections from this peer begin by naming their client. The client is then counted instead of the peer, once
    /// [`Transport::open`] has returned.
    fn announces_client(&self, _peer: IpAddr) -> bool {
        false
    }

    /// Turns the socket into a stream of HTTP, whose socket digest has the client's address. The caller limits the time. An error
    /// closes the connection without an answer.
    async fn open(&self, stream: Stream) -> io::Result<Stream>;
}
