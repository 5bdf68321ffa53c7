//! What was used: daily sums, tags, and what a key's owner sees of its own.

use serde_json::Value as Json;

use crate::harness::books::cost;
use crate::harness::redis::RedisServer;
use crate::harness::request::{ALL_WIRES, Wire};
use crate::harness::sample::SampleProvider;
use crate::harness::shapes::{assert_refusal, assert_unauthorized};
use crate::harness::tools::skip;
use crate::harness::{RecordingProvider, Request, Weir, WeirBuilder, wait_until};

const OWN: &str = "/web/v1/me";

fn own(weir: &Weir, key: &str) -> Json {
    let answer = weir.exchange(&Request::get(OWN).header("authorization", &format!("Bearer {key}")));
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    let body = answer.json();
    assert_eq!(body["success"], true);
    body["data"].clone()
}

fn say(weir: &Weir, wire: Wire, key: &str, tags: &str) {
    let request = wire.request(key, "Tell me of weirs. [[sample: deltas=3]]");
    assert_eq!(weir.exchange(&request.header("x-weir-tag", tags)).status, 200);
}

/// The lines of `weir usage`, whatever their number.
fn usage(weir: &Weir, words: &[&str]) -> Vec<Json> {
    let words: Vec<&str> = ["usage"].iter().chain(words).copied().collect();
    match weir.cli_json(&words) {
        Json::Array(lines) => lines,
        line => vec![line],
    }
}

fn costs(lines: &[Json], by: &str) -> Vec<(String, i64)> {
    let line = |line: &Json| {
        (
            line[by].as_str().unwrap().to_owned(),
            line["cost_nano_usd"].as_i64().unwrap(),
        )
    };
    lines.iter().map(line).collect()
}

#[test]
fn what_was_used_is_told_by_day_model_key_and_tag() {
    let provider = SampleProvider::start();
    let weir = Weir::start(&provider.base_url());
    let (one, other) = (weir.key(), weir.key());
    for wire in ALL_WIRES {
        say(&weir, wire, &one.text, "project=blue, team=a");
    }
    say(&weir, Wire::Messages, &other.text, "project=red");
    let books = weir.books(4);
    let of = |takes: &dyn Fn(&Json) -> bool| books.rows.iter().filter(|row| takes(row)).map(cost).sum::<i64>();
    let day = books.rows[0]["time"].as_str().unwrap()[..10].to_owned();
    let by_day = usage(&weir, &["--account", "tests", "--by", "day", "--from", &day]);
    assert_eq!(costs(&by_day[..1], "day")[0].0, day);
    assert_eq!(
        costs(&by_day, "day").iter().map(|(_, cost)| cost).sum::<i64>(),
        books.charged()
    );
    let mut by_key = [&one, &other].map(|key| (key.id.clone(), of(&|row| row["key_id"] == key.id.as_str())));
    by_key.sort();
    assert_eq!(
        costs(&usage(&weir, &["--account", "tests", "--by", "key"]), "key"),
        by_key
    );
    let model = Wire::Responses.model();
    let of_model = costs(&usage(&weir, &["--model", model, "--by", "model"]), "model");
    assert_eq!(of_model, [(model.to_owned(), of(&|row| row["model"] == model))]);
    let blue = |row: &Json| row["tags"].as_array().unwrap().contains(&"project=blue".into());
    let by_tag = costs(&usage(&weir, &["--account", "tests", "--by", "tag"]), "tag");
    let (blue, red) = (of(&blue), of(&|row| !blue(row)));
    let named = |name: &str, cost| (name.to_owned(), cost);
    assert_eq!(
        by_tag,
        [
            named("project=blue", blue),
            named("project=red", red),
            named("team=a", blue)
        ]
    );
    let tokens = usage(&weir, &["--key", &other.id, "--by", "model"]);
    assert_eq!(
        tokens[0]["output_text"],
        books
            .rows
            .iter()
            .find(|row| !row["tags"].as_array().unwrap().contains(&"team=a".into()))
            .unwrap()["output_text"]
    );
    let table = weir.cli(&["usage", "--account", "tests", "--by", "key"], &[]);
    let table = String::from_utf8(table.stdout).unwrap();
    assert!(table.starts_with("KEY ") && table.contains("total "), "{table}");
    let refused = weir.cli(&["usage", "--account", "tests", "--from", "soon"], &[]);
    assert!(!refused.status.success());
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(
        said.contains("'--from <DATE>': give a date such as 2027-01-31"),
        "{said}"
    );
}

#[test]
fn the_last_rows_of_a_key_are_told_to_its_owner_alone() {
    let provider = SampleProvider::start();
    let weir = Weir::start(&provider.base_url());
    let (one, other) = (weir.key(), weir.key());
    for key in [&one, &other, &one] {
        say(&weir, Wire::Messages, &key.text, "a=b");
    }
    weir.books(3);
    let rows = own(&weir, &one.text)["last_rows"].clone();
    let rows = rows.as_array().unwrap();
    assert_eq!(rows.len(), 2);
    assert!(rows.iter().all(|row| row["key_id"] == one.id.as_str()));
    assert!(
        rows[0]["time_ms"].as_i64() >= rows[1]["time_ms"].as_i64(),
        "the newest first"
    );
    assert!(rows[0]["price_lines"].as_array().is_some_and(|lines| !lines.is_empty()));
    let asked = |query: &str| {
        let request = Request::get(&format!("{OWN}?{query}")).header("authorization", &format!("Bearer {}", one.text));
        weir.exchange(&request)
    };
    assert_eq!(asked("rows=1").json()["data"]["last_rows"].as_array().unwrap().len(), 1);
    assert_eq!(asked("rows=0").json()["data"].get("last_rows"), None);
    assert_eq!(asked("rows=101").status, 400);
}

#[test]
fn whoever_has_a_key_is_told_how_to_use_it_and_never_its_text() {
    let provider = SampleProvider::start();
    let weir = Weir::start(&provider.base_url());
    let (key, bound) = (weir.key(), weir.key_with(&["--models", Wire::Responses.model()]));
    let told = own(&weir, &key.text);
    let snippets = told["snippets"].as_array().unwrap();
    let names: Vec<&str> = snippets.iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names[..4], ["curl", "Claude Code", "Codex", "Gemini CLI"]);
    assert!(snippets.iter().all(|one| {
        let text = one["text"].as_str().unwrap();
        text.contains("http://weir.test") && text.contains("WEIR_KEY") && one["language"].is_string()
    }));
    assert!(!told.to_string().contains(&key.text));
    let of_bound = own(&weir, &bound.text)["snippets"].clone();
    let names: Vec<&str> = of_bound
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        ["curl", "Codex", "openai (Python)", "openai (Node)"],
        "of its protocol alone"
    );
    // The portal's page has the same texts.
    let mut tab = crate::harness::tab::Tab::new(weir.gateway);
    assert_eq!(tab.post("/portal/sign-in", &[("key", &key.text)]).status, 303);
    let page = tab.page("/portal");
    for one in snippets {
        let shown = one["text"].as_str().unwrap();
        let shown = shown
            .replace('&', "&amp;")
            .replace('"', "&quot;")
            .replace('<', "&lt;")
            .replace('>', "&gt;");
        assert!(page.contains(&shown), "{shown}: {page}");
    }
}

#[test]
fn rows_are_found_by_their_tags_and_providers_see_none() {
    let provider = RecordingProvider::least();
    let weir = WeirBuilder::new()
        .all_providers(&provider.base_url())
        .set("gateway.session_tag", true)
        .start();
    let key = weir.key().text;
    for wire in ALL_WIRES {
        let request = wire
            .request(&key, "hi")
            .header("x-weir-tag", "project=blue")
            .header("X-Weir-Tag", "run=7,project=blue")
            .header("x-claude-code-session-id", "0b7c-4");
        assert_eq!(weir.exchange(&request).status, 200, "{wire:?}");
        let got = provider.last();
        assert_eq!(got.header("x-weir-tag"), None, "{wire:?}");
        assert_eq!(
            got.header("x-claude-code-session-id"),
            Some("0b7c-4"),
            "an agent's own header passes"
        );
    }
    let books = weir.books(3);
    for row in &books.rows {
        assert_eq!(
            row["tags"],
            serde_json::json!(["project=blue", "run=7", "session=0b7c-4"])
        );
    }
    for (tag, found) in [("run=7", 3), ("session=0b7c-4", 3), ("run=8", 0)] {
        let rows = weir.cli_json(&["log", "query", "--tag", tag]);
        assert_eq!(rows.as_array().unwrap().len(), found, "{tag}");
    }
    let refused = weir.cli(&["usage", "--account", "tests", "--tag", "session=0b7c-4"], &[]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("sums are not kept for sessions"));
}

#[test]
fn a_tag_that_cannot_be_read_is_refused_in_every_shape() {
    let provider = RecordingProvider::least();
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    for wire in ALL_WIRES {
        let kind = match wire {
            Wire::Messages => "invalid_request_error",
            Wire::Responses => "tags_invalid",
            Wire::Gemini => "INVALID_ARGUMENT",
        };
        for wrong in ["blue", "project=blue green", "a=1,b=2,c=3,d=4,e=5,f=6"] {
            let answer = weir.exchange(&wire.request(&key, "hi").header("x-weir-tag", wrong));
            assert_refusal(wire, &answer, 400, kind);
            assert!(answer.text().contains("x-weir-tag"), "{}", answer.text());
        }
        let most = "a=1,b=2,c=3,d=4,e=5";
        assert_eq!(
            weir.exchange(&wire.request(&key, "hi").header("x-weir-tag", most))
                .status,
            200
        );
    }
    weir.books(3);
}

#[test]
fn whoever_has_a_key_sees_what_it_has_used_and_nothing_of_others() {
    let provider = SampleProvider::start();
    let weir = Weir::start(&provider.base_url());
    let key = weir.key_with(&[
        "--quota-usd",
        "0.5",
        "--reset",
        "monthly",
        "--models",
        Wire::Messages.model(),
    ]);
    let other = weir.key();
    let fresh = own(&weir, &key.text);
    assert_eq!(
        (&fresh["state"], &fresh["left_usd"]),
        (&"active".into(), &"0.50".into())
    );
    assert_eq!(fresh["usage"]["by_day"], serde_json::json!([]));
    say(&weir, Wire::Messages, &key.text, "a=b");
    say(&weir, Wire::Responses, &other.text, "a=b");
    let books = weir.books(2);
    let spent: i64 = books
        .rows
        .iter()
        .filter(|row| row["key_id"] == key.id.as_str())
        .map(cost)
        .sum();
    let told = own(&weir, &key.text);
    assert_eq!(told["id"], key.id.as_str());
    assert_eq!(told["models"], serde_json::json!([Wire::Messages.model()]));
    assert_eq!(told["left_nano_usd"], 500_000_000 - spent);
    for period in ["day", "week", "month", "all"] {
        assert_eq!(told["spent"][format!("{period}_nano_usd")], spent, "{told}");
    }
    assert_eq!(told["usage"]["total"]["cost_nano_usd"], spent);
    assert_eq!(
        costs(told["usage"]["by_model"].as_array().unwrap(), "model"),
        [(Wire::Messages.model().to_owned(), spent)]
    );
    assert!(told["resets_at"].as_i64().is_some());
    assert!(!told.to_string().contains(&other.id) && !told.to_string().contains(Wire::Responses.model()));

    // In whichever place the key stands.
    for request in [
        Request::get(OWN).header("x-api-key", &key.text),
        Request::get(OWN).header("x-goog-api-key", &key.text),
        Request::get(&format!("{OWN}?key={}&days=1", key.text)),
    ] {
        assert_eq!(weir.exchange(&request).json()["data"]["id"], key.id.as_str());
    }
    let head = weir.exchange(&Request::new("HEAD", OWN).header("x-api-key", &key.text));
    assert_eq!((head.status, head.body.len()), (200, 0));

    // Also when nothing is left.
    weir.cli_json(&["key", "update", &key.id, "--quota-usd", "0"]);
    wait_until("the quota to be known", || own(&weir, &key.text)["state"] == "used_up");
    assert_eq!(weir.exchange(&Wire::Messages.request(&key.text, "hi")).status, 429);
    assert_eq!(own(&weir, &key.text)["left_usd"], "0.00");
    weir.cli_json(&["account", "suspend", "--id", "tests"]);
    assert_eq!(own(&weir, &key.text)["id"], key.id.as_str());
}

#[test]
fn an_expired_key_still_sees_its_use_and_a_revoked_or_unknown_one_does_not() {
    let weir = Weir::start("http://127.0.0.1:9");
    let key = weir.key();
    let expired = weir.expired_key();
    assert_eq!(own(&weir, &expired)["state"], "expired");
    for (wire, request) in [
        (Wire::Messages, Request::get(OWN).header("x-api-key", "weir-no")),
        (Wire::Responses, Request::get(OWN)),
        (Wire::Gemini, Request::get(OWN).header("x-goog-api-key", "weir-no")),
    ] {
        assert_unauthorized(wire, &weir.exchange(&request));
    }
    assert_eq!(own(&weir, &key.text)["state"], "active");
    weir.cli_json(&["key", "revoke", &key.id]);
    let bearer = format!("Bearer {}", key.text);
    let ask = || weir.exchange(&Request::get(OWN).header("authorization", &bearer));
    wait_until("the revocation to be known", || ask().status == 401);
    assert_unauthorized(Wire::Responses, &ask());
    let posted = Request::new("POST", OWN).header("authorization", &bearer);
    assert_eq!(weir.exchange(&posted).header("allow"), Some("GET, HEAD"));
    let days = Request::get(&format!("{OWN}?days=181")).header("authorization", &format!("Bearer {expired}"));
    assert_refusal(Wire::Responses, &weir.exchange(&days), 400, "query_invalid");
}

#[test]
fn one_address_may_ask_for_its_use_so_often() {
    let weir = WeirBuilder::new()
        .set("own_usage.per_minute", 1)
        .set("own_usage.burst", 3)
        .set("stability.trusted_proxies", vec!["127.0.0.1"])
        .start();
    let key = weir.key().text;
    let ask = |address: &str| {
        let request = Request::get(OWN).header("authorization", &format!("Bearer {key}"));
        weir.exchange(&request.header("x-forwarded-for", address))
    };
    let statuses: Vec<u16> = (0..3).map(|_| ask("203.0.113.1").status).collect();
    assert_eq!(statuses, [200; 3]);
    let refused = ask("203.0.113.1");
    assert_refusal(Wire::Responses, &refused, 429, "rate_limit_exceeded");
    let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=60).contains(&wait), "{wait}");
    assert_eq!(ask("203.0.113.2").status, 200, "another address has a limit of its own");
}

#[test]
fn sums_that_differ_from_their_rows_are_found_and_mended() {
    let Some(redis) = RedisServer::start() else {
        skip!("redis-server is not there: tests/run installs it");
    };
    let provider = SampleProvider::start();
    let weir = WeirBuilder::new()
        .all_providers(&provider.base_url())
        .redis(&redis)
        .start();
    let key = weir.key();
    for _ in 0..2 {
        say(&weir, Wire::Messages, &key.text, "team=a");
    }
    let books = weir.books(2);
    let time = books.rows[0]["time"].as_str().unwrap();
    let day: jiff::civil::Date = time[..10].parse().unwrap();
    let number = day.duration_since(jiff::civil::date(1970, 1, 1)).as_hours() / 24;
    let (from, until) = (day.to_string(), day.tomorrow().unwrap().to_string());
    let verify = |flags: &[&str]| {
        let done = weir.cli(&["log", "verify", "--from", &from, "--until", &until], flags);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (done.status.code(), text(&done.stdout), text(&done.stderr))
    };
    assert_eq!(verify(&[]).0, Some(0));
    let sums = format!("{{weir:a:tests}}:sums:{number}");
    let entry = format!("k:{}", key.id);
    redis.command(&["HSET", &sums, &entry, &format!(";{}=1||7|", Wire::Messages.model())]);
    let (code, said, error) = verify(&[]);
    assert_eq!(code, Some(1), "{said}{error}");
    assert!(
        said.contains(&format!("key {} model {}", key.id, Wire::Messages.model())),
        "{said}"
    );
    assert!(
        said.contains("cost_usd 0.000000007") && said.contains("requests 2"),
        "{said}"
    );
    assert!(said.contains("the sums do not agree with each other"), "{said}");
    assert!(error.contains("--mend"), "{error}");
    let (code, said, _) = verify(&["--mend"]);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(verify(&[]).0, Some(0));
    // As a store from before sums were kept has none.
    redis.command(&["DEL", &sums]);
    assert_eq!(usage(&weir, &["--account", "tests"]), Vec::<Json>::new());
    assert_eq!(verify(&["--mend"]).0, Some(0));
    let told = usage(&weir, &["--account", "tests"]);
    assert_eq!(told[0]["cost_nano_usd"], books.charged());
}

#[test]
fn a_log_that_was_found_whole_yesterday_is_told_with_the_time() {
    let weir = WeirBuilder::new().start();
    let _ = weir.key();
    let told = || {
        let metrics = weir.metrics();
        let (_, value) = metrics.split_once("\nweir_log_verified_timestamp_seconds ").unwrap();
        value.lines().next().unwrap().parse::<f64>().unwrap()
    };
    let verify = |flags: &[&str]| assert!(weir.cli(&["log", "verify"], flags).status.success());
    verify(&["--from", "2026-01-01", "--until", "2026-01-02"]);
    verify(&["--days", "1", "--account", "tests"]);
    assert_eq!(told(), 0.0, "not all of it, or of another day");
    verify(&["--days", "2"]);
    assert!(told() > 1_700_000_000.0);
}
