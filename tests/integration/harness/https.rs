//! Connections with TLS to a listener of weir.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, HandshakeKind, ProtocolVersion};

use super::client::Client;
use super::wait::DEADLINE;

/// A connection whose handshake is done, and what was agreed on.
pub(crate) struct Https {
    pub(crate) client: Client,
    pub(crate) version: ProtocolVersion,
    pub(crate) protocol: Option<String>,
    pub(crate) kind: HandshakeKind,
    pub(crate) certificate: CertificateDer<'static>,
}

/// Connects and shakes hands.
pub(crate) fn connect(tls: &Arc<ClientConfig>, name: &str, address: SocketAddr) -> io::Result<Https> {
    handshake(tls, name, TcpStream::connect(address)?)
}

/// Shakes hands over a connection that is there.
pub(crate) fn handshake(tls: &Arc<ClientConfig>, name: &str, mut socket: TcpStream) -> io::Result<Https> {
    socket.set_read_timeout(Some(DEADLINE))?;
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut connection = ClientConnection::new(Arc::clone(tls), name).unwrap();
    while connection.is_handshaking() {
        connection.complete_io(&mut socket)?;
    }
    let protocol = connection
        .alpn_protocol()
        .map(|name| String::from_utf8(name.to_vec()).unwrap());
    Ok(Https {
        version: connection.protocol_version().unwrap(),
        protocol,
        kind: connection.handshake_kind().unwrap(),
        certificate: connection.peer_certificates().unwrap()[0].clone().into_owned(),
        client: Client::over(socket).with_tls(connection),
    })
}
