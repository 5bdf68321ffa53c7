//! `[admin]` and `[ops]`: the listeners for operators and their monitoring.

use std::{net::SocketAddr, path::PathBuf};

use crate::config::{
    address,
    gateway::{AdminTlsConfig, TlsConfig},
    path,
};
use crate::domain::settings::{Section, settings, table};

/// The kernel's maximum length of a unix socket's path, without the closing zero.
const SOCKET_PATH_BYTES_MAX: usize = 107;

settings! {
    /// `[admin]`
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct AdminConfig {
        /// The unix socket of the admin API; its absolute path has at most 107 bytes. It is created 0660, its folder 0750.
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
        /// The same API over TCP, IP:PORT: always with TLS, and only for clients with a certificate of the authority below. Off
        /// by default. The subcommands use the socket.
        listen: Option<SocketAddr> = address().optional("127.0.0.1:9465").restart(),
        /// TLS of the API over TCP.
        tls: AdminTlsConfig = table(),
    } checked by proves_clients
}

settings! {
    /// `[ops]`
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct OpsConfig {
        /// The address of /metrics, /livez and /readyz, IP:PORT. No authentication: keep it on loopback or a private network.
        listen: SocketAddr = address().or("127.0.0.1:9464"),
    }
}

/// The admin API over TCP.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AdminTcpConfig<'c> {
    /// The address; port 0 takes a free one.
    pub listen: SocketAddr,
    /// The listener's certificates; never empty.
    pub tls: &'c TlsConfig,
    /// The authorities of clients' certificates, PEM.
    pub client_ca_file: &'c PathBuf,
}

impl AdminConfig {
    /// The admin API over TCP; `None` if it is off.
    pub(crate) fn tcp(&self) -> Option<AdminTcpConfig<'_>> {
        Some(AdminTcpConfig {
            listen: self.listen?,
            tls: &self.tls.tls,
            client_ca_file: self.tls.client_ca_file.as_ref()?,
        })
    }
}

/// Checks that the admin API over TCP has TLS and accepts only clients with a certificate, since it has full control over money.
fn proves_clients(read: AdminConfig, from: &Section<'_>) -> AdminConfig {
    let (certificate, authority) = ("tls.certificate", "tls.client_ca_file");
    match (read.listen, read.tls.tls.is_on(), &read.tls.client_ca_file) {
        (None, false, None) | (Some(_), true, Some(_)) => {}
        (None, ..) => from.report_fault("tls", &["listen"], "has no listener, set [admin] listen or remove this"),
        (Some(_), false, _) => {
            from.report_fault("listen", &[certificate], "needs TLS: add an [[admin.tls.certificate]]");
        }
        (Some(_), true, None) => {
            let message = "accepts only clients with a certificate: set [admin.tls] client_ca_file to their authority";
            from.report_fault("listen", &[authority], message);
        }
    }
    read
}
