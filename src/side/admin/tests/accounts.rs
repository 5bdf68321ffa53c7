//! Accounts and the limits of keys, over the reference model.

use std::sync::Arc;

use http::Method;
use serde_json::{Value, json};

use super::{Fixture, text};
use crate::{
    domain::{
        keys::KeyId,
        ledger::{AccountChange, NodeId, Record, Settlement, Step},
        money::NanoUsd,
    },
    money::account_changes::direct::InjectedFault,
};

#[tokio::test]
async fn an_account_is_made_credited_corrected_limited_and_suspended() {
    let admin = Fixture::new().await;
    let made = admin
        .post(
            "/v1/accounts",
            json!({ "id": "acme", "balance_usd": "12.5", "low_balance_usd": "1", "rpm": 60 }),
        )
        .await;
    assert_eq!(
        (&made["applied"], &made["balance_usd"]),
        (&json!(true), &json!("12.50"))
    );
    assert_eq!((&made["rpm"], &made["tpm"]), (&json!(60), &Value::Null));
    let credited = admin
        .post("/v1/accounts/acme/credit", json!({ "usd": "0.000000001" }))
        .await;
    assert_eq!(credited["balance_nano_usd"], 12_500_000_001_i64);
    let corrected = admin
        .post(
            "/v1/accounts/acme/adjust",
            json!({ "usd": "-11.5", "reason": "a refund" }),
        )
        .await;
    assert_eq!(corrected["balance_usd"], "1.000000001");
    assert_eq!(corrected["balance_is_low"], false);
    let change = json!({ "low_balance_usd": "2", "tpm": 5000 });
    let limited = admin
        .client
        .call(Method::PATCH, "/v1/accounts/acme", Some(&change))
        .await
        .unwrap();
    assert_eq!(
        (&limited["rpm"], &limited["tpm"], &limited["balance_is_low"]),
        (&json!(60), &json!(5000), &json!(true)),
        "what is not named stays"
    );
    let suspended = admin.post("/v1/accounts/acme/suspend", json!({})).await;
    assert_eq!(suspended["state"], "suspended");
    let resumed = admin.post("/v1/accounts/acme/resume", json!({})).await;
    assert_eq!(resumed["state"], "active");

    let shown = admin.get("/v1/accounts/acme").await;
    assert!(shown.get("applied").is_none());
    let audit = admin.audit();
    for operation in ["create", "credit", "adjust", "update", "suspend", "resume"] {
        assert!(audit.contains(&format!("\"account.{operation}\"")), "{operation}");
    }
    assert!(audit.contains("a refund") && audit.contains("\"account\":\"acme\""));
    let noted = admin.changes.journal().into_iter().filter_map(|record| match record {
        Record::Step { account, step } if account == "acme" => Some(("step", step.seq)),
        Record::Account { account, record } if account == "acme" => Some(("record", record.revision)),
        _ => None,
    });
    let expected = [
        ("step", 1),
        ("record", 1),
        ("step", 2),
        ("step", 3),
        ("record", 2),
        ("record", 3),
        ("record", 4),
    ];
    assert_eq!(noted.collect::<Vec<_>>(), expected, "each is in the journal");
}

#[tokio::test]
async fn what_an_account_cannot_be_is_said() {
    let admin = Fixture::new().await;
    admin.post("/v1/accounts/a/credit", json!({ "usd": "9000000" })).await;
    let before = admin.audit();
    let cases = [
        ("/v1/accounts", json!({ "id": "a" }), "weir account credit --id a"),
        ("/v1/accounts", json!({}), "id: the field is missing"),
        ("/v1/accounts", json!({ "id": "x y" }), "id: give 1 to 64"),
        ("/v1/accounts", json!({ "id": "." }), "neither `.` nor `-`"),
        ("/v1/accounts", json!({ "id": ".." }), "neither `.` nor `-`"),
        ("/v1/accounts", json!({ "id": "-x" }), "neither `.` nor `-`"),
        (
            "/v1/accounts",
            json!({ "id": "b", "balance_usd": "-1" }),
            "zero or more",
        ),
        ("/v1/accounts", json!({ "id": "b", "balance_usd": 5 }), "as a string"),
        (
            "/v1/accounts",
            json!({ "id": "b", "balance_us": "5" }),
            "did you mean `balance_usd`?",
        ),
        ("/v1/accounts", json!({ "id": "b", "concurrency": 0 }), "suspend"),
        (
            "/v1/accounts/b/credit",
            json!({ "usd": "1" }),
            "account `b` does not exist",
        ),
        ("/v1/accounts/b/suspend", json!({}), "account `b` does not exist"),
        ("/v1/accounts/a/credit", json!({ "usd": "-1" }), "weir account adjust"),
        ("/v1/accounts/a/credit", json!({ "usd": "0" }), "more than zero"),
        ("/v1/accounts/a/credit", json!({ "usd": "9000" }), "the maximum is"),
        (
            "/v1/accounts/a/credit",
            json!({ "usd": "1", "reason": "x" }),
            "`reason` is unknown",
        ),
        ("/v1/accounts/a/adjust", json!({ "usd": "1" }), "reason:"),
        (
            "/v1/accounts/a/adjust",
            json!({ "usd": "1", "reason": "\u{200b} " }),
            "reason: give 1 to 256 characters, one of them visible",
        ),
        (
            "/v1/accounts/a/adjust",
            json!({ "usd": "0", "reason": "x" }),
            "must not be zero",
        ),
    ];
    for (path, body, expected) in cases {
        let message = admin.refused(Method::POST, path, Some(body)).await;
        assert!(message.contains(expected), "{path}: {message}");
    }
    for (body, expected) in [
        (json!({}), "nothing to change"),
        (json!({ "balance_usd": "5" }), "is unknown"),
    ] {
        let message = admin.refused(Method::PATCH, "/v1/accounts/a", Some(body)).await;
        assert!(message.contains(expected), "{message}");
    }
    assert_eq!(admin.audit(), before, "a refused change leaves no record");
    assert_eq!(admin.get("/v1/accounts/a").await["balance_usd"], "9000000.00");
}

#[tokio::test]
async fn the_same_operation_counts_once_and_another_amount_is_refused() {
    let admin = Fixture::new().await;
    let credit = |usd: &str| json!({ "usd": usd, "operation_id": "order-7" });
    let path = "/v1/accounts/a/credit";
    let first = admin.post(path, credit("5")).await;
    assert_eq!(
        (&first["operation_id"], &first["repeated"], &first["balance_usd"]),
        (&json!("order-7"), &json!(false), &json!("5.00"))
    );
    let audit = admin.audit();
    let again = admin.post(path, credit("5.0")).await;
    assert_eq!(
        (&again["repeated"], &again["applied"], &again["balance_usd"]),
        (&json!(true), &json!(true), &json!("5.00"))
    );
    let message = admin.refused(Method::POST, path, Some(credit("6"))).await;
    assert!(message.contains("order-7") && message.contains("5.00 USD"), "{message}");
    assert_eq!(admin.audit(), audit, "nothing was changed");
    let adjust = json!({ "usd": "-2", "reason": "r", "operation_id": "order-8" });
    for _ in 0..2 {
        let adjusted = admin.post("/v1/accounts/a/adjust", adjust.clone()).await;
        assert_eq!(adjusted["balance_usd"], "3.00");
    }
    let message = admin
        .refused(Method::POST, path, Some(json!({ "usd": "1", "operation_id": "a b" })))
        .await;
    assert!(message.contains("--operation-id: give 1 to 64"), "{message}");
}

#[tokio::test]
async fn an_operation_that_another_node_makes_meanwhile_counts_once() {
    let admin = Fixture::new().await;
    let operation = crate::domain::ledger::OperationId::parse("order-7");
    admin.changes.fail(Some(InjectedFault::StoreAway));
    let credit = json!({ "usd": "5", "operation_id": "order-7" });
    let recorded = admin.post("/v1/accounts/a/credit", credit.clone()).await;
    assert_eq!(recorded["applied"], false);
    // The operator asks another node, whose store answers; then this node's journal is sent.
    let amount = NanoUsd::parse_usd("5").unwrap();
    let change = AccountChange::Credit {
        amount,
        at: 0,
        operation,
    };
    let node = NodeId::generate(&mut rand::rng());
    let step = Step { seq: 1, change };
    admin.ledger.apply(&node, "a", &[step], 0).await.unwrap();
    admin.changes.fail(None);
    admin.changes.send("a").await;
    let again = admin.post("/v1/accounts/a/credit", credit).await;
    assert_eq!(
        (&again["repeated"], &again["balance_usd"]),
        (&json!(true), &json!("5.00"))
    );
}

#[tokio::test]
async fn an_account_that_is_made_again_by_the_same_operation_is_made_once() {
    let admin = Fixture::new().await;
    let made = json!({ "id": "b", "balance_usd": "5", "rpm": 7, "operation_id": "o" });
    for _ in 0..2 {
        let account = admin.post("/v1/accounts", made.clone()).await;
        assert_eq!((&account["balance_usd"], &account["rpm"]), (&json!("5.00"), &json!(7)));
    }
    for other in [
        json!({ "id": "b", "balance_usd": "6", "operation_id": "o" }),
        json!({ "id": "b", "balance_usd": "5", "operation_id": "p" }),
        json!({ "id": "b", "balance_usd": "5" }),
    ] {
        let message = admin.refused(Method::POST, "/v1/accounts", Some(other)).await;
        assert!(message.contains("weir account credit --id b"), "{message}");
    }
    assert_eq!(admin.get("/v1/accounts/b").await["balance_usd"], "5.00");
}

#[tokio::test]
async fn a_change_that_the_store_has_not_applied_yet_says_so() {
    let admin = Fixture::new().await;
    admin.changes.fail(Some(InjectedFault::StoreAway));
    let credited = admin.post("/v1/accounts/a/credit", json!({ "usd": "5" })).await;
    assert_eq!(credited, json!({ "id": "a", "applied": false }));
    admin.changes.fail(Some(InjectedFault::DiskFull));
    let message = admin
        .refused(Method::POST, "/v1/accounts/a/credit", Some(json!({ "usd": "5" })))
        .await;
    assert!(
        message.contains("nothing was changed: cannot write the journal"),
        "{message}"
    );
    let body = json!({ "name": "n", "account": "a" });
    let message = admin.refused(Method::POST, "/v1/keys", Some(body)).await;
    assert!(
        message.contains("nothing was changed: cannot write the journal"),
        "{message}"
    );
    assert!(admin.store.list(None, 10).await.unwrap().is_empty());
}

#[tokio::test]
async fn what_another_node_changes_meanwhile_stays() {
    let admin = Fixture::new().await;
    let ledger = Arc::clone(&admin.ledger);
    let other = tokio::spawn(async move {
        for tpm in 1..=200 {
            loop {
                let from = ledger.account("a").await.unwrap().unwrap().record;
                let mut terms = from.terms;
                terms.rates.tpm = Some(tpm);
                if ledger
                    .set_terms("a", &from, &from.with_terms(terms, from.suspended))
                    .await
                    .unwrap()
                {
                    break;
                }
            }
            tokio::task::yield_now().await;
        }
    });
    for rpm in 1..=20 {
        let limits = json!({ "rpm": rpm });
        let changed = admin.client.call(Method::PATCH, "/v1/accounts/a", Some(&limits)).await;
        assert_eq!(changed.unwrap()["rpm"], json!(rpm));
        let suspended = admin.post("/v1/accounts/a/suspend", json!({})).await;
        assert_eq!(
            (&suspended["state"], &suspended["rpm"]),
            (&json!("suspended"), &json!(rpm))
        );
    }
    other.await.unwrap();
    let account = admin.get("/v1/accounts/a").await;
    assert_eq!((&account["rpm"], &account["tpm"]), (&json!(20), &json!(200)));
    assert_eq!(account["state"], "suspended");
}

#[tokio::test]
async fn a_change_that_the_journal_does_not_take_is_said_and_can_be_made_again() {
    let admin = Fixture::new().await;
    admin.changes.fail(Some(InjectedFault::DiskFull));
    let message = admin.refused(Method::POST, "/v1/accounts/a/suspend", None).await;
    assert!(message.contains("could undo it"), "{message}");
    admin.changes.fail(None);
    admin.post("/v1/accounts/a/suspend", json!({})).await;
    let journal = admin.changes.journal();
    let last = journal.last().unwrap();
    assert!(
        matches!(last, Record::Account { record, .. } if record.suspended && record.revision == 1),
        "{last:?}"
    );
}

#[tokio::test]
async fn accounts_are_listed_by_name_and_paged() {
    let admin = Fixture::new().await;
    for id in ["c", "b.1", "b"] {
        admin.post("/v1/accounts", json!({ "id": id })).await;
    }
    let first = admin.get("/v1/accounts?limit=3").await;
    let second = admin.get("/v1/accounts?limit=3&after=b.1").await;
    let ids = |page: &Value| {
        let accounts = page["accounts"].as_array().unwrap();
        accounts.iter().map(|account| text(account, "id")).collect::<Vec<_>>()
    };
    assert_eq!(
        (ids(&first), text(&first, "next")),
        (vec!["a".into(), "b".into(), "b.1".into()], "b.1".into())
    );
    assert_eq!((ids(&second), &second["next"]), (vec!["c".to_owned()], &Value::Null));
}

#[tokio::test]
async fn a_key_shows_its_quota_and_what_it_has_spent_in_the_period() {
    let admin = Fixture::new().await;
    let made = admin
        .create(
            json!({ "name": "n", "account": "a", "quota_usd": "0", "reset": "daily", "rpm": 5, "on_exhausted": "cut" }),
        )
        .await;
    assert_eq!(
        (
            &made["quota_usd"],
            &made["quota_nano_usd"],
            &made["spent_nano_usd"],
            &made["held_usd"]
        ),
        (&json!("0.00"), &json!(0), &json!(0), &json!("0.00")),
        "zero is a quota"
    );
    assert!(text(&made, "resets_at").ends_with("T00:00:00Z"));
    let id = text(&made, "id");
    let settlement = Settlement {
        lease: None,
        request: "r".into(),
        key: KeyId::parse(&id).unwrap(),
        at_ms: crate::store::ledger::contract::START_MS,
        tokens_estimated: 0,
        tokens_used: 0,
        cost: NanoUsd::from_nanos(7),
        row: None,
    };
    let step = Step {
        seq: 1,
        change: AccountChange::Settle(Box::new(settlement)),
    };
    let node = NodeId::generate(&mut rand::rng());
    admin.ledger.apply(&node, "a", &[step], 0).await.unwrap();
    let path = format!("/v1/keys/{id}");
    let shown = admin.get(&path).await;
    assert_eq!(
        (&shown["spent_nano_usd"], &shown["spent_usd"]),
        (&json!(7), &json!("0.000000007"))
    );
    assert_eq!(shown["finish_factor"], json!(2));
    let change = json!({ "quota_usd": null, "reset": "none", "finish_factor": 5 });
    let changed = admin.client.call(Method::PATCH, &path, Some(&change)).await.unwrap();
    assert_eq!(
        (&changed["quota_usd"], &changed["resets_at"], &changed["spent_nano_usd"]),
        (&Value::Null, &Value::Null, &json!(7))
    );
    assert_eq!(
        (&changed["rpm"], &changed["on_exhausted"], &changed["finish_factor"]),
        (&json!(5), &json!("cut"), &json!(5)),
        "what is not named stays"
    );
    let listed = admin.get("/v1/keys").await;
    assert_eq!(listed["keys"][0], changed);
}
