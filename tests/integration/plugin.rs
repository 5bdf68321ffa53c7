//! weir in a server of somebody else's: `examples/plugin`, with a service of its own beside weir.

use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::process::Command;

use crate::harness::client::{Client, Head, Piece};
use crate::harness::port::free_port;
use crate::harness::recordings::events;
use crate::harness::request::{Upload, Wire};
use crate::harness::tools::{example, repository};
use crate::harness::{RecordingProvider, Request, Steps, Weir, WeirBuilder, wait_until};

/// How long the server waits at its end, in seconds, whether anything runs or not. weir has five less.
const GRACE_SECONDS: u64 = 12;

/// The example in the place of a gateway whose account and key were made before.
struct Plugin {
    weir: Weir,
    key: String,
    greeting: SocketAddr,
    /// Where a service manager would listen.
    manager: UnixDatagram,
}

impl Plugin {
    #[track_caller]
    fn start(provider: &RecordingProvider) -> Plugin {
        let program = example("plugin");
        let local = |port: u16| format!("127.0.0.1:{port}");
        let mut weir = WeirBuilder::new()
            .all_providers(&provider.base_url())
            .set("gateway.listen", local(free_port()))
            .set("ops.listen", local(free_port()))
            .start();
        let key = weir.key().text;
        let conf = std::fs::read_to_string(repository().join("examples/plugin/pingora.yaml")).unwrap();
        let (shipped, short) = (
            "grace_period_seconds: 65",
            format!("grace_period_seconds: {GRACE_SECONDS}"),
        );
        assert!(conf.contains(shipped));
        let pingora = weir.folder().join("pingora.yaml");
        std::fs::write(&pingora, conf.replace(shipped, &short)).unwrap();
        let manager = UnixDatagram::bind(weir.folder().join("notify")).unwrap();
        manager.set_nonblocking(true).unwrap();
        let greeting: SocketAddr = local(free_port()).parse().unwrap();
        let mut command = Command::new(program);
        command
            .arg(&pingora)
            .arg(weir.folder().join("weir.toml"))
            .arg(greeting.to_string())
            .env("NOTIFY_SOCKET", weir.folder().join("notify"));
        weir.replace_by(command);
        let gateway = weir.gateway;
        for address in [gateway, greeting] {
            wait_until("the server", || {
                let ended = weir.process().ended();
                assert!(ended.is_none(), "the server has ended: {}", weir.logs());
                TcpStream::connect(address).is_ok()
            });
        }
        wait_until("weir's readiness", || weir.ops_get("/readyz").status == 200);
        Plugin {
            weir,
            key,
            greeting,
            manager,
        }
    }

    #[track_caller]
    fn greeted(&self, path: &str) -> String {
        let answer = Client::connect(self.greeting).exchange(&Request::get(path));
        assert_eq!(answer.status, 200);
        answer.text()
    }

    /// Begins a stream and reads its first piece.
    #[track_caller]
    fn stream(&self) -> (Client, Head, Vec<u8>) {
        let mut client = self.weir.connect();
        client.write(&Wire::Messages.streaming(&self.key, "hi").bytes(Upload::Length));
        let mut head = client.head_to("POST");
        let Piece::Data(first) = client.piece(&mut head) else {
            panic!("no first event")
        };
        (client, head, first)
    }
}

/// A provider whose streams begin, and go on when a step is permitted.
fn provider(gate: Steps) -> RecordingProvider {
    RecordingProvider::start(move |_, answer| {
        let events = events(Wire::Messages);
        answer.sse();
        answer.chunk(events[0]);
        gate.wait(1);
        events[1..].iter().for_each(|event| answer.chunk(event));
        answer.end();
    })
}

#[test]
fn weir_and_a_service_beside_it_are_served_by_one_server_and_end_with_it() {
    let steps = Steps::default();
    let provider = provider(steps.clone());
    let mut plugin = Plugin::start(&provider);
    assert_eq!(plugin.greeted("/"), "hello\n");
    let (mut client, head, first) = plugin.stream();
    let metrics = plugin.greeted("/weir/metrics");
    assert!(metrics.contains("\nweir_requests_in_flight 1\n"), "{metrics}");
    wait_until("the hold of the stream", || plugin.weir.account()["running"] == 1);

    let (gateway, greeting) = (plugin.weir.gateway, plugin.greeting);
    plugin.weir.process().signal("TERM");
    wait_until("new connections to be refused", || TcpStream::connect(gateway).is_err());
    wait_until("the service beside it to end", || TcpStream::connect(greeting).is_err());
    // Who watches a node that drains goes on seeing it.
    assert_eq!(plugin.weir.ops_get("/readyz").status, 503);
    assert!(
        plugin.weir.process().ended().is_none(),
        "it ended under a running stream"
    );
    steps.permit();
    let rest = client.rest(head);
    assert!(rest.complete);
    let told = format!("{}{}", String::from_utf8_lossy(&first), rest.text());
    assert_eq!(told, events(Wire::Messages).concat());
    let status = plugin.weir.process().wait_ended();
    assert!(status.success(), "{status}");
    assert_eq!(
        plugin.weir.access_lines().len(),
        1,
        "its line is written before the end"
    );
    // The service manager is the business of the process's owner.
    assert!(plugin.manager.recv(&mut [0; 64]).is_err());
    plugin.weir.kill_and_restart();
    assert_eq!(plugin.weir.books(1).rows[0]["outcome"], "ok");
}

#[test]
fn a_server_that_ends_at_once_leaves_no_request_uncharged() {
    let provider = provider(Steps::default());
    let mut plugin = Plugin::start(&provider);
    let (client, ..) = plugin.stream();
    plugin.weir.process().signal("INT");
    assert!(plugin.weir.process().wait_ended().success());
    drop(client);
    plugin.weir.kill_and_restart();
    plugin.weir.books(1);
}
