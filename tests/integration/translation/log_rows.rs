//! What the rows of translated requests and of turns on sockets say, in every log backend and on the pages that show rows.

use serde_json::{Value as Json, json};

use super::chat_answers::ChatTurn;
use super::chat_provider::chat_provider;
use super::stage::{MODEL, Stage, Upstream, question};
use crate::harness::postgres::PostgresServer;
use crate::harness::redis::RedisServer;
use crate::harness::request::Wire;
use crate::harness::tab::Tab;
use crate::harness::tools::skip;
use crate::harness::websocket::WebSocket;
use crate::harness::{RecordingProvider, WeirBuilder, wait_until};
use crate::log_postgres::set_up;

const HELLO: ChatTurn = ChatTurn {
    reasoning: &["I need ", "no tool."],
    text: &["Hello"],
    calls: &[],
};
/// What the translation of [`body`] loses.
const LOST: &str = "dropped text.verbosity";

fn body() -> Json {
    let mut body = question(Wire::Responses, "hi");
    body["text"] = json!({"verbosity": "low"});
    body
}

/// A gateway with these settings, and the provider behind it.
fn stage(settings: impl FnOnce(WeirBuilder) -> WeirBuilder) -> (RecordingProvider, Stage) {
    let provider = chat_provider(|body, answer| HELLO.answer(body, answer));
    let stage = Stage::start_with(Upstream::Chat, &provider.base_url(), "lossy", settings);
    (provider, stage)
}

fn sorted_rows(stage: &Stage) -> Vec<Json> {
    let mut rows = stage.weir.rows();
    rows.sort_by_key(|row| row["transport"].as_str().map(str::to_owned));
    rows
}

/// Asks by POST and on a socket, and checks what both rows say, now and after a crash, and that the log proves them.
#[track_caller]
fn ask_both_ways(stage: &mut Stage) {
    let answer = stage.ask(Wire::Responses, true, &body());
    assert_eq!(answer.status, 200, "{}", answer.text());
    let line = stage.line(&answer);
    let mut frame = json!({"type": "response.create", "model": MODEL});
    frame
        .as_object_mut()
        .unwrap()
        .extend(body().as_object().unwrap().clone());
    WebSocket::open(stage.weir.gateway, &stage.key).ask(&frame).completed();
    stage.weir.books(2);
    let rows = sorted_rows(stage);
    for row in &rows {
        assert_eq!(row["translated"], "responses->chat", "{row}");
        assert_eq!(row["losses"], json!([LOST]), "{row}");
    }
    assert_eq!(
        (&rows[0]["translated"], &rows[0]["losses"]),
        (&line["translated"], &line["losses"])
    );
    assert_eq!(
        (rows[0].get("transport"), &rows[1]["transport"]),
        (None, &json!("websocket"))
    );
    stage.weir.kill_and_restart();
    wait_until("the same rows", || sorted_rows(stage) == rows);
    wait_until("the rows to be proven", || {
        let told = stage
            .weir
            .cli(&["log", "verify"], &["--from", &yesterday(), "--until", &tomorrow()]);
        let said = String::from_utf8(told.stdout).unwrap();
        told.status.success() && said.contains("2 rows in ") && !said.contains("are open")
    });
}

fn yesterday() -> String {
    day(-1)
}

fn tomorrow() -> String {
    day(1)
}

/// A day (UTC), by its distance from today.
fn day(distance: i64) -> String {
    use jiff::{Timestamp, ToSpan, tz::TimeZone};

    (Timestamp::now().to_zoned(TimeZone::UTC).date() + distance.days()).to_string()
}

#[test]
fn rows_in_files_and_on_the_owners_page_say_how_they_came_and_what_was_lost() {
    let (_provider, mut stage) = stage(|builder| builder.set("log.files.seconds", 1));
    ask_both_ways(&mut stage);
    let mut tab = Tab::new(stage.weir.gateway);
    assert_eq!(tab.post("/portal/sign-in", &[("key", &stage.key)]).status, 303);
    let page = tab.page("/portal");
    assert_eq!(page.matches(", on a WebSocket").count(), 1, "{page}");
    assert_eq!(page.matches(LOST).count(), 2, "{page}");
    assert_eq!(page.matches("<dd>responses-&gt;chat</dd>").count(), 2, "{page}");
}

#[test]
fn rows_in_redis_say_how_they_came_and_what_was_lost() {
    let Some(redis) = RedisServer::start() else {
        skip!("redis-server is not installed")
    };
    let (_provider, mut stage) = stage(|builder| builder.redis(&redis));
    ask_both_ways(&mut stage);
}

#[test]
fn rows_in_postgres_say_how_they_came_and_what_was_lost() {
    let Some(server) = PostgresServer::start() else {
        skip!("no postgres")
    };
    let (_provider, mut stage) = stage(|builder| builder.set("log.home", "postgres").postgres(&server));
    set_up(&stage.weir, &server);
    ask_both_ways(&mut stage);
    let found = server.psql("SELECT transport, translated, losses FROM weir.log ORDER BY transport NULLS FIRST");
    let rest = format!("|responses->chat|{{\"{LOST}\"}}");
    assert_eq!(found, format!("{rest}\nwebsocket{rest}"));
}
