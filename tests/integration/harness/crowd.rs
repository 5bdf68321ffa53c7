//! Clients of several addresses: Linux has all of 127.0.0.0/8.

use std::net::{IpAddr, SocketAddr, TcpStream};

use tokio::net::TcpSocket;

use super::wait::DEADLINE;

/// Connects from addresses of one's own.
pub(crate) struct Crowd {
    runtime: tokio::runtime::Runtime,
    to: SocketAddr,
}

impl Crowd {
    /// Clients of this listener.
    pub(crate) fn new(to: SocketAddr) -> Crowd {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        Crowd { runtime, to }
    }

    /// A connection from 127.0.0.`last`.
    pub(crate) fn connect(&self, last: u8) -> TcpStream {
        let from = SocketAddr::new(IpAddr::from([127, 0, 0, last]), 0);
        let connected = self.runtime.block_on(async {
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind(from).unwrap();
            tokio::time::timeout(DEADLINE, socket.connect(self.to)).await
        });
        let stream = connected.expect("no connection in time").unwrap().into_std().unwrap();
        stream.set_nonblocking(false).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream
    }
}
