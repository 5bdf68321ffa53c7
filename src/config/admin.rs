//! `[admin]` and `[ops]`: what operators and their monitoring reach.

use std::{net::SocketAddr, path::PathBuf};

use super::{
    kinds::{address, path},
    tls::{AdminTlsConfig, TlsConfig},
};
use crate::domain::settings::{Section, settings, table};

/// What the kernel takes as a unix socket's path, without the closing zero.
const SOCKET_PATH_BYTES_MAX: usize = 107;

settings! {
    /// `[admin]`
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct AdminConfig {
        /// The unix socket of the admin API, at most 107 bytes as an absolute path. It is made 0660, its folder 0750.
        socket: PathBuf = path()
            .then(|path| match path.as_os_str().len() {
                0..=SOCKET_PATH_BYTES_MAX => Ok(path),
                bytes => Err(format!("a socket's path has at most {SOCKET_PATH_BYTES_MAX} bytes, this one {bytes}")),
            })
            .or("/run/weir/admin.sock")
            .trying_out("./weir-data/admin.sock")
            .restart(),
        /// The append-only record of every change, one JSON line each.
        audit: PathBuf = path().or("/var/lib/weir/audit.jsonl").trying_out("./weir-data/audit.jsonl").restart(),
        /// The same API over TCP, IP:PORT: always with TLS, and only for clients with a certificate of the authority below. Off without
        /// it. The subcommands use the socket.
        listen: Option<SocketAddr> = address().optional("127.0.0.1:9465").restart(),
        /// TLS of the API over TCP.
        tls: AdminTlsConfig = table(),
    } checked by proves_clients
}

settings! {
    /// `[ops]`
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct OpsConfig {
        /// Where /metrics, /livez and /readyz answer, IP:PORT. No authentication: keep it on loopback or a private network.
        listen: SocketAddr = address().or("127.0.0.1:9464"),
    }
}

/// The admin API over TCP.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AdminTcpConfig<'c> {
    /// Where it listens; port 0 takes a free one.
    pub listen: SocketAddr,
    /// What it shows; never empty.
    pub tls: &'c TlsConfig,
    /// The authorities of those that may connect, PEM.
    pub client_ca_file: &'c PathBuf,
}

impl AdminConfig {
    /// The API over TCP; `None`: off.
    pub(crate) fn tcp(&self) -> Option<AdminTcpConfig<'_>> {
        Some(AdminTcpConfig {
            listen: self.listen?,
            tls: &self.tls.tls,
            client_ca_file: self.tls.client_ca_file.as_ref()?,
        })
    }
}

/// Whoever reaches this listener can do anything with money: it never takes clients without a certificate.
fn proves_clients(read: AdminConfig, from: &Section<'_>) -> AdminConfig {
    let (certificate, authority) = ("tls.certificate", "tls.client_ca_file");
    match (read.listen, read.tls.tls.is_on(), &read.tls.client_ca_file) {
        (None, false, None) | (Some(_), true, Some(_)) => {}
        (None, ..) => from.wrong("tls", &["listen"], "has no listener, set [admin] listen or take it out"),
        (Some(_), false, _) => {
            from.wrong("listen", &[certificate], "needs TLS, add an [[admin.tls.certificate]]");
        }
        (Some(_), true, None) => {
            let message = "takes clients with a certificate only, name their authority as [admin.tls] client_ca_file";
            from.wrong("listen", &[authority], message);
        }
    }
    read
}
