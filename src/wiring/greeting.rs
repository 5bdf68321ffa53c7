//! The last message of a start: weir's address, and what to do next.

use std::path::Path;

use super::bounds::Addresses;

/// This program's name as it was called, quoted for a shell: it works with and without the `PATH`.
pub(super) fn program() -> String {
    let called = std::env::args_os().next().filter(|called| !called.is_empty());
    let called = called.map_or_else(|| "weir".to_owned(), |called| called.to_string_lossy().into_owned());
    if called.contains(|c: char| c.is_whitespace() || "'\"$`\\".contains(c)) {
        format!("'{}'", called.replace('\'', r"'\''"))
    } else {
        called
    }
}

/// The message of a start: the address for clients, and the next commands of a first start.
pub(super) fn ready_text(addresses: &Addresses, tls: bool, conf: &Path) -> String {
    let (conf, scheme, weir) = (conf.display(), if tls { "https" } else { "http" }, program());
    format!(
        "ready at {scheme}://{gateway}, next: `{weir} account create --conf {conf} --id me --balance-usd 10`, then \
         `{weir} key create --conf {conf} --account me --name laptop`",
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
        let tls = ready_text(&addresses, true, Path::new("conf/weir.toml"));
        assert!(tls.starts_with("ready at https://127.0.0.1:8080, next: "), "{tls}");
        let line = ready_text(&addresses, false, Path::new("conf/weir.toml"));
        assert!(line.starts_with("ready at http://127.0.0.1:8080, next: "), "{line}");
        assert!(line.contains("--conf conf/weir.toml --id me"), "{line}");
        assert!(line.contains(&format!("`{} key create --conf", program())), "{line}");
    }
}
