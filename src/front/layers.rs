//! What may lie between a socket and HTTP: a header of the PROXY protocol, and TLS.

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
    domain::wire::proxy_protocol::{self, Progress},
    front::{tls::listener::Listener, transport::Transport},
};

/// The layers of a listener, from the socket up.
#[derive(Debug)]
pub(crate) struct Layers {
    /// Peers whose connections begin with a header of the PROXY protocol; no others may.
    pub announced_by: Vec<IpNet>,
    /// `None`: the listener is plain.
    pub tls: Option<Arc<Listener>>,
}

#[async_trait]
impl Transport for Layers {
    fn announces_client(&self, peer: IpAddr) -> bool {
        let peer = peer.to_canonical();
        self.announced_by.iter().any(|network| network.contains(&peer))
    }

    async fn open(&self, mut stream: Stream) -> io::Result<Stream> {
        if peer(&stream).is_some_and(|peer| self.announces_client(peer))
            && let Some(client) = announced(&mut stream).await?
        {
            let digest = SocketDigest::from_raw_fd(stream.id());
            // The digest is new, so there is nothing in it yet.
            let _ = digest.peer_addr.set(Some(Address::Inet(client)));
            stream.set_socket_digest(digest);
        }
        let Some(tls) = &self.tls else {
            return Ok(stream);
        };
        let socket = stream.into_any().downcast::<Socket>();
        let socket = socket.map_err(|_| io::Error::other("the listener is no socket"))?;
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

/// Reads a header, and nothing behind it: whose connection it is, if the header says so.
async fn announced(stream: &mut Stream) -> io::Result<Option<SocketAddr>> {
    let mut header = Vec::new();
    loop {
        match proxy_protocol::read(&header).map_err(|error| io::Error::new(ErrorKind::InvalidData, error))? {
            Progress::Whole(client) => return Ok(client),
            Progress::Needs(more) => {
                let read = (&mut *stream).take(more as u64).read_to_end(&mut header).await?;
                if read < more {
                    return Err(ErrorKind::UnexpectedEof.into());
                }
            }
        }
    }
}
