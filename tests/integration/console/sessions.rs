//! Sessions outlive a process and are shared by nodes; and what holds while the store is away.

use serde_json::Value as Json;

use super::{address, builder, signed_in, with_console};
use crate::harness::redis::RedisServer;
use crate::harness::tab::{Tab, form};
use crate::harness::tools::skip;
use crate::harness::{Weir, wait_for, wait_until};

/// The same browser at another node, or at the same one after its restart.
fn moved(tab: &Tab, weir: &Weir) -> Tab {
    let mut moved = Tab::new(address(weir));
    moved.cookie = tab.cookie.clone();
    moved
}

/// Two nodes at one Redis.
fn nodes() -> Option<(RedisServer, Weir, Weir)> {
    let redis = RedisServer::start()?;
    let node = || builder("http://127.0.0.1:9").redis(&redis).start();
    let (one, other) = (node(), node());
    Some((redis, one, other))
}

#[test]
fn after_a_restart_a_session_goes_on_and_a_form_sent_again_changes_nothing() {
    let mut weir = with_console();
    let mut tab = signed_in(&weir, "owner");
    let page = tab.page("/accounts");
    let sent = form(&page, "/accounts");
    let entered = [("id", "acme"), ("balance_usd", "5")];
    assert_eq!(tab.send_form(&sent, &entered).status, 303);
    weir.kill_and_restart();
    let mut again = moved(&tab, &weir);
    assert!(again.page("/accounts/acme").contains("Role: owner"));
    assert_eq!(again.send_form(&sent, &entered).status, 303, "the first answer");
    assert_eq!(weir.cli_json(&["account", "show", "acme"])["balance_usd"], "5.00");
    let page = again.page("/");
    assert_eq!(again.fill(&page, "/sign-out", &[]).status, 303);
    weir.kill_and_restart();
    assert_eq!(moved(&tab, &weir).get("/").status, 401);
}

#[test]
fn an_owners_session_outlives_the_process_and_not_its_key() {
    let mut weir = with_console();
    let key = weir.key();
    let mut tab = Tab::new(weir.gateway);
    assert_eq!(tab.post("/portal/sign-in", &[("key", &key.text)]).status, 303);
    weir.kill_and_restart();
    let mut again = Tab::new(weir.gateway);
    again.cookie = tab.cookie.clone();
    assert!(again.page("/portal").contains(&key.id));
    weir.cli_json(&["key", "revoke", &key.id]);
    let ended = again.get("/portal");
    assert_eq!(ended.status, 401);
    assert!(ended.text().contains("has ended"), "{}", ended.text());
    assert!(
        !again.get("/portal").text().contains("has ended"),
        "nobody knows it any more"
    );
}

#[test]
fn nodes_share_sessions_and_their_end_and_a_form_sent_to_both_changes_once() {
    let Some((redis, one, other)) = nodes() else {
        skip!("redis-server is not there");
    };
    let mut here = signed_in(&one, "owner");
    let mut there = moved(&here, &other);
    let sent = form(&here.page("/accounts"), "/accounts");
    assert!(there.page("/").contains("Role: owner"));
    let entered = [("id", "acme"), ("balance_usd", "5")];
    assert_eq!(
        there.send_form(&sent, &entered).status,
        303,
        "a form of one node, sent to the other"
    );
    assert_eq!(here.send_form(&sent, &entered).status, 303, "the first answer");
    assert_eq!(one.cli_json(&["account", "show", "acme"])["balance_usd"], "5.00");
    let cookie = here.cookie.clone().unwrap();
    let (_, text) = cookie.split_once('=').unwrap();
    let stored = redis.stored_bytes();
    assert!(
        !stored.windows(text.len()).any(|bytes| bytes == text.as_bytes()),
        "only its digest is stored"
    );
    let page = there.page("/");
    assert_eq!(there.fill(&page, "/sign-out", &[]).status, 303);
    assert_eq!(here.get("/").status, 401, "signed out everywhere");
}

/// The sessions that a node lists.
fn listed(weir: &Weir) -> Vec<Json> {
    let told = weir.cli(&["console", "sessions"], &["--json"]);
    assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
    let text = String::from_utf8(told.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Lists the sessions of both doors at `other`, and ends them there one after the other.
#[track_caller]
fn are_listed_and_ended(one: &Weir, other: &Weir) {
    let owner = signed_in(one, "owner");
    let viewer = signed_in(one, "viewer");
    let key = one.key();
    let mut holder = Tab::new(one.gateway);
    assert_eq!(holder.post("/portal/sign-in", &[("key", &key.text)]).status, 303);
    let sessions = listed(other);
    assert_eq!(sessions.len(), 3, "{sessions:?}");
    let of = |wanted: &dyn Fn(&Json) -> bool| {
        let found: Vec<&Json> = sessions.iter().filter(|one| wanted(one)).collect();
        assert_eq!(found.len(), 1, "{sessions:?}");
        found[0].clone()
    };
    let of_viewer = of(&|one| one["door"] == "console" && one["role"] == "viewer");
    let of_owner = of(&|one| one["door"] == "console" && one["role"] == "owner");
    let of_key = of(&|one| one["door"] == "portal" && one["key"] == key.id.as_str());
    assert!(
        of_viewer["opened_by"].as_str().unwrap().starts_with("uid "),
        "{of_viewer}"
    );
    let time = |one: &Json, field: &str| one[field].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    for one in &sessions {
        let lasts = time(one, "ends_at").duration_since(time(one, "idle_ends_at"));
        assert!(
            (11 * 60..12 * 60).contains(&lasts.as_mins()),
            "12 hours, less 30 minutes: {one}"
        );
    }
    let text = sessions.iter().map(Json::to_string).collect::<String>();
    for tab in [&owner, &viewer, &holder] {
        let (_, cookie) = tab.cookie.as_ref().unwrap().split_once('=').unwrap();
        assert!(!text.contains(cookie), "a list opens nothing");
    }
    let end = |one: &Json| other.cli(&["console", "sessions", "--end", one["id"].as_str().unwrap()], &[]);
    assert!(end(&of_viewer).status.success());
    assert_eq!((viewer.get("/").status, owner.get("/").status), (401, 200));
    let again = end(&of_viewer);
    let said = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(
        !again.status.success() && said.contains("no session has this id"),
        "{said}"
    );
    assert!(end(&of_key).status.success());
    assert_eq!(holder.get("/portal").status, 401);
    assert_eq!(listed(one).len(), 1);
    let all = other.cli(&["console", "sessions", "--end-all"], &[]);
    let said = String::from_utf8_lossy(&all.stdout).into_owned();
    assert!(all.status.success() && said.contains("1 session has ended"), "{said}");
    assert_eq!(owner.get("/").status, 401);
    assert_eq!((of_owner["id"].as_str().unwrap().len(), listed(one).len()), (16, 0));
    let record = std::fs::read_to_string(other.folder().join("audit.jsonl")).unwrap();
    assert_eq!(record.matches("\"console.end_session\"").count(), 3, "{record}");
}

#[test]
fn sessions_are_listed_and_ended_by_the_command_line() {
    let weir = with_console();
    are_listed_and_ended(&weir, &weir);
}

#[test]
fn sessions_of_all_nodes_are_listed_and_ended_at_each_of_them() {
    let Some((_redis, one, other)) = nodes() else {
        skip!("redis-server is not there");
    };
    are_listed_and_ended(&one, &other);
}

#[test]
fn while_redis_is_away_a_node_shows_those_it_knows_their_pages_and_changes_nothing() {
    let Some((mut redis, one, other)) = nodes() else {
        skip!("redis-server is not there");
    };
    let mut here = signed_in(&one, "owner");
    let page = here.page("/accounts");
    redis.down();
    assert_eq!(here.get("/rules").status, 200);
    let stranger = moved(&here, &other).get("/rules");
    assert_eq!(stranger.status, 503, "{}", stranger.text());
    let refused = here.fill(&page, "/accounts", &[("id", "acme"), ("balance_usd", "5")]);
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert!(
        refused.text().contains("the key store is unavailable"),
        "{}",
        refused.text()
    );
    let out = here.clone().fill(&page, "/sign-out", &[]);
    assert_eq!(
        (out.status, out.header("set-cookie")),
        (503, None),
        "it goes on, and says so"
    );
    // A link opens a session all the same, at this node.
    let mut late = signed_in(&one, "viewer");
    assert_eq!(late.get("/rules").status, 200);
    assert!(redis.up());
    wait_until("the store is back", || {
        here.get("/rules").status == 200 && moved(&here, &other).get("/rules").status == 200
    });
    let ended = wait_for("the last word of the store", || {
        let answer = late.get("/rules");
        (answer.status != 200).then_some(answer.status)
    });
    assert_eq!(ended, 401);
    let page = here.page("/");
    assert_eq!(here.fill(&page, "/sign-out", &[]).status, 303);
    late.cookie = here.cookie.clone();
    assert_eq!(late.get("/").status, 401);
}
