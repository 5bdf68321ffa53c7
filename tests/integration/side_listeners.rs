//! Listeners beside the gateway answer whatever others hold: who has asked for nothing gives way to who asks.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;

use serde_json::Value as Json;

use crate::harness::request::Upload;
use crate::harness::{Client, Request, Weir, WeirBuilder};

/// More than `[ops]` serves at a time.
const OPS_CONNECTIONS: usize = 300;
/// More than the admin socket serves at a time.
const ADMIN_CONNECTIONS: usize = 70;

/// What holds a connection without asking for anything.
const HELD: [&str; 3] = [
    "",
    "GET /livez HTTP/1.1\r\nhost: we",
    "POST /v1/accounts HTTP/1.1\r\nhost: weir\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{\"id\": ",
];

fn held(address: SocketAddr, count: usize, sent: &str) -> Vec<TcpStream> {
    let connect = |_| {
        let mut connection = TcpStream::connect(address).unwrap();
        connection.write_all(sent.as_bytes()).unwrap();
        connection
    };
    (0..count).map(connect).collect()
}

#[test]
fn health_and_metrics_answer_beside_hundreds_of_connections_that_ask_for_nothing() {
    let weir = Weir::start("http://127.0.0.1:9");
    for sent in HELD {
        let held = held(weir.ops, OPS_CONNECTIONS, sent);
        for _ in 0..3 {
            for path in ["/livez", "/metrics", "/readyz"] {
                assert_eq!(weir.ops_get(path).status, 200, "{path} beside {sent:?}");
            }
        }
        drop(held);
    }
}

#[test]
fn who_asks_again_and_again_keeps_its_connection_beside_those_that_ask_for_nothing() {
    let weir = Weir::start("http://127.0.0.1:9");
    let mut scraper = Client::connect(weir.ops);
    for _ in 0..5 {
        assert_eq!(scraper.exchange(&Request::get("/metrics")).status, 200);
        drop(held(weir.ops, OPS_CONNECTIONS / 3, ""));
    }
}

/// More than the public record and the console serve for one address.
const FRONT_CONNECTIONS: usize = 200;

#[test]
fn the_public_record_and_the_console_answer_an_address_that_holds_all_that_it_may() {
    let weir = WeirBuilder::new().set("console.listen", "127.0.0.1:0").start();
    let ready = std::fs::read_to_string(weir.folder().join("ready.json")).unwrap();
    let ready: Json = serde_json::from_str(&ready).unwrap();
    let console: SocketAddr = ready["console"].as_str().unwrap().parse().unwrap();
    // The beginning of HTTP/2 asks for nothing yet either.
    for sent in HELD.iter().chain(&["PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"]) {
        for (address, path) in [(weir.stability, "/status"), (console, "/")] {
            let held = held(address, FRONT_CONNECTIONS, sent);
            for _ in 0..3 {
                let mut client = Client::connect(address);
                client.write(&Request::get(path).bytes(Upload::Length));
                let status = client.try_head_to("GET").map(|head| head.status);
                let closed = || {
                    weir.metrics()
                        .lines()
                        .filter(|line| line.contains("closed_total"))
                        .collect::<String>()
                };
                assert!(
                    status.is_some_and(|status| status < 500),
                    "{path} beside {sent:?}: {status:?}\n{}",
                    closed()
                );
            }
            drop(held);
        }
    }
}

#[test]
fn the_admin_socket_answers_beside_connections_that_ask_for_nothing() {
    let weir = Weir::start("http://127.0.0.1:9");
    weir.fund();
    for sent in HELD {
        let connect = |_| {
            let mut connection = UnixStream::connect(weir.admin_socket()).unwrap();
            connection.write_all(sent.as_bytes()).unwrap();
            connection
        };
        let held: Vec<UnixStream> = (0..ADMIN_CONNECTIONS).map(connect).collect();
        for _ in 0..3 {
            let listed = weir.cli(&["account", "list"], &["--json"]);
            assert!(
                listed.status.success(),
                "{} beside {sent:?}",
                String::from_utf8_lossy(&listed.stderr)
            );
        }
        drop(held);
    }
}
