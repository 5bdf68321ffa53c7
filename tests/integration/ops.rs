//! What an operator sees: readiness, metrics, one access line per request.

use std::sync::{Arc, Mutex};

use serde_json::Value as Json;

use crate::harness::redis::RedisServer;
use crate::harness::request::{ALL_WIRES, Wire};
use crate::harness::shapes::request_id_header;
use crate::harness::tools::skip;
use crate::harness::{RecordingProvider, Request, Weir, WeirBuilder, wait_for, wait_until};

/// The number behind the first `name` found anywhere in a line.
fn number(line: &Json, name: &str) -> Option<u64> {
    match line {
        Json::Object(fields) => fields.iter().find_map(|(key, value)| {
            if key == name {
                value.as_u64()
            } else {
                number(value, name)
            }
        }),
        _ => None,
    }
}

/// It would wake a hundred times a second, for as long as the process runs.
#[test]
fn no_thread_keeps_the_time_for_pingora() {
    let provider = RecordingProvider::recorded();
    let mut weir = Weir::start(&provider.base_url());
    let key = weir.key();
    for wire in ALL_WIRES {
        for request in [wire.request(&key.text, "hi"), wire.streaming(&key.text, "hi")] {
            assert_eq!(weir.exchange(&request).status, 200);
        }
    }
    assert!(weir.process().niceness("journal").is_some());
    assert_eq!(weir.process().niceness("Timer thread"), None);
}

#[test]
fn every_request_has_one_access_line_with_what_happened() {
    let provider = RecordingProvider::recorded();
    let weir = Weir::start(&provider.base_url());
    let key = weir.key();
    for wire in ALL_WIRES {
        for streaming in [false, true] {
            let request = if streaming {
                wire.streaming(&key.text, "hi")
            } else {
                wire.request(&key.text, "hi")
            };
            let answer = weir.exchange(&request);
            let line = weir.access_line(answer.header(request_id_header(wire)).unwrap());
            assert_eq!(line["key_id"], key.id.as_str(), "{line}");
            assert_eq!(line["account"], "tests", "{line}");
            assert_eq!(line["model"], wire.model(), "{line}");
            assert_eq!(line["provider"], wire.provider(), "{line}");
            assert_eq!(line["status"], 200, "{line}");
            assert_eq!(line["outcome"], "ok", "{line}");
            assert_eq!(line["stream"], streaming, "{line}");
            assert!(
                line["latency_ms"].is_u64() && line["protocol"].is_string() && line["time"].is_string(),
                "{line}"
            );
            assert_eq!(number(&line, "input_uncached"), Some(25), "{line}");
            assert_eq!(number(&line, "output_text"), Some(15), "{line}");
            if streaming {
                assert!(line["ttft_ms"].is_u64(), "{line}");
            }
        }
    }
    let refused = weir.exchange(&Wire::Messages.request("nonsense", "hi"));
    let line = weir.access_line(refused.header("request-id").unwrap());
    assert_eq!(
        (&line["status"], &line["outcome"]),
        (&Json::from(401), &Json::from("refused")),
        "{line}"
    );
    assert_eq!(line["refusal"], "key_unknown", "{line}");
    assert_eq!(weir.access_lines().len(), 7, "one line per request");
}

#[test]
fn metrics_count_requests_and_tokens_under_bounded_labels() {
    let provider = RecordingProvider::recorded();
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    for wire in ALL_WIRES {
        assert_eq!(weir.exchange(&wire.streaming(&key, "hi")).status, 200);
    }
    wait_until("all three models in the metrics", || {
        let metrics = weir.metrics();
        ALL_WIRES.iter().all(|wire| metrics.contains(wire.model()))
    });
    assert!(
        weir.metrics().contains("gen_ai_"),
        "the field's own names are used where one exists"
    );
    let series = |text: &str| text.lines().filter(|line| !line.starts_with('#')).count();
    let unknown = |number: usize| {
        weir.exchange(&Wire::Messages.request_for(&format!("made-up-{number}"), &key, "hi"));
        weir.exchange(&Request::post(&format!("/path-{number}")).header("user-agent", &format!("agent-{number}")));
        weir.exchange(&Request::new(&format!("M{number}"), "/v1/messages"));
    };
    unknown(0);
    let before = series(&weir.metrics());
    (1..30).for_each(unknown);
    let metrics = weir.metrics();
    assert!(!metrics.contains("made-up-") && !metrics.contains("path-1") && !metrics.contains("agent-1"));
    assert!(
        series(&metrics) <= before + 3,
        "series grew from {before} to {}",
        series(&metrics)
    );
}

#[test]
fn readiness_knows_the_store() {
    let Some(mut redis) = RedisServer::start() else {
        skip!("redis-server is not installed")
    };
    let provider = RecordingProvider::least();
    let weir = WeirBuilder::new()
        .all_providers(&provider.base_url())
        .redis(&redis)
        .set("key_cache.lifetime_seconds", 1)
        .set("key_cache.negative_seconds", 1)
        .set("money.grace_usd", "0")
        .start();
    let key = weir.key().text;
    let unseen = weir.key().text;
    wait_until("readiness", || weir.ops_get("/readyz").status == 200);
    assert_eq!(weir.ops_get("/livez").status, 200);
    assert_eq!(weir.exchange(&Wire::Messages.request(&key, "hi")).status, 200);
    redis.down();
    wait_until("readiness to end", || weir.ops_get("/readyz").status == 503);
    assert_eq!(weir.ops_get("/livez").status, 200, "alive all the same");
    for wire in ALL_WIRES {
        // A key that cannot be looked up is not called wrong.
        let answer = weir.exchange(&wire.request(&unseen, "hi"));
        assert_eq!(answer.status, 503, "{wire:?}: {}", answer.text());
        assert!(answer.header("retry-after").is_some(), "{wire:?}");
    }
    assert!(redis.up());
    wait_until("readiness again", || weir.ops_get("/readyz").status == 200);
    wait_until("service again", || {
        weir.exchange(&Wire::Messages.request(&unseen, "hi")).status == 200
    });
}

#[test]
fn a_node_is_ready_for_as_long_as_its_grace_serves_and_says_so() {
    let Some(mut redis) = RedisServer::start() else {
        skip!("redis-server is not installed")
    };
    let provider = RecordingProvider::recorded();
    let weir = WeirBuilder::new()
        .all_providers(&provider.base_url())
        .redis(&redis)
        .set("store.redis.budget_ms", 2_000)
        .set("money.grace_usd", "0.01")
        .set("money.grace_account_usd", "0.01")
        .start();
    let key = weir.key().text;
    let ask = || weir.exchange(&Wire::Messages.request(&key, "hi")).status;
    // Until changes of keys are announced, what is known of one may be forgotten at any moment.
    wait_until("changes of keys to be announced", || {
        let clients = redis.command(&["CLIENT", "LIST"]);
        let mut fields = clients.split_whitespace();
        fields.any(|field| field.strip_prefix("flags=").is_some_and(|flags| flags.contains('B')))
    });
    assert_eq!((ask(), ask()), (200, 200));
    redis.down();
    weir.wait_for_store(false);
    let ready = weir.ops_get("/readyz");
    assert_eq!(ready.status, 200, "{}", ready.text());
    assert!(
        ready.text().contains("\"warnings\":[\"store_unreachable_on_grace\""),
        "{}",
        ready.text()
    );
    assert_eq!(ask(), 200);
    wait_until("the grace to be used up", || ask() == 503);
    let ready = weir.ops_get("/readyz");
    assert_eq!(ready.status, 503, "{}", ready.text());
    assert!(ready.text().contains("store_unreachable"), "{}", ready.text());
}

#[test]
fn a_journal_whose_folder_is_gone_admits_nothing_until_it_is_back() {
    let provider = RecordingProvider::recorded();
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let ask = || weir.exchange(&Wire::Messages.request(&key, "hi"));
    assert_eq!(ask().status, 200);
    weir.books(1);
    let (here, away) = (weir.folder().join("journal"), weir.folder().join("away"));
    let reasons = || {
        let ready = weir.ops_get("/readyz");
        let told: Json = serde_json::from_str(&ready.text()).unwrap();
        (ready.status, told["reasons"].clone())
    };
    for replaced in [false, true] {
        let forwarded = provider.count();
        std::fs::rename(&here, &away).unwrap();
        if replaced {
            std::fs::create_dir(&here).unwrap();
        }
        wait_until("not ready", || reasons() == (503, serde_json::json!(["journal_gone"])));
        assert_eq!(ask().status, 503);
        assert_eq!(provider.count(), forwarded, "nothing is forwarded");
        assert_eq!(weir.figure("weir_journal_up"), 0);
        assert!(weir.logs().contains("was removed or replaced while weir was running"));
        if replaced {
            std::fs::remove_dir_all(&here).unwrap();
        }
        std::fs::rename(&away, &here).unwrap();
        wait_until("ready again", || reasons().0 == 200);
        assert_eq!(ask().status, 200);
    }
    weir.books(3);
}

#[test]
fn a_redis_that_is_down_at_start_is_waited_for() {
    let Some(mut redis) = RedisServer::start() else {
        skip!("redis-server is not installed")
    };
    redis.down();
    let weir = WeirBuilder::new()
        .all_providers("http://127.0.0.1:9")
        .redis(&redis)
        .start();
    assert_eq!(weir.ops_get("/livez").status, 200);
    assert_eq!(weir.ops_get("/readyz").status, 503);
    assert!(redis.up());
    weir.set_up_store();
    wait_until("readiness", || weir.ops_get("/readyz").status == 200);
    let _ = weir.key();
}

#[test]
fn a_full_access_log_queue_or_a_missing_disk_never_stops_requests() {
    let provider = RecordingProvider::least();
    let weir = WeirBuilder::new()
        .all_providers(&provider.base_url())
        .set("log.access_queue_lines", 1)
        .start();
    let key = weir.key().text;
    let served = Arc::new(Mutex::new(0_usize));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut client = weir.connect();
                for _ in 0..25 {
                    let answer = client.exchange(&Wire::Messages.request(&key, "hi"));
                    assert_eq!(answer.status, 200);
                    *served.lock().unwrap() += 1;
                }
            });
        }
    });
    assert_eq!(*served.lock().unwrap(), 200);
    let dropped = |metrics: &str| {
        let line = metrics
            .lines()
            .find(|line| line.starts_with("weir_") && line.contains("dropped"))?;
        line.rsplit(' ').next()?.parse::<usize>().ok()
    };
    wait_until("every line to be written or counted as dropped", || {
        let lost = dropped(&weir.metrics()).expect("a counter of dropped lines");
        weir.access_lines().len() + lost == 200
    });
}

#[test]
fn the_access_log_goes_on_in_a_new_file_after_a_rename_and_on_sighup() {
    let provider = RecordingProvider::recorded();
    let mut weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let path = |name: &str| weir.folder().join(name);
    let (log, first, second) = (path("access.jsonl"), path("access.jsonl.1"), path("access.jsonl.2"));
    let asked = |weir: &Weir| {
        let answer = weir.exchange(&Wire::Messages.request(&key, "hi"));
        let id = answer.header("x-weir-request-id").unwrap().to_owned();
        (weir.access_line(&id), id)
    };
    let (_, before) = asked(&weir);
    std::fs::rename(&log, &first).unwrap();
    // Found by the requests that come afterwards: the line of one is in the new file.
    let (_, after) = wait_for("a line in the new file", || {
        let answer = weir.exchange(&Wire::Messages.request(&key, "hi"));
        let id = answer.header("x-weir-request-id").unwrap().to_owned();
        log.exists().then(|| (weir.access_line(&id), id))
    });
    std::fs::rename(&log, &second).unwrap();
    weir.process().signal("HUP");
    wait_until("the file to be there without a request", || log.exists());
    let (_, last) = asked(&weir);
    let holds = |file: &std::path::Path, id: &str| std::fs::read_to_string(file).unwrap().contains(id);
    assert!(holds(&first, &before) && holds(&second, &after) && holds(&log, &last));
    let lines = [first, second, log].map(|file| std::fs::read_to_string(file).unwrap().lines().count());
    assert_eq!(lines.iter().sum::<usize>(), provider.count(), "{lines:?}");
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let weir = Weir::start("http://127.0.0.1:9");
    let (read, write) = std::io::pipe().unwrap();
    drop(read);
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["models", "--admin"])
        .arg(format!("unix:{}", weir.admin_socket().display()))
        .stdout(write)
        .stderr(std::process::Stdio::piped())
        .spawn()
        .and_then(std::process::Child::wait_with_output)
        .unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

#[test]
fn a_provider_that_is_off_says_why_and_a_disabled_one_serves_no_model() {
    let weir = WeirBuilder::bare()
        .all_providers("http://127.0.0.1:9")
        .set("provider.gemini.enabled", false)
        .start();
    let listed = |weir: &Weir| weir.cli_json(&["provider", "list"]).to_string();
    let off = listed(&weir);
    assert!(off.contains("[provider.gemini]"), "{off}");
    let told = weir.cli(&["provider", "enable", "gemini"], &[]);
    assert!(!told.status.success(), "{told:?}");
    let before = weir.cli_json(&["models"]).to_string();
    weir.cli_json(&["provider", "disable", "deepseek"]);
    let after = weir.cli_json(&["models"]).to_string();
    assert!(
        before.contains("deepseek") && !after.contains("\"provider\":\"deepseek\""),
        "{after}"
    );
}
