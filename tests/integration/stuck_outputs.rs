//! Outputs that nobody takes, or that have no room: requests are answered and charged all the same, and the end comes.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::Value as Json;
use tempfile::TempDir;

use crate::harness::recordings::unary;
use crate::harness::request::Wire;
use crate::harness::tools::rounds;
use crate::harness::{RecordingProvider, Weir, WeirBuilder, wait_for, wait_until};

/// Requests at a time.
const CLIENTS: usize = 4;
/// The most messages that wait to be written.
const MESSAGES_WAITING: i64 = 1024;

/// A FIFO that is full, and that nobody reads until a test does.
struct FullFifo {
    path: PathBuf,
    /// Keeps what is in it.
    held: File,
}

impl FullFifo {
    fn new(path: PathBuf) -> FullFifo {
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        let nonblocking = rustix::fs::OFlags::NONBLOCK.bits().try_into().unwrap();
        let mut options = File::options();
        let mut held = options
            .read(true)
            .write(true)
            .custom_flags(nonblocking)
            .open(&path)
            .unwrap();
        while held.write(&[b'\n'; 4096]).is_ok() {}
        FullFifo { path, held }
    }

    /// Reads it from now on: the text so far.
    fn read(&self) -> Arc<Mutex<String>> {
        let mut reader = File::open(&self.path).unwrap();
        let text = Arc::<Mutex<String>>::default();
        let into = Arc::clone(&text);
        std::thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(count @ 1..) = reader.read(&mut piece) {
                into.lock().unwrap().push_str(&String::from_utf8_lossy(&piece[..count]));
            }
        });
        text
    }
}

/// Closes every connection over which it is asked to break off, and answers everything else.
fn provider() -> RecordingProvider {
    RecordingProvider::start(|request, answer| {
        if String::from_utf8_lossy(&request.body).contains("break off") {
            answer.cut();
        } else {
            answer.json(unary(Wire::Messages));
        }
    })
}

fn builder(provider: &RecordingProvider) -> WeirBuilder {
    WeirBuilder::new()
        .all_providers(&provider.base_url())
        .set("log.access_queue_lines", 16)
}

/// What has come of requests of which each second one fails: the answers in their order, and what was charged.
#[derive(Debug, PartialEq)]
struct Came {
    answers: Vec<(u16, Option<String>)>,
    spent: i64,
    balance: i64,
}

fn came_of(weir: &Weir, requests: usize) -> Came {
    let key = weir.key().text;
    let ask = |number: usize| {
        let prompt = if number.is_multiple_of(2) { "hi" } else { "break off" };
        let answer = weir.exchange(&Wire::Messages.request(&key, prompt));
        let body: Json = serde_json::from_str(&answer.text()).unwrap();
        (answer.status, body["error"]["type"].as_str().map(str::to_owned))
    };
    let answers = Mutex::new(vec![(0, None); requests]);
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (ask, answers) = (&ask, &answers);
            scope.spawn(move || {
                for number in (client..requests).step_by(CLIENTS) {
                    let answer = ask(number);
                    answers.lock().unwrap()[number] = answer;
                }
            });
        }
    });
    let account = wait_for("the books to be closed", || {
        let account = weir.account();
        (account["running"] == 0 && account["held_nano_usd"] == 0).then_some(account)
    });
    let figure = |name: &str| account[name].as_i64().unwrap();
    Came {
        answers: answers.into_inner().unwrap(),
        spent: figure("spent_nano_usd"),
        balance: figure("balance_nano_usd"),
    }
}

#[test]
fn requests_are_answered_and_charged_the_same_when_nobody_takes_any_output() {
    let requests = rounds(400, 10_000);
    let failing = i64::try_from(requests / 2).unwrap();
    let (provider, folder) = (provider(), TempDir::new().unwrap());
    let free = came_of(&builder(&provider).start(), requests);
    assert!(free.answers.iter().step_by(2).all(|answer| *answer == (200, None)));
    assert!(free.answers.iter().skip(1).step_by(2).all(|(status, _)| *status == 502));
    assert!(free.spent > 0 && free.spent % failing == 0, "{}", free.spent);

    let [messages, access] = ["messages", "access"].map(|name| FullFifo::new(folder.path().join(name)));
    let mut weir = builder(&provider).outputs_at(&messages.path, &access.path).start();
    assert_eq!(came_of(&weir, requests), free);
    let [lost_messages, lost_lines] = ["weir_diagnostics_dropped_total", "weir_access_log_dropped_total"];
    let [lost_messages, lost_lines] = [lost_messages, lost_lines].map(|name| weir.figure(name));
    assert!(lost_lines > failing, "{lost_lines} lines of {requests} are lost");
    // What fits into the writer's buffer before its first write is not lost.
    assert!(lost_messages >= failing - 2 * MESSAGES_WAITING, "{lost_messages}");

    // Once somebody reads, what was kept comes, and what was lost is told once.
    let messages_read = messages.read();
    let said = || messages_read.lock().unwrap().clone();
    let told = |what: &str| said().lines().filter(|line| line.contains(what)).count();
    if lost_messages > 0 {
        wait_until("the loss of messages to be told", || {
            told("standard error: lines were lost") == 1
        });
        assert!(said().contains(&format!("lost={lost_messages}")), "{}", said());
    }
    let access_read = access.read();
    wait_until("the loss of lines to be told", || {
        told("access log: lines were lost") == 1
    });
    assert!(said().contains(&format!("lost={lost_lines}")), "{}", said());
    let failures = || i64::try_from(told("the provider's answer was unusable or incomplete")).unwrap();
    wait_until("every message that was kept", || failures() >= failing - lost_messages);
    assert_eq!(
        weir.exchange(&Wire::Messages.request(&weir.key().text, "hi")).status,
        200
    );
    wait_until("the access log to go on", || {
        let lines = access_read
            .lock()
            .unwrap()
            .lines()
            .filter(|line| line.starts_with('{'))
            .count();
        i64::try_from(lines).unwrap() == 2 * failing - lost_lines + 1
    });
    weir.process().signal("TERM");
    assert!(weir.process().wait_ended().success());
    assert!(said().lines().last().unwrap().ends_with("stopped"), "{}", said());
}

#[test]
fn a_gateway_whose_outputs_nobody_takes_ends_all_the_same() {
    let folder = TempDir::new().unwrap();
    let [messages, access] = ["messages", "access"].map(|name| FullFifo::new(folder.path().join(name)));
    let provider = provider();
    let mut weir = builder(&provider).outputs_at(&messages.path, &access.path).start();
    let key = weir.key().text;
    assert_eq!(weir.exchange(&Wire::Messages.request(&key, "hi")).status, 200);
    weir.process().signal("TERM");
    assert!(weir.process().wait_ended().success());
    drop((messages.held, access.held));
}

#[test]
fn outputs_without_room_cost_lines_and_no_request() {
    let provider = provider();
    let full = Path::new("/dev/full");
    let weir = builder(&provider)
        .set("log.access_queue_lines", 1024)
        .outputs_at(full, full)
        .start();
    // More than is kept for when there is room again.
    let came = came_of(&weir, 400);
    assert!(came.answers.iter().step_by(2).all(|answer| *answer == (200, None)));
    wait_until("lines to be lost", || weir.figure("weir_access_log_dropped_total") > 0);
}

fn serve(conf: &str, stderr: Stdio) -> (TempDir, std::process::Child) {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("weir.toml");
    std::fs::write(&file, conf).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(["serve", "--conf"]).arg(&file);
    let child = command.stdout(Stdio::null()).stderr(stderr).spawn().unwrap();
    (folder, child)
}

#[test]
fn why_a_start_failed_is_said_last_and_behind_all_that_was_said_before() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let conf = format!(
        "[gateway]\nlisten = \"{address}\"\n[ops]\nlisten = \"127.0.0.1:0\"\n[stability]\nlisten = \"127.0.0.1:0\"\n\
         [store.embedded]\npath = \"store\"\n[journal]\npath = \"journal\"\n[log]\naccess = \"off\"\n\
         [admin]\nsocket = \"admin.sock\"\naudit = \"audit.jsonl\"\n"
    );
    let (_folder, child) = serve(&conf, Stdio::piped());
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    let last = said.lines().last().unwrap();
    assert!(
        last.starts_with("weir: ") && last.contains(&address.to_string()),
        "{said}"
    );
    assert!(said.contains("weir::"), "what was said before: {said}");
}

#[test]
fn a_start_that_fails_ends_also_when_nobody_reads_why() {
    let folder = TempDir::new().unwrap();
    let messages = FullFifo::new(folder.path().join("messages"));
    let stderr = File::options().read(true).write(true).open(&messages.path).unwrap();
    let (_folder, mut child) = serve("[gateway]\nlisten = 1\n", stderr.into());
    let status = wait_for("the end", || child.try_wait().unwrap());
    assert_eq!(status.code(), Some(78));
}
