//! The last message of a start: where weir listens, and what to do next.

use std::path::Path;

use super::bounds::Addresses;

/// Where clients connect, and the command that whoever runs weir for the first time needs next.
pub(super) fn ready(addresses: &Addresses, tls: bool, conf: &Path) -> String {
    let (conf, scheme) = (conf.display(), if tls { "https" } else { "http" });
    format!(
        "ready at {scheme}://{gateway}, next: `weir account create --conf {conf} --id me --balance-usd 10`, then \
         `weir key create --conf {conf} --account me --name laptop`",
        gateway = addresses.gateway,
    )
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    #[test]
    fn the_line_says_where_and_with_which_file() {
        let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let addresses = Addresses {
            gateway: at(8080),
            ops: at(9464),
            stability: at(8081),
            admin: "admin.sock".into(),
            admin_tcp: None,
            redirect: None,
            console: None,
        };
        let tls = ready(&addresses, true, Path::new("conf/weir.toml"));
        assert!(tls.starts_with("ready at https://127.0.0.1:8080, next: "), "{tls}");
        let line = ready(&addresses, false, Path::new("conf/weir.toml"));
        assert!(line.starts_with("ready at http://127.0.0.1:8080, next: "), "{line}");
        assert!(line.contains("--conf conf/weir.toml --id me"), "{line}");
    }
}
