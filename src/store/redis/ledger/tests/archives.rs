//! Accounts of a Redis in a backup, and accounts of a backup in a Redis.

use std::collections::BTreeMap;

use tokio::sync::mpsc;

use super::*;
use crate::{
    domain::keys::thresholds::Thresholds,
    domain::ledger::{
        AccountTerms, OperationId, ProviderState, Reset,
        daily_sums::{DailySum, Subject, SumsOf},
        tag::Tag,
    },
    store::{
        archive::{Archive, Item, file},
        embedded::ledger::EmbeddedLedger,
        ledger::contract::{START_MS, limit, suspend},
    },
};

/// All items of an archive, in one order whatever the engine.
async fn items(archive: &dyn Archive) -> Vec<Item> {
    let (to, mut from) = mpsc::channel(16);
    let taking = async {
        let mut items = Vec::new();
        while let Some(item) = from.recv().await {
            items.push(item);
        }
        items
    };
    let (dumped, mut items) = tokio::join!(archive.dump(to), taking);
    dumped.unwrap();
    // A stable sort: rows stay in their order.
    items.sort_by_key(|item| match item {
        Item::Account { id, .. } => (0, id.clone(), String::new()),
        Item::AccountKey { account, id, .. } => (1, account.clone(), id.as_str().to_owned()),
        Item::Trimmed { account, day, .. } => (2, account.clone(), format!("{day}")),
        Item::TrimmedSum {
            account,
            day,
            subject,
            model,
            ..
        } => (3, account.clone(), format!("{day} {subject} {model}")),
        Item::Row { row } => (4, row.account.to_string(), row.time_ms.to_string()),
        Item::Key { .. } | Item::KeyGone { .. } | Item::Stability { .. } => (5, String::new(), String::new()),
    });
    items
}

/// The daily sums of the days of the tests.
async fn sums(ledger: &dyn LedgerStore) -> Vec<DailySum> {
    let day = START_MS / 86_400_000;
    let mut sums = Vec::new();
    for of in [SumsOf::One(Subject::Account), SumsOf::Keys, SumsOf::Tags] {
        sums.extend(ledger.sums("acme", day - 2..=day, &of).await.unwrap());
    }
    sums
}

/// By way of a backup's file.
async fn copy(from: &dyn Archive, to: &dyn Archive) {
    let header = file::Header {
        weir_backup: file::FORMAT,
        time: String::new(),
        engine: String::new(),
        generation: None,
    };
    let (sender, mut pieces) = mpsc::channel(4);
    let taking = async {
        let mut bytes = Vec::new();
        while let Some(piece) = pieces.recv().await {
            bytes.extend(piece);
        }
        bytes
    };
    let (encoded, bytes) = tokio::join!(file::encode(from, &header, sender), taking);
    encoded.unwrap();
    file::check(&*bytes).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("backup");
    std::fs::write(&path, bytes).unwrap();
    let mut all = file::Items::open(&path).unwrap();
    loop {
        let batch = all.next_batch(500).unwrap();
        if batch.is_empty() {
            return;
        }
        to.load(&batch).await.unwrap();
    }
}

fn terms() -> AccountTerms {
    AccountTerms {
        low_balance: Some(nanos(7)),
        provider_state: ProviderState::Any,
        notify: Thresholds::of([50, 100]).ok(),
        rates: Rates {
            rpm: Some(100_000),
            tpm: Some(1_000_000),
            concurrency: None,
        },
    }
}

/// Two accounts with terms, keys and more rows than one script takes.
async fn fill(ledger: &dyn LedgerStore) {
    let charge = |number: u64| {
        let day = i64::try_from(number % 3).unwrap() * 86_400_000;
        let (at_ms, cost) = (START_MS - day, nanos(1));
        let mut row = row("acme", 1, &format!("r{number}"), at_ms, cost);
        row.tags.extend(Tag::parse(&format!("team={}", number % 7)));
        Change::Settle(Box::new(Settlement {
            lease: None,
            request: row.request_id.clone(),
            key: row.key_id.clone(),
            at_ms,
            tokens_estimated: 0,
            tokens_used: 0,
            cost,
            row: Some(row.into()),
        }))
    };
    ledger
        .apply(&node(1), "acme", &steps(1, [open_with(1_000_000)]), 0)
        .await
        .unwrap();
    limit(ledger, "acme", terms()).await;
    for hundred in 0..5 {
        let changes = (hundred * 100..).take(100).map(charge);
        let first = 2 + hundred * 100;
        ledger
            .apply(&node(1), "acme", &steps(first, changes), first << 40)
            .await
            .unwrap();
    }
    let once = |number: i64| Change::Credit {
        amount: nanos(number),
        at: 0,
        operation: OperationId::parse(&format!("order-{number}")),
    };
    let remembered = steps(502, (1..4).map(once));
    ledger.apply(&node(1), "acme", &remembered, 0).await.unwrap();
    ledger
        .apply(&node(2), "other", &steps(1, [open_with(-5)]), 0)
        .await
        .unwrap();
    suspend(ledger, "other", true).await;
    let mut record = record(2);
    record.terms = KeyTerms {
        quota: Some(nanos(50)),
        reset: Reset::Weekly,
        rates: Rates {
            rpm: Some(60),
            tpm: None,
            concurrency: Some(4),
        },
        ..KeyTerms::default()
    };
    record.expires_at = Some(i64::MAX / 10_000);
    let ask = Admit {
        node: node(1),
        request: "asked".into(),
        key: Arc::new(record),
        estimate: nanos(3),
        tokens: 10,
        ended_key: 0,
        ended_account: 0,
    };
    assert!(matches!(ledger.admit(&ask).await.unwrap(), AdmitReply::Granted(_)));
}

#[tokio::test(flavor = "multi_thread")]
async fn accounts_go_through_a_backup_from_redis_to_redis() {
    let Some((_server, clock, from)) = start().await else {
        return;
    };
    fill(&*from.ledger).await;
    let before = items(&*from.ledger).await;
    assert_eq!(before.len(), 2 + 2 + 500);

    let server = TestServer::start().await.unwrap();
    let to = join(&server, &clock).await;
    assert!(Archive::is_empty(&*to.ledger).await.unwrap());
    copy(&*from.ledger, &*to.ledger).await;
    assert!(!Archive::is_empty(&*to.ledger).await.unwrap());
    // No account is there before all of it is.
    assert_eq!(to.ledger.account("acme").await.unwrap(), None);
    let word = to.joined.store.known_generation().await.unwrap().unwrap();
    to.ledger.restored(Some(&word)).await.unwrap();

    assert_eq!(items(&*to.ledger).await, before);
    let reached = to.ledger.summed("acme").await;
    assert_eq!(reached, Ok(BTreeMap::from([(node(1), 402 << 40)])));
    let summed = sums(&*to.ledger).await;
    assert_eq!((summed.len(), summed), (3 * (1 + 1 + 7), sums(&*from.ledger).await));
    let state: Vec<String> = server.ask(&["HMGET", "{weir:a:acme}:state", "gen", "created"]).await;
    assert_eq!(state, [word, "1".to_owned()]);
    let ttl: i64 = server.ask(&["TTL", "{weir:a:acme}:spent:all"]).await;
    assert_eq!(ttl, -1, "what a key has spent in all is kept for good");
}

#[tokio::test(flavor = "multi_thread")]
async fn accounts_go_through_a_backup_from_a_file_to_redis() {
    let Some((server, clock, to)) = start().await else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let from = EmbeddedLedger::open(folder.path(), clock.source()).unwrap();
    fill(&from).await;
    copy(&from, &*to.ledger).await;
    to.ledger.restored(None).await.unwrap();
    assert_eq!(items(&*to.ledger).await, items(&from).await);
    assert_eq!(to.ledger.summed("acme").await, from.summed("acme").await);
    assert_eq!(sums(&*to.ledger).await, sums(&from).await);
    for account in ["acme", "other"] {
        let view = async |ledger: &dyn LedgerStore| ledger.account(account).await.unwrap().unwrap();
        let (mut here, there) = (view(&from).await, view(&*to.ledger).await);
        // Holds end with their node's lease, they are in no backup.
        (here.held, here.running) = (nanos(0), 0);
        assert_eq!(here, there);
    }
    let next = [settled("after", START_MS, 1)];
    assert_eq!(
        to.ledger.apply(&node(1), "acme", &steps(505, next), 0).await.unwrap(),
        505
    );
    let known = OperationId::parse("order-3").unwrap();
    assert_eq!(to.ledger.operation("acme", &known).await, Ok(Some(nanos(3))));
    let generation: String = server.ask(&["HGET", "{weir:a:acme}:state", "gen"]).await;
    assert!(!generation.is_empty());
}

/// Two days of the three have left, and one of them has got rows since.
async fn trim(ledger: &dyn LedgerStore) {
    let day = START_MS / 86_400_000;
    let standing = ledger.log_days("acme", day - 2..=day - 1).await.unwrap();
    for seen in &standing {
        assert_eq!(ledger.trim("acme", seen).await, Ok(true));
    }
    let mut late = row("acme", 1, "late", START_MS - 86_400_000, nanos(1));
    late.tags.extend(Tag::parse("team=late"));
    late.tags.extend(Tag::parse("team=1"));
    let late = Change::Settle(Box::new(Settlement::of(late, 0)));
    ledger.apply(&node(1), "acme", &steps(505, [late]), 0).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_have_left_are_in_a_backup_as_their_sums() {
    let Some((_server, clock, redis)) = start().await else {
        return;
    };
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let embedded = |folder: &tempfile::TempDir| EmbeddedLedger::open(folder.path(), clock.source()).unwrap();
    let file = embedded(&folders[0]);
    for ledger in [&*redis.ledger as &dyn LedgerStore, &file as &dyn LedgerStore] {
        fill(ledger).await;
        trim(ledger).await;
    }
    let (expected, summed) = (items(&file).await, sums(&file).await);
    let rows = expected.iter().filter(|item| matches!(item, Item::Row { .. })).count();
    assert_eq!(rows, 167 + 1, "those of a day, and the late one");
    let days = START_MS / 86_400_000 - 2..=START_MS / 86_400_000;
    let standing = file.log_days("acme", days.clone()).await;
    assert_eq!(items(&*redis.ledger).await, expected);

    let server = TestServer::start().await.unwrap();
    let other = join(&server, &clock).await;
    copy(&file, &*other.ledger).await;
    other.ledger.restored(None).await.unwrap();
    let restored = embedded(&folders[1]);
    copy(&*redis.ledger, &restored).await;
    drop(restored);
    let restored = embedded(&folders[1]);
    for (ledger, archive) in [
        (&*other.ledger as &dyn LedgerStore, &*other.ledger as &dyn Archive),
        (&restored as &dyn LedgerStore, &restored as &dyn Archive),
    ] {
        assert_eq!(items(archive).await, expected);
        assert_eq!(sums(ledger).await, summed);
        assert_eq!(ledger.log_days("acme", days.clone()).await, standing);
        // It goes on where it stood.
        let next = row("acme", 1, "next", START_MS - 86_400_000, nanos(1));
        let next = [Change::Settle(Box::new(Settlement::of(next, 0)))];
        ledger.apply(&node(1), "acme", &steps(506, next), 0).await.unwrap();
        let rows = ledger.rows("acme", START_MS / 86_400_000 - 1, 0, 10).await.unwrap();
        let names: Vec<&str> = rows.iter().map(|row| row.request_id.as_str()).collect();
        assert_eq!(names, ["late", "next"]);
    }
    assert_eq!(sums(&*other.ledger).await, sums(&restored).await);
}
