//! Under a service manager: what it is told, the sockets it hands over, and how closed in its units are.

use std::io::Write;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};

use tempfile::TempDir;

use crate::harness::process::Process;
use crate::harness::tools::{program, repository};
use crate::harness::upgrades::{is_running, signal};
use crate::harness::wait::DEADLINE;
use crate::harness::{Client, Request, WeirBuilder, wait_until};

/// The exposure that no unit may exceed, in tenths, as `systemd-analyze security` counts it.
const EXPOSURE_MAX_TENTHS: &str = "15";

/// The place of a service manager that listens all the time, as one does: who tells it something waits otherwise.
struct Manager {
    folder: TempDir,
    messages: Receiver<String>,
}

impl Manager {
    fn new() -> Manager {
        let folder = TempDir::new().unwrap();
        let socket = UnixDatagram::bind(folder.path().join("notify")).unwrap();
        let (to, messages) = channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 1024];
            while let Ok(length) = socket.recv(&mut bytes) {
                let text = String::from_utf8(bytes[..length].to_vec()).unwrap();
                if to.send(text).is_err() {
                    return;
                }
            }
        });
        Manager { folder, messages }
    }

    fn address(&self) -> String {
        self.folder.path().join("notify").to_str().unwrap().to_owned()
    }

    /// The lines of the next message that is not about the watchdog.
    #[track_caller]
    fn told(&self) -> Vec<String> {
        loop {
            let lines = self.message();
            if lines != ["WATCHDOG=1"] {
                return lines;
            }
        }
    }

    #[track_caller]
    fn message(&self) -> Vec<String> {
        let text = self.messages.recv_timeout(DEADLINE).expect("a message in time");
        text.lines().map(str::to_owned).collect()
    }
}

#[test]
fn it_hears_of_start_reload_and_stop() {
    let manager = Manager::new();
    let mut weir = WeirBuilder::new()
        .variable("NOTIFY_SOCKET", &manager.address())
        .set("gateway.drain_seconds", 7_200)
        .start();
    assert_eq!(manager.told(), ["READY=1"]);
    weir.process().signal("HUP");
    let reloading = manager.told();
    assert_eq!(reloading[0], "RELOADING=1");
    let since: u64 = reloading[1].strip_prefix("MONOTONIC_USEC=").unwrap().parse().unwrap();
    assert!(since > 0);
    assert_eq!(manager.told(), ["READY=1"]);
    weir.process().signal("TERM");
    // The time for running requests, and a minute for what follows it.
    assert_eq!(manager.told(), ["STOPPING=1", "EXTEND_TIMEOUT_USEC=7260000000"]);
    assert!(weir.process().wait_ended().success());
}

#[test]
fn it_hears_again_and_again_that_weir_lives() {
    let manager = Manager::new();
    let _weir = WeirBuilder::new()
        .variable("NOTIFY_SOCKET", &manager.address())
        .variable("WATCHDOG_USEC", "100000")
        .start();
    let mut heard = 0;
    while heard < 3 {
        heard += usize::from(manager.message() == ["WATCHDOG=1"]);
    }
}

#[test]
fn it_hears_of_an_upgrade_and_of_the_new_process_from_then_on() {
    let manager = Manager::new();
    let mut weir = WeirBuilder::new()
        .variable("NOTIFY_SOCKET", &manager.address())
        .variable("WATCHDOG_USEC", "100000")
        .start();
    assert_eq!(manager.told(), ["READY=1"]);
    let conf = weir.folder().join("weir.toml");
    let good = std::fs::read_to_string(&conf).unwrap();
    std::fs::write(&conf, "nonsense = 1").unwrap();
    assert!(!weir.try_upgrade().status.success());
    assert_eq!(manager.told()[0], "RELOADING=1");
    assert_eq!(manager.told(), ["READY=1"], "the old one serves on");
    std::fs::write(&conf, good).unwrap();
    let new = weir.upgrade();
    assert_eq!(manager.told()[0], "RELOADING=1");
    assert_eq!(manager.told(), [format!("MAINPID={new}"), "READY=1".to_owned()]);
    assert!(weir.process().wait_ended().success());
    // Whatever the first one has said is read by now.
    let mut heard = 0;
    while heard < 50 {
        assert_eq!(manager.message(), ["WATCHDOG=1"]);
        heard += 1;
    }
    signal("TERM", new);
    assert_eq!(manager.told()[0], "STOPPING=1");
}

/// A configuration in a folder of its own, with a gateway and a public record at these addresses.
fn configuration(gateway: &str, stability: &str) -> TempDir {
    let folder = TempDir::new().unwrap();
    let conf = format!(
        "[gateway]\nlisten = \"{gateway}\"\n[stability]\nlisten = \"{stability}\"\n[ops]\nlisten = \"127.0.0.1:0\"\n\
         [store.embedded]\npath = \"store\"\n[journal]\npath = \"journal\"\nsegment_bytes = 4194304\n\
         [admin]\nsocket = \"admin.sock\"\naudit = \"audit.jsonl\"\n"
    );
    std::fs::write(folder.path().join("weir.toml"), conf).unwrap();
    folder
}

/// `weir serve` with two sockets where a service manager puts them, in the process that the variables are meant for.
fn serve_with(sockets: [TcpListener; 2], folder: &TempDir) -> Process {
    let [first, second] = sockets.map(OwnedFd::from);
    let script = r#"exec 3<&0 4<&1 0</dev/null 1>/dev/null; LISTEN_PID=$$ LISTEN_FDS=2 exec "$@""#;
    let mut command = Command::new("sh");
    command
        .args(["-c", script, "sh", env!("CARGO_BIN_EXE_weir"), "serve", "--conf"])
        .arg(folder.path().join("weir.toml"))
        .stdin(Stdio::from(first))
        .stdout(Stdio::from(second));
    Process::start_as_it_is(command, folder.path(), "weir")
}

#[test]
fn sockets_that_are_handed_over_are_served_and_outlive_the_process() {
    let bound = || TcpListener::bind("127.0.0.1:0").unwrap();
    let (gateway, stability) = (bound(), bound());
    let (gateway_at, stability_at) = (gateway.local_addr().unwrap(), stability.local_addr().unwrap());
    let folder = configuration(&gateway_at.to_string(), &stability_at.to_string());
    for _ in 0..2 {
        // Asked before anybody serves: the service manager's socket lets it wait.
        let mut early = Client::connect(gateway_at);
        let handed = [gateway.try_clone().unwrap(), stability.try_clone().unwrap()];
        let mut weir = serve_with(handed, &folder);
        assert_eq!(early.exchange(&Request::get("/v1/models")).status, 401);
        // The record is read from the store first.
        wait_until("the status page", || {
            Client::connect(stability_at).exchange(&Request::get("/status")).status == 200
        });
        weir.signal("TERM");
        assert!(weir.wait_ended().success());
    }
}

#[test]
fn sockets_that_were_handed_over_go_on_to_the_next_process() {
    let bound = || TcpListener::bind("127.0.0.1:0").unwrap();
    let (gateway, stability) = (bound(), bound());
    let (gateway_at, stability_at) = (gateway.local_addr().unwrap(), stability.local_addr().unwrap());
    let folder = configuration(&gateway_at.to_string(), &stability_at.to_string());
    let mut weir = serve_with([gateway, stability], &folder);
    assert_eq!(
        Client::connect(gateway_at).exchange(&Request::get("/v1/models")).status,
        401
    );
    let mut upgrade = Command::new(env!("CARGO_BIN_EXE_weir"));
    upgrade
        .args(["upgrade", "--json", "--conf"])
        .arg(folder.path().join("weir.toml"));
    let output = upgrade.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(weir.wait_ended().success());
    assert_eq!(
        Client::connect(gateway_at).exchange(&Request::get("/v1/models")).status,
        401
    );
    let status = Client::connect(stability_at).exchange(&Request::get("/status"));
    assert_eq!(status.status, 200);
    let new = u32::try_from(answer["pid"].as_u64().unwrap()).unwrap();
    signal("TERM", new);
    wait_until("the new process to end", || !is_running(new));
}

#[test]
fn a_socket_that_no_listener_has_is_refused_by_name() {
    let (gateway, other) = (
        TcpListener::bind("127.0.0.1:0").unwrap(),
        TcpListener::bind("127.0.0.1:0").unwrap(),
    );
    let (gateway_at, other_at) = (gateway.local_addr().unwrap(), other.local_addr().unwrap());
    let folder = configuration(&gateway_at.to_string(), "127.0.0.1:0");
    let mut weir = serve_with([gateway, other], &folder);
    let status = weir.wait_ended();
    let said = weir.err();
    assert_eq!(status.code(), Some(1), "{said}");
    for part in [other_at.to_string(), gateway_at.to_string(), "ListenStream=".to_owned()] {
        assert!(said.contains(&part), "no {part} in {said}");
    }
}

/// `systemd-analyze`; `None` where there is no systemd, which is no failure.
fn analyze(arguments: &[&str]) -> Option<Output> {
    let Some(analyze) = program("systemd-analyze") else {
        let _ = writeln!(
            std::io::stderr(),
            "skipped: the units are not looked at without systemd-analyze"
        );
        return None;
    };
    Some(
        Command::new(analyze)
            .args(arguments)
            .current_dir(repository())
            .output()
            .unwrap(),
    )
}

#[test]
fn no_unit_is_more_exposed_than_it_has_to_be() {
    for unit in ["weir.service", "weir-check.service", "weir-log-verify.service"] {
        let file = format!("systemd/{unit}");
        let threshold = format!("--threshold={EXPOSURE_MAX_TENTHS}");
        let Some(output) = analyze(&["security", "--offline=true", "--no-pager", &threshold, &file]) else {
            return;
        };
        let (said, wrong) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        assert!(output.status.success(), "{said}{wrong}");
        // An unknown setting or a value that is not understood is a warning there.
        assert!(!wrong.contains("systemd/"), "{wrong}");
    }
}
