//! The settings of the listeners for operators: the admin API (`[admin]`), and metrics and health checks (`[ops]`).

use std::{net::SocketAddr, path::PathBuf};

use crate::config::{
    address,
    gateway::{AdminTlsConfig, TlsConfig},
    path,
};
use crate::domain::settings::{Section, settings, table};

/// The kernel's maximum length of a unix socket's path, in bytes, without the terminating zero.
const SOCKET_PATH_BYTES_MAX: usize = 107;

settings! {
    /// The section `[admin]`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct AdminConfig {
        /// The unix socket of the admin API; its absolute path has at most 107 bytes. The socket is created with mode 0660, its
        /// folder with mode 0750.
        socket: PathBuf = path()
            .then(|path| match path.as_os_str().len() {
                0..=SOCKET_PATH_BYTES_MAX => Ok(path),
                bytes => Err(format!("a socket's path has at most {SOCKET_PATH_BYTES_MAX} bytes, this one {bytes}")),
            })
            .or("/run/weir/admin.sock")
            .trying_out("./weir-data/admin.sock")
            .restart(),
        /// The append-only audit log: one JSON line for each change.
        audit: PathBuf = path().or("/var/lib/weir/audit.jsonl").trying_out("./weir-data/audit.jsonl").restart(),
        /// The address of the admin API over TCP, IP:PORT. It always uses TLS, and accepts only clients with a certificate of a
        /// CA in client_ca_file. Off by default. weir's own subcommands use the socket.
        listen: Option<SocketAddr> = address().optional("127.0.0.1:9465").restart(),
        /// TLS of the admin API over TCP.
        tls: AdminTlsConfig = table(),
    } checked by proves_clients
}

settings! {
    /// The section `[ops]`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct OpsConfig {
        /// The address of /metrics, /livez and /readyz, IP:PORT. It has no authentication: use loopback or a private network.
        listen: SocketAddr = address().or("127.0.0.1:9464"),
    }
}

/// The settings of the admin API over TCP.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AdminTcpConfig<'c> {
    /// The address to listen on. With port 0, the system chooses a free port.
    pub listen: SocketAddr,
    /// The listener's certificates; never empty.
    pub tls: &'c TlsConfig,
    /// The file of the CA certificates that verify clients' certificates, PEM.
    pub client_ca_file: &'c PathBuf,
}

impl AdminConfig {
    /// Returns the settings of the admin API over TCP; `None` if it is off.
    pub(crate) fn tcp(&self) -> Option<AdminTcpConfig<'_>> {
        Some(AdminTcpConfig {
            listen: self.listen?,
            tls: &self.tls.tls,
            client_ca_file: self.tls.client_ca_file.as_ref()?,
        })
    }
}

/// Checks that the admin API over TCP uses TLS and accepts only clients with a certificate, since it has full control over money.
fn proves_clients(read: AdminConfig, from: &Section<'_>) -> AdminConfig {
    let (certificate, authority) = ("tls.certificate", "tls.client_ca_file");
    match (read.listen, read.tls.tls.is_on(), &read.tls.client_ca_file) {
        (None, false, None) | (Some(_), true, Some(_)) => {}
        (None, ..) => from.report_fault("tls", &["listen"], "has no listener, set [admin] listen or remove this"),
        (Some(_), false, _) => {
            from.report_fault("listen", &[certificate], "needs TLS: add an [[admin.tls.certificate]]");
        }
        (Some(_), true, None) => {
            let message =
                "accepts only clients with a certificate: set [admin.tls] client_ca_file to their CA's certificate";
            from.report_fault("listen", &[authority], message);
        }
    }
    read
}
