//! nginx and HAProxy as the same proxy, where they are installed (Debian: nginx-light, haproxy): one worker, connections to the
//! provider kept, answers not buffered, no log.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    fleet::{Fleet, Proxy, free_address},
    process::Process,
    request::MODEL,
    row::Subject,
};

/// Connections that are kept to the provider, and that may be open at all.
const KEPT: usize = 2_048;
const CONNECTIONS_MAX: usize = 8_192;

const SERVERS: [Subject; 2] = [Subject::Nginx, Subject::Haproxy];

/// Adds those that are installed to a fleet.
pub(crate) fn join(fleet: &mut Fleet) {
    let installed = SERVERS
        .into_iter()
        .filter_map(|subject| Some(start(subject, &program(subject.name())?, fleet)));
    let joined: Vec<Proxy> = installed.collect();
    // Behind the bare proxy.
    fleet.proxies.splice(1..1, joined);
}

/// The names of those that are not installed.
pub(crate) fn missing() -> Vec<&'static str> {
    let missing = SERVERS.into_iter().filter(|subject| program(subject.name()).is_none());
    missing.map(Subject::title).collect()
}

fn program(name: &str) -> Option<PathBuf> {
    // Servers are not in the path of everybody.
    let folders = ["/usr/sbin", "/usr/local/sbin", "/usr/bin", "/usr/local/bin"];
    let places = folders.map(|folder| Path::new(folder).join(name));
    places.into_iter().find(|place| place.is_file())
}

fn start(subject: Subject, program: &Path, fleet: &Fleet) -> Proxy {
    let home = fleet.folder().join(subject.name());
    fs::create_dir_all(&home).expect("a folder in the temporary folder");
    let address = free_address();
    let conf = home.join("conf");
    let mut command = Command::new(program);
    let text = if subject == Subject::Nginx {
        command.arg("-p").arg(&home).args(["-e", "stderr", "-c"]).arg(&conf);
        nginx(address, fleet.provider)
    } else {
        command.arg("-db").arg("-f").arg(&conf);
        haproxy(address, fleet.provider)
    };
    fs::write(&conf, text).expect("a file in the temporary folder");
    let mut process = Process::start(subject.name(), &mut command, &home);
    process.wait_until_accepting(address);
    Proxy {
        subject,
        address,
        stability: address,
        console: address,
        process,
        home,
        key: "any-key".to_owned(),
        model: MODEL,
        headers: String::new(),
    }
}

/// One process does all of it, so that its time is that of the server.
fn nginx(listen: SocketAddr, provider: SocketAddr) -> String {
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let temporary = temporary.map(|name| format!("    {name}_temp_path {name};\n")).concat();
    format!(
        "daemon off;\nmaster_process off;\npid pid;\nerror_log stderr error;\n\
         events {{ worker_connections {CONNECTIONS_MAX}; }}\n\
         http {{\n    access_log off;\n    client_max_body_size 0;\n{temporary}    keepalive_requests 1000000000;\n\
         \x20   upstream provider {{ server {provider}; keepalive {KEPT}; keepalive_requests 1000000000; }}\n\
         \x20   server {{\n        listen {listen};\n        location / {{\n            proxy_pass http://provider;\n\
         \x20           proxy_http_version 1.1;\n            proxy_set_header Connection \"\";\n\
         \x20           proxy_buffering off;\n            proxy_request_buffering off;\n\
         \x20           proxy_read_timeout 600s;\n        }}\n    }}\n}}\n"
    )
}

/// Without `http-no-delay` it keeps chunks back until more of them have come.
fn haproxy(listen: SocketAddr, provider: SocketAddr) -> String {
    format!(
        "global\n    nbthread 1\n    maxconn {CONNECTIONS_MAX}\n\
         defaults\n    mode http\n    option http-no-delay\n    timeout connect 5s\n    timeout client 600s\n    timeout server 600s\n\
         frontend clients\n    bind {listen}\n    default_backend provider\n\
         backend provider\n    http-reuse always\n    server provider {provider} pool-max-conn {KEPT}\n"
    )
}
