//! Configuration, rules and secrets loaded anew while requests run.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::harness::at_end::SetAtEnd;
use crate::harness::request::Wire;
use crate::harness::rules::RuleFolder;
use crate::harness::{RecordingProvider, Weir, wait_until};

const OK: &str = r#"{"id":"msg_1","type":"message","role":"assistant","content":[{"type":"text","text":"hi"}],"stop_reason":"end_turn","usage":{"input_tokens":1,"output_tokens":1}}"#;
const RELOADS: usize = 20;

fn file(base_url: &str, secret: &str, generation: usize) -> String {
    format!(
        r#"
name = "one"
[auth]
style = "bearer"
secret = "file:{secret}"
[endpoints]
messages = "{base_url}/v1/messages"
[headers]
set = {{ x-generation = "{generation}" }}
[[body]]
op = "set"
path = "generation"
value = {generation}
[[model]]
name = "one-model"
free = true
[[model]]
name = "model-of-{generation}"
free = true
"#
    )
}

fn reloads(weir: &Weir, result: &str) -> usize {
    let name = format!("weir_config_reloads_total{{result=\"{result}\"}} ");
    let metrics = weir.metrics();
    let line = metrics.lines().find_map(|line| line.strip_prefix(&name));
    line.map_or(0, |count| count.parse().unwrap())
}

#[test]
fn no_request_fails_in_twenty_reloads_good_and_bad() {
    let provider = RecordingProvider::start(|request, answer| {
        // Head and body of one request are of one version.
        let body = String::from_utf8_lossy(&request.body).into_owned();
        let generation = request.header("x-generation").unwrap_or_default();
        if body.contains(&format!("\"generation\":{generation}}}")) {
            answer.json(OK);
        } else {
            answer.full(400, &[], body.as_bytes());
        }
    });
    let secrets = tempfile::TempDir::new().unwrap();
    let secret = secrets.path().join("secret");
    std::fs::write(&secret, "secret-0-in-full").unwrap();
    let secret = secret.to_str().unwrap();
    let rules = RuleFolder::new(&[("one", &file(&provider.base_url(), secret, 0))]);
    let weir = rules.weir().start();
    let key = weir.key().text;
    let (stop, served) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut client = weir.connect();
                while !stop.load(Ordering::SeqCst) {
                    let answer = client.exchange(&Wire::Messages.request_for("one-model", &key, "hi"));
                    assert_eq!(answer.status, 200, "{}", answer.text());
                    served.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        let _stop = SetAtEnd([&stop]);
        for generation in 1..=RELOADS {
            let (good, bad) = (reloads(&weir, "ok"), reloads(&weir, "failed"));
            let before = served.load(Ordering::SeqCst);
            if generation % 4 == 0 {
                let broken = file(&provider.base_url(), secret, generation).replace("path =", "paht =");
                rules.write("one", &broken);
                wait_until("the bad file is refused", || reloads(&weir, "failed") > bad);
                assert!(weir.metrics().contains("weir_config_reload_failed 1"));
            } else {
                rules.write("one", &file(&provider.base_url(), secret, generation));
                wait_until("the good file is in force", || reloads(&weir, "ok") > good);
                assert!(weir.metrics().contains("weir_config_reload_failed 0"));
                let model = format!("model-of-{generation}");
                assert_eq!(
                    weir.exchange(&Wire::Messages.request_for(&model, &key, "hi")).status,
                    200
                );
            }
            wait_until("requests go on", || served.load(Ordering::SeqCst) > before);
        }
    });
    let logs = weir.logs();
    assert!(
        logs.contains("one.toml:") && logs.contains("paht") && logs.contains("did you mean `path`"),
        "the log names file, line and key: {logs}"
    );
    assert!(served.into_inner() > RELOADS);
}

#[test]
fn a_changed_secret_is_used_and_sighup_reloads_by_itself() {
    let provider = RecordingProvider::answering(OK);
    let secrets = tempfile::TempDir::new().unwrap();
    let secret = secrets.path().join("secret");
    std::fs::write(&secret, "secret-0-in-full").unwrap();
    let text = file(&provider.base_url(), secret.to_str().unwrap(), 0);
    let rules = RuleFolder::new(&[("one", &text)]);
    let mut weir = rules.weir().start();
    let key = weir.key().text;
    let request = Wire::Messages.request_for("one-model", &key, "hi");
    assert_eq!(weir.exchange(&request).status, 200);
    assert_eq!(provider.last().header("authorization"), Some("Bearer secret-0-in-full"));
    std::fs::write(&secret, "secret-1-in-full").unwrap();
    wait_until("the new secret is in force", || reloads(&weir, "ok") == 1);
    assert_eq!(weir.exchange(&request).status, 200);
    assert_eq!(provider.last().header("authorization"), Some("Bearer secret-1-in-full"));
    weir.process().signal("HUP");
    wait_until("the signal is obeyed", || reloads(&weir, "ok") == 2);
    assert_eq!(weir.exchange(&request).status, 200);
}

#[test]
fn a_new_secret_under_the_same_name_moves_no_session() {
    let provider = RecordingProvider::answering(OK);
    let secrets = tempfile::TempDir::new().unwrap();
    let path = |name: &str| secrets.path().join(name);
    let rotate = |generation: usize| {
        for name in ["a", "b"] {
            let partial = path("partial");
            std::fs::write(&partial, format!("{name}-secret-in-full-{generation}")).unwrap();
            std::fs::rename(partial, path(name)).unwrap();
        }
    };
    rotate(0);
    let credentials = ["a", "b"].map(|name| {
        let secret = path(name);
        format!(
            "[[credential]]\nname = \"{name}\"\nsecret = \"file:{}\"\n",
            secret.display()
        )
    });
    let text = format!(
        "name = \"one\"\n[auth]\nstyle = \"bearer\"\n{}[endpoints]\nmessages = \"{}/v1/messages\"\n[[model]]\nname = \"one-model\"\nfree = true\n",
        credentials.concat(),
        provider.base_url()
    );
    let rules = RuleFolder::new(&[("one", &text)]);
    let weir = rules.weir().start();
    let key = weir.key().text;
    let used = |session: usize| {
        let name = format!("s{session}");
        let request = Wire::Messages.request_for("one-model", &key, "hi");
        let answer = weir.exchange(&request.header("x-claude-code-session-id", &name));
        assert_eq!(answer.status, 200);
        let last = provider.last();
        let (name, generation) = last.header("authorization").unwrap().rsplit_once('-').unwrap();
        (name.to_owned(), generation.to_owned())
    };
    let before: Vec<String> = (0..12).map(|session| used(session).0).collect();
    assert!(
        before.contains(&"Bearer a-secret-in-full".to_owned())
            && before.contains(&"Bearer b-secret-in-full".to_owned())
    );
    for generation in 1..=3 {
        rotate(generation);
        let generation = generation.to_string();
        wait_until("both new secrets to be in force", || {
            (0..12).all(|session| used(session).1 == generation)
        });
        let after: Vec<String> = (0..12).map(|session| used(session).0).collect();
        assert_eq!(before, after);
    }
}

/// A reload is compared with what runs: what waits for a restart is told with each, by its name, until it is taken back.
#[test]
fn what_needs_a_restart_is_told_with_each_reload_until_it_is_taken_back() {
    let provider = RecordingProvider::answering(OK);
    let weir = Weir::start(&provider.base_url());
    let conf = weir.folder().join("weir.toml");
    let text = std::fs::read_to_string(&conf).unwrap();
    let listen = "listen = \"127.0.0.1:0\"";
    let gateway = format!("[gateway]\n{}", text.split_once("[gateway]\n").unwrap().1);
    let before = text.strip_suffix(&gateway).unwrap().to_owned();
    assert!(gateway.contains(listen) && gateway.contains("drain_seconds = 20"));
    let elsewhere = gateway.replacen(listen, "listen = \"127.0.0.1:1\"", 1);
    let told = || {
        let logs = weir.logs();
        let lines = logs
            .lines()
            .filter(|line| line.contains("takes effect with the next start"));
        lines
            .map(|line| {
                line.rsplit_once("setting=\"")
                    .unwrap()
                    .1
                    .trim_end_matches('"')
                    .to_owned()
            })
            .collect::<Vec<_>>()
    };
    let mut count = 0;
    let mut reload = |gateway: &str| {
        std::fs::write(&conf, format!("{before}{gateway}")).unwrap();
        count += 1;
        wait_until("the file is read anew", || reloads(&weir, "ok") == count);
        wait_until("that to be told", || {
            weir.logs().matches("configuration reloaded").count() == count
        });
        told()
    };
    assert_eq!(reload(&elsewhere), ["gateway.listen"]);
    let further = elsewhere.replace("drain_seconds = 20", "keepalive_seconds = 21\ndrain_seconds = 20");
    assert_eq!(reload(&further), ["gateway.listen"; 2], "still pending");
    let taken_back = gateway.replace("drain_seconds = 20", "drain_seconds = 22");
    assert_eq!(reload(&taken_back)[2..], ["gateway.drain_seconds"]);
    assert_eq!(reload(&gateway).len(), 3, "nothing is pending any more");
    let key = weir.key().text;
    assert_eq!(weir.exchange(&Wire::Messages.request(&key, "hi")).status, 200);
}

/// What is added to weir.toml, refused because of a file that it names for the first time, is taken once that file is mended.
#[test]
fn a_change_from_before_the_files_are_watched_is_loaded_too() {
    let provider = RecordingProvider::answering(OK);
    let secrets = tempfile::TempDir::new().unwrap();
    let secret = secrets.path().join("secret");
    std::fs::write(&secret, "secret-0-in-full").unwrap();
    let text = file(&provider.base_url(), secret.to_str().unwrap(), 0);
    let rules = RuleFolder::new(&[("one", &text)]);
    // As on a machine that is busy with other things.
    let late = ("FAILPOINTS", "reloader_begins=sleep(1000)");
    let weir = rules.weir().variable(late.0, late.1).start();
    std::fs::write(&secret, "secret-1-in-full").unwrap();
    wait_until("the new secret to be in force", || reloads(&weir, "ok") == 1);
}

fn refused_then_mended(added: &str, file: &std::path::Path, bad: Option<&str>, good: &str) {
    let provider = RecordingProvider::answering(OK);
    let rules = RuleFolder::new(&[("one", &file_of(&provider))]);
    let weir = rules.weir().variable("ONE_SECRET", "secret-in-full").start();
    let conf = weir.folder().join("weir.toml");
    let text = std::fs::read_to_string(&conf).unwrap();
    if let Some(bad) = bad {
        std::fs::write(file, bad).unwrap();
    }
    let failed = reloads(&weir, "failed");
    std::fs::write(&conf, format!("{text}\n{added}\n")).unwrap();
    wait_until("the configuration is refused", || reloads(&weir, "failed") > failed);
    std::fs::write(file, good).unwrap();
    wait_until("it is in force", || {
        weir.metrics().contains("weir_config_reload_failed 0")
    });
    let key = weir.key().text;
    let answer = weir.exchange(&Wire::Messages.request_for("one-model", &key, "hi"));
    assert_eq!(answer.status, 200, "{}", answer.text());
}

fn file_of(provider: &RecordingProvider) -> String {
    file(&provider.base_url(), "/nonexistent", 0).replace("file:/nonexistent", "env:ONE_SECRET")
}

#[test]
fn a_price_list_that_is_named_for_the_first_time_is_read_again_once_it_is_mended() {
    let folder = tempfile::TempDir::new().unwrap();
    let list = folder.path().join("prices.toml");
    let added = format!("[prices]\nfile = {list:?}");
    refused_then_mended(&added, &list, Some("version = 1"), "version = \"mine\"");
}

#[test]
fn a_file_that_was_not_there_is_waited_for_in_a_folder_that_comes_later() {
    let root = tempfile::TempDir::new().unwrap();
    let folder = root.path().join("later").join("still");
    let list = folder.join("prices.toml");
    let provider = RecordingProvider::answering(OK);
    let rules = RuleFolder::new(&[("one", &file_of(&provider))]);
    let weir = rules.weir().variable("ONE_SECRET", "secret-in-full").start();
    let conf = weir.folder().join("weir.toml");
    let text = std::fs::read_to_string(&conf).unwrap();
    std::fs::write(&conf, format!("{text}\n[prices]\nfile = {list:?}\n")).unwrap();
    wait_until("the configuration is refused", || reloads(&weir, "failed") == 1);
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(&list, "version = \"mine\"").unwrap();
    wait_until("it is in force", || {
        weir.metrics().contains("weir_config_reload_failed 0")
    });
}

#[test]
fn a_secret_that_is_named_for_the_first_time_is_read_again_once_it_is_mended() {
    let folder = tempfile::TempDir::new().unwrap();
    let secret = folder.path().join("secret");
    let added = format!("[provider.one]\nsecret = \"file:{}\"", secret.display());
    refused_then_mended(&added, &secret, Some("too-short"), "mended-in-full");
}
