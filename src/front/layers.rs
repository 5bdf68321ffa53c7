//! The layers between a socket and HTTP: the header of the PROXY protocol, and TLS.

use std::{
    io::{self, ErrorKind},
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use async_trait::async_trait;
use ipnet::IpNet;
use pingora::protocols::{
    SocketDigest, Stream,
    l4::{socket::SocketAddr as Address, stream::Stream as Socket},
};
use tokio::io::AsyncReadExt;

use crate::{
    domain::wire::proxy_protocol::{self, ProxyHeaderProgress},
    front::{Transport, tls::TlsListener},
};

/// The layers of a listener, in order from the socket.
#[derive(Debug)]
pub(crate) struct Layers {
    /// The peers whose connections begin with a header of the PROXY protocol. Other peers must not send one.
    pub announced_by: Vec<IpNet>,
    /// The listener's TLS; `None` for a listener without TLS.
    pub tls: Option<Arc<TlsListener>>,
}

#[async_trait]
impl Transport for Layers {
    fn announces_client(&self, peer: IpAddr) -> bool {
        let peer = peer.to_canonical();
        self.announced_by.iter().any(|network| network.contains(&peer))
    }

    async fn open(&self, mut stream: Stream) -> io::Result<Stream> {
        if peer(&stream).is_some_and(|peer| self.announces_client(peer))
            && let Some(client) = read_announced_client(&mut stream).await?
        {
            let digest = SocketDigest::from_raw_fd(stream.id());
            // The digest is new and has no address yet, so setting one cannot fail.
            let _ = digest.peer_addr.set(Some(Address::Inet(client)));
            stream.set_socket_digest(digest);
        }
        let Some(tls) = &self.tls else {
            return Ok(stream);
        };
        let socket = stream.into_any().downcast::<Socket>();
        let socket = socket.map_err(|_| io::Error::other("the connection is not a socket"))?;
        let encrypted = tls.accept(*socket).await;
        encrypted.map_or_else(
            |error| Err(io::Error::new(ErrorKind::InvalidData, error)),
            |one| Ok(Box::new(one) as _),
        )
    }
}

fn peer(stream: &Stream) -> Option<IpAddr> {
    let digest = stream.get_socket_digest()?;
    Some(digest.peer_addr()?.as_inet()?.ip())
}

/// Reads a header of the PROXY protocol and no byte after it. Returns the client's address; `None` if the header has none.
async fn read_announced_client(stream: &mut Stream) -> io::Result<Option<SocketAddr>> {
    let mut header = Vec::new();
    loop {
        match proxy_protocol::read(&header).map_err(|error| io::Error::new(ErrorKind::InvalidData, error))? {
            ProxyHeaderProgress::Whole(client) => return Ok(client),
            ProxyHeaderProgress::Needs(more) => {
                let read = (&mut *stream).take(more as u64).read_to_end(&mut header).await?;
                if read < more {
                    return Err(ErrorKind::UnexpectedEof.into());
                }
            }
        }
    }
}
