//! Both doors behind proxies that end TLS: with nginx as it is without a word about the host, and as docs/proxies.md has nginx and
//! Caddy. What browsers reach is what the configuration says, whatever a proxy makes of a request's head.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use rustls::ClientConfig;
use tempfile::TempDir;

use super::{address, builder, code};
use crate::harness::certificates::{Authority, Files, Kind, Offer};
use crate::harness::client::{Piece, Response};
use crate::harness::port::free_port;
use crate::harness::process::Process;
use crate::harness::request::{Upload, Wire};
use crate::harness::tab::encoded;
use crate::harness::tools::{program, repository, skip};
use crate::harness::weir::Key;
use crate::harness::{Client, RecordingProvider, Request, Steps, Weir, https, wait_until};

/// The names in the documents' examples.
const CONSOLE: &str = "console.example.com";
const GATEWAY: &str = "weir.example.com";

/// A gateway that is told its addresses, and not whom to trust.
fn told_its_addresses(provider: &str) -> Weir {
    builder(provider)
        .set("console.url", format!("https://{CONSOLE}"))
        .set("console.gateway_url", format!("https://{GATEWAY}"))
        .start()
}

/// Holds that an answer sets a cookie that is sent over TLS alone, and takes it.
#[track_caller]
fn secure_cookie(answer: &Response, name: &str) -> String {
    assert_eq!(answer.status, 303, "{}", answer.text());
    let cookie = answer.header("set-cookie").unwrap();
    let (pair, attributes) = cookie.split_once(';').unwrap();
    assert_eq!(attributes, " Path=/; HttpOnly; SameSite=Strict; Secure");
    assert!(pair.starts_with(&format!("__Host-{name}=")), "{cookie}");
    pair.to_owned()
}

/// A form that a browser sends from this origin.
fn form(target: &str, origin: &str, fields: &[(&str, &str)]) -> Request {
    Request::post(target)
        .header("content-type", "application/x-www-form-urlencoded")
        .header("origin", origin)
        .body(encoded(fields).as_bytes())
}

#[test]
fn the_configured_address_decides_origin_scheme_and_links() {
    let weir = told_its_addresses("http://127.0.0.1:9");
    let key = weir.key();
    let console = address(&weir).to_string();
    let send = |at: SocketAddr, request: Request, host: &str| {
        let mut request = request;
        request.headers.retain(|(name, _)| name != "host");
        Client::connect(at).exchange(&request.header("host", host))
    };
    // As nginx sends it: the host is the one that it connects to, and nothing tells of TLS.
    let open = |origin: &str| {
        let code = code(&weir, "owner");
        send(address(&weir), form("/open", origin, &[("code", &code)]), &console)
    };
    for foreign in [
        format!("http://{console}"),
        format!("https://{console}"),
        format!("http://{CONSOLE}"),
        format!("https://{CONSOLE}:444"),
        "https://evil.example".to_owned(),
    ] {
        assert_eq!(open(&foreign).status, 403, "{foreign}");
    }
    let cookie = secure_cookie(&open(&format!("https://{CONSOLE}")), "weir-console");
    let page = |cookie: &str| {
        let request = Request::get("/accounts").header("cookie", cookie);
        send(address(&weir), request, &console)
    };
    assert_eq!(page(&cookie).status, 200);
    assert!(page(&cookie).header("strict-transport-security").is_some());
    assert_eq!(page(cookie.trim_start_matches("__Host-")).status, 401);

    let gateway = weir.gateway.to_string();
    let sign_in = |origin: &str| {
        let fields = [("key", key.text.as_str())];
        send(weir.gateway, form("/portal/sign-in", origin, &fields), &gateway)
    };
    assert_eq!(sign_in(&format!("http://{gateway}")).status, 403);
    let cookie = secure_cookie(&sign_in(&format!("https://{GATEWAY}")), "weir-portal");
    let request = Request::get("/portal").header("cookie", &cookie);
    let portal = send(weir.gateway, request, &gateway).text();
    assert!(portal.contains(&format!("https://{GATEWAY}/v1")), "{portal}");
    let me = Request::get("/web/v1/me").header("x-api-key", &key.text);
    let me = send(weir.gateway, me, &gateway).text();
    assert!(me.contains(&format!("https://{GATEWAY}")), "{me}");
    assert!(!me.contains(&gateway), "{me}");
}

/// A port that an address need not name is not in what browsers send.
#[test]
fn the_usual_port_of_a_configured_address_may_be_left_out_or_not() {
    let weir = builder("http://127.0.0.1:9")
        .set("console.url", format!("https://{CONSOLE}:443/"))
        .start();
    let link = weir.cli_json(&["console", "open"]);
    let link = link["url"].as_str().unwrap();
    let (_, code) = link.split_once("/open?code=").unwrap();
    let origin = format!("https://{CONSOLE}");
    let opened = Client::connect(address(&weir)).exchange(&form("/open", &origin, &[("code", code)]));
    secure_cookie(&opened, "weir-console");
}

/// Where a proxy listens for each of the two names, and who may trust it.
struct Proxy {
    _process: Process,
    folder: TempDir,
    tls: Arc<ClientConfig>,
    console: SocketAddr,
    gateway: SocketAddr,
}

/// Where a proxy is told to listen, and with which certificates.
struct Told {
    console: (SocketAddr, Files),
    gateway: (SocketAddr, Files),
}

impl Proxy {
    /// Starts one. `configured` writes its configuration into a folder and says how it is started.
    fn start(configured: impl FnOnce(&Told, &Path) -> Command) -> Proxy {
        let (authority, folder) = (Authority::new(), TempDir::new().unwrap());
        let at = || SocketAddr::from(([127, 0, 0, 1], free_port()));
        let told = Told {
            console: (at(), authority.files("console", &[CONSOLE], Kind::Ecdsa)),
            gateway: (at(), authority.files("gateway", &[GATEWAY], Kind::Ecdsa)),
        };
        let process = Process::start(&configured(&told, folder.path()), folder.path(), "proxy");
        let proxy = Proxy {
            _process: process,
            tls: authority.client(Offer::default()),
            console: told.console.0,
            gateway: told.gateway.0,
            folder,
        };
        wait_until("the proxy listens", || {
            let listens = |name: &str, at| https::connect(&proxy.tls, name, at).is_ok();
            listens(CONSOLE, proxy.console) && listens(GATEWAY, proxy.gateway)
        });
        proxy
    }

    /// A request as a browser sends it.
    #[track_caller]
    fn send(&self, name: &str, request: &Request) -> Response {
        let at = if name == CONSOLE { self.console } else { self.gateway };
        let mut request = request.clone();
        request.headers.retain(|(header, _)| header != "host");
        let request = request.header("host", name);
        https::connect(&self.tls, name, at).unwrap().client.exchange(&request)
    }

    /// Signs in at both doors, and sends a form of a page.
    #[track_caller]
    fn serves_both_doors(&self, weir: &Weir, key: &Key) {
        let link = weir.cli_json(&["console", "open"]);
        let link = link["url"].as_str().unwrap();
        let code = link.strip_prefix(&format!("https://{CONSOLE}/open?code=")).unwrap();
        let origin = format!("https://{CONSOLE}");
        let opened = self.send(CONSOLE, &form("/open", &origin, &[("code", code)]));
        let cookie = secure_cookie(&opened, "weir-console");
        let page = self.send(CONSOLE, &Request::get("/").header("cookie", &cookie)).text();
        let out = crate::harness::tab::form(&page, "/sign-out");
        let fields = [("operation", &*out.operation), ("token", &*out.token)];
        let out = self.send(CONSOLE, &form("/sign-out", &origin, &fields).header("cookie", &cookie));
        assert_eq!(out.status, 303, "{}", out.text());

        let origin = format!("https://{GATEWAY}");
        let opened = self.send(GATEWAY, &form("/portal/sign-in", &origin, &[("key", &key.text)]));
        let cookie = secure_cookie(&opened, "weir-portal");
        let page = self.send(GATEWAY, &Request::get("/portal").header("cookie", &cookie));
        assert!(
            page.text().contains(&format!("https://{GATEWAY}/v1")),
            "{}",
            page.text()
        );
        assert_eq!(page.header("strict-transport-security"), Some("max-age=31536000"));
    }

    /// A streamed answer reaches the client piece by piece: the provider sends the end when the client has the beginning.
    #[track_caller]
    fn passes_streams(&self, key: &Key, steps: &Steps) {
        let mut request = Wire::Messages.streaming(&key.text, "hi");
        request.headers.retain(|(header, _)| header != "host");
        let request = request.header("host", GATEWAY);
        let mut client = https::connect(&self.tls, GATEWAY, self.gateway).unwrap().client;
        client.write(&request.bytes(Upload::Length));
        let mut head = client.head_to("POST");
        assert_eq!(head.status, 200);
        let Piece::Data(first) = client.piece(&mut head) else {
            panic!("no beginning");
        };
        let first = String::from_utf8(first).unwrap();
        assert!(
            first.contains("message_start") && !first.contains("message_stop"),
            "{first}"
        );
        steps.permit();
        let rest = client.rest(head).text();
        assert!(rest.contains("message_stop"), "{rest}");
    }
}

/// A block of docs/proxies.md in this language, with the names, ports and files of a test in it.
#[track_caller]
fn documented(language: &str, weir: &Weir) -> String {
    let text = std::fs::read_to_string(repository().join("docs/proxies.md")).unwrap();
    let (_, rest) = text
        .split_once(&format!("\n```{language}\n"))
        .unwrap_or_else(|| panic!("docs/proxies.md has no {language}"));
    let block = rest.split("\n```").next().unwrap();
    let weirs = [("127.0.0.1:8083", address(weir)), ("127.0.0.1:8080", weir.gateway)];
    weirs.iter().fold(block.to_owned(), |block, (written, at)| {
        assert!(block.contains(written), "{written}: {block}");
        block.replace(written, &at.to_string())
    })
}

/// The two halves of an answer.
const HALVES: [&str; 2] = [
    "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"type\":\"message\",\"role\":\"assistant\",\"content\":[],\"usage\":{\"input_tokens\":3,\"output_tokens\":1}}}\n\n",
    "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":2}}\n\n\
     event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
];

/// A provider that waits in the middle of a stream for a step, and a gateway in front of it with a key.
fn served() -> (RecordingProvider, Steps, Weir, Key) {
    let steps = Steps::default();
    let gate = steps.clone();
    let provider = RecordingProvider::start(move |_, answer| {
        answer.sse();
        answer.chunk(HALVES[0]);
        assert!(gate.wait(1), "the client does not get the beginning");
        answer.chunk(HALVES[1]);
        answer.end();
    });
    let weir = told_its_addresses(&provider.base_url());
    let key = weir.key();
    (provider, steps, weir, key)
}

/// The command that runs nginx in a folder with these servers.
fn nginx(program: &Path, folder: &Path, servers: &str) -> Command {
    let at = folder.display();
    let paths =
        ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(|kind| format!("{kind}_temp_path {at}/{kind};"));
    let conf = format!(
        "daemon off; master_process off; pid {at}/pid; error_log {at}/errors;\n\
         events {{}}\nhttp {{ access_log off; {}\n{servers}\n}}\n",
        paths.join(" ")
    );
    std::fs::write(folder.join("nginx.conf"), conf).unwrap();
    let mut command = Command::new(program);
    command
        .arg("-c")
        .arg(folder.join("nginx.conf"))
        .arg("-e")
        .arg(folder.join("errors"));
    command
}

#[test]
fn nginx_as_it_is_without_a_word_about_the_host_will_do() {
    let Some(program) = program("nginx") else {
        skip!("nginx is not there: tests/run installs it");
    };
    let (_provider, _steps, weir, key) = served();
    let proxy = Proxy::start(|told, folder| {
        let server = |name: &str, (at, files): &(SocketAddr, Files), weir: SocketAddr| {
            format!(
                "server {{ listen {at} ssl; server_name {name}; ssl_certificate {}; ssl_certificate_key {};\n\
                 location / {{ proxy_pass http://{weir}; }} }}\n",
                files.chain.display(),
                files.key.display()
            )
        };
        let servers = server(CONSOLE, &told.console, address(&weir)) + &server(GATEWAY, &told.gateway, weir.gateway);
        nginx(&program, folder, &servers)
    });
    proxy.serves_both_doors(&weir, &key);
}

#[test]
fn nginx_as_it_is_documented_serves_both_doors_and_streams() {
    let Some(program) = program("nginx") else {
        skip!("nginx is not there: tests/run installs it");
    };
    let (_provider, steps, weir, key) = served();
    let mut servers = documented("nginx", &weir);
    let proxy = Proxy::start(|told, folder| {
        for (name, (at, files)) in [(CONSOLE, &told.console), (GATEWAY, &told.gateway)] {
            for (written, there) in [
                (format!("/etc/ssl/{name}.pem"), files.chain.display().to_string()),
                (format!("/etc/ssl/{name}.key"), files.key.display().to_string()),
                (
                    format!("listen 443 ssl;\n    server_name {name};"),
                    format!("listen {at} ssl;\n    server_name {name};"),
                ),
            ] {
                assert!(servers.contains(&written), "{written}: {servers}");
                servers = servers.replace(&written, &there);
            }
        }
        nginx(&program, folder, &servers)
    });
    proxy.serves_both_doors(&weir, &key);
    proxy.passes_streams(&key, &steps);
    let errors = std::fs::read_to_string(proxy.folder.path().join("errors")).unwrap();
    assert!(!errors.contains("[warn]") && !errors.contains("[error]"), "{errors}");
}

#[test]
fn caddy_as_it_is_documented_serves_both_doors_and_streams() {
    let Some(program) = program("caddy") else {
        skip!("caddy is not there: tests/run installs it");
    };
    let (_provider, steps, weir, key) = served();
    let mut sites = documented("caddy", &weir);
    let proxy = Proxy::start(|told, folder| {
        for (name, (at, files)) in [(CONSOLE, &told.console), (GATEWAY, &told.gateway)] {
            let (written, port) = (format!("{name} {{\n"), at.port());
            assert!(sites.contains(&written), "{written}: {sites}");
            let (chain, key) = (files.chain.display(), files.key.display());
            let there = format!("https://{name}:{port} {{\n\tbind 127.0.0.1\n\ttls {chain} {key}\n");
            sites = sites.replace(&written, &there);
        }
        // Nothing of it is anybody else's: no port for administrators, none for redirects.
        let all = format!("{{\n\tadmin off\n\tauto_https disable_redirects\n}}\n{sites}\n");
        std::fs::write(folder.join("Caddyfile"), all).unwrap();
        let mut command = Command::new(program);
        command
            .args(["run", "--adapter", "caddyfile", "--config"])
            .arg(folder.join("Caddyfile"));
        for name in ["HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"] {
            command.env(name, folder);
        }
        command
    });
    proxy.serves_both_doors(&weir, &key);
    proxy.passes_streams(&key, &steps);
}
