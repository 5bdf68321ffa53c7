//! The traits that Pingora demands of a connection: identity and TLS are those of the stream below.

use std::sync::Arc;

use pingora::protocols::{
    ALPN, GetProxyDigest, GetSocketDigest, GetTimingDigest, SocketDigest, Ssl, TimingDigest, UniqueID, UniqueIDType,
    raw_connect::ProxyDigest,
    tls::{SslDigest, TlsRef},
};

use super::ClientConnection;

impl UniqueID for ClientConnection {
    fn id(&self) -> UniqueIDType {
        self.stream.id()
    }
}

impl Ssl for ClientConnection {
    fn get_ssl(&self) -> Option<&TlsRef> {
        self.stream.get_ssl()
    }

    fn get_ssl_digest(&self) -> Option<Arc<SslDigest>> {
        self.stream.get_ssl_digest()
    }

    fn selected_alpn_proto(&self) -> Option<ALPN> {
        self.stream.selected_alpn_proto()
    }
}

impl GetTimingDigest for ClientConnection {
    /// Empty: nothing reads the times.
    fn get_timing_digest(&self) -> Vec<Option<TimingDigest>> {
        Vec::new()
    }
}

impl GetProxyDigest for ClientConnection {
    fn get_proxy_digest(&self) -> Option<Arc<ProxyDigest>> {
        self.stream.get_proxy_digest()
    }
}

impl GetSocketDigest for ClientConnection {
    fn get_socket_digest(&self) -> Option<Arc<SocketDigest>> {
        self.stream.get_socket_digest()
    }
}
