//! Rows that go over from the store to files.

use std::{sync::Arc, time::Duration};

use http::Method;
use serde_json::json;
use tempfile::TempDir;

use super::Fixture;
use crate::{
    admin::AdminLogBackends,
    domain::{
        ledger::{AccountChange, NodeId, Settlement, Step},
        money::NanoUsd,
    },
    sinks::{FedLog, FormerLogBackend, OpenLogBackend, files::LogFiles, store_log::StoreLog},
    store::ledger::contract::row,
};

const DAY_MS: i64 = 86_400_000;

/// Files are the home, the store was it before, and has three rows of an account, as long ago as that.
async fn moving(days_ago: i64) -> Fixture {
    let folder = TempDir::new().unwrap();
    let (audit, log) = (folder.path().join("audit.jsonl"), folder.path().join("log"));
    let homes = |rows: &Arc<StoreLog>| {
        let files = LogFiles::open(&log, Duration::from_secs(3600), 50_000).unwrap();
        let home = OpenLogBackend::Fed(FedLog::new(Arc::new(files)));
        AdminLogBackends::new(home, Some(FormerLogBackend::Store(Arc::clone(rows))), Arc::default())
    };
    let admin = Fixture::with_homes(folder, &audit, homes).await;
    let ended = admin.ledger.now_ms().await.unwrap() - days_ago * DAY_MS;
    let rows = (1..=3).map(|seq| row("acme", 1, &format!("r{seq}"), ended, NanoUsd::from_nanos(7)));
    let steps = (1..).zip(rows).map(|(seq, row)| Step {
        seq,
        change: AccountChange::Settle(Box::new(Settlement::of(row, 0))),
    });
    let (steps, node) = (steps.collect::<Vec<_>>(), NodeId::generate(&mut rand::rng()));
    admin.ledger.apply(&node, "acme", &steps, 30).await.unwrap();
    admin
}

#[tokio::test]
async fn rows_are_brought_to_the_home_and_leave_the_store_when_they_are_proven_to_be_there() {
    let admin = moving(2).await;
    let homes = admin.get("/v1/log/home").await;
    assert_eq!((&homes["home"], &homes["former"]), (&json!("files"), &json!("store")));
    // The store's clock in these tests says 2026-11-21.
    let (day, asked) = ("2026-11-19", json!({ "account": "acme", "day": "2026-11-19" }));
    let verify = async || admin.get(&format!("/v1/log/verify?account=acme&day={day}")).await;
    let remove = async || {
        let removed = admin.post("/v1/log/former/remove", asked.clone()).await;
        (removed["rows"].as_u64().unwrap(), removed["proven"].as_bool().unwrap())
    };
    let found = verify().await;
    assert_eq!((&found["rows"], &found["missing"]), (&json!(0), &json!(3)));
    assert_eq!(found["behind"].as_array().unwrap().len(), 1, "its node may bring them");
    assert_eq!(remove().await, (0, false));
    let refused = admin.refused(Method::POST, "/v1/log/mend", Some(asked.clone())).await;
    assert!(refused.contains("may still bring rows"), "{refused}");
    for rows in [3, 0] {
        let filled = admin.post("/v1/log/home/fill", asked.clone()).await;
        assert_eq!((&filled["rows"], &filled["home"]), (&json!(rows), &json!("files")));
    }
    let found = verify().await;
    assert_eq!((&found["rows"], &found["differences"]), (&json!(3), &json!([])));
    assert_eq!((remove().await, remove().await), ((3, true), (0, true)));
    let number = 20_776;
    let left = admin.rows.lists().log_days("acme", number..=number).await.unwrap();
    assert!(left.iter().all(|day| day.rows == 0), "{left:?}");
    assert_eq!(verify().await, found);
    let rows = admin.get("/v1/log?account=acme").await["rows"].clone();
    assert_eq!(rows.as_array().unwrap().len(), 3);
    assert!(admin.audit().contains("log.remove"));
}

#[tokio::test]
async fn rows_that_a_journal_may_yet_bring_are_not_brought_from_the_store() {
    let admin = moving(0).await;
    let asked = json!({ "account": "acme", "day": "2026-11-21" });
    assert_eq!(admin.post("/v1/log/home/fill", asked).await["rows"], 0);
}

#[tokio::test]
async fn a_store_that_is_the_home_gets_no_rows_from_elsewhere_and_none_are_removed_there() {
    let admin = Fixture::new().await;
    let homes = admin.get("/v1/log/home").await;
    assert_eq!((&homes["home"], &homes["former"]), (&json!("store"), &json!(null)));
    let asked = json!({ "account": "a", "day": "2026-11-21" });
    for (path, why) in [
        ("/v1/log/home/fill", "the log backend is the store"),
        ("/v1/log/former/remove", "`[log] former_home` is not the store"),
    ] {
        let refused = admin.refused(Method::POST, path, Some(asked.clone())).await;
        assert!(refused.contains(why), "{refused}");
    }
}
