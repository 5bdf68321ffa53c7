//! How an accepted socket becomes a stream of HTTP.

use std::{io, net::IpAddr};

use async_trait::async_trait;
use pingora::protocols::Stream;

/// What stands between an accepted socket and HTTP, such as TLS or a header of the PROXY protocol.
#[async_trait]
pub(crate) trait Transport: Send + Sync {
    /// Whether connections from this peer begin by naming the client that they are for. Such a peer is not counted per
    /// address; the client is, once [`Transport::open`] has returned.
    fn announces_client(&self, _peer: IpAddr) -> bool {
        false
    }

    /// Makes the socket a stream of HTTP, whose socket digest has the client's address. The caller limits the time. An
    /// error closes the connection without a word.
    async fn open(&self, stream: Stream) -> io::Result<Stream>;
}
