//! Accounts of a Redis in a backup, and accounts of a backup in a Redis.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering},
};

use tokio::sync::mpsc;

use super::*;
use crate::{
    domain::{
        keys::terms::Thresholds,
        ledger::{
            AccountTerms, OperationId, ProviderState, QuotaReset,
            daily_sums::{DailySum, SumSelector, SumSubject},
            ids::Tag,
            period::Period,
        },
    },
    store::{
        archive::{self, Archive, ArchiveItem},
        embedded::ledger::EmbeddedLedger,
        ledger::contract::{START_MS, limit, suspend},
    },
};

const DAY_MS: i64 = 86_400_000;

/// All items of an archive, in one order whatever the engine.
async fn items(archive: &dyn Archive) -> Vec<ArchiveItem> {
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
    // A stable sort: rows stay in order.
    items.sort_by_key(|item| match item {
        ArchiveItem::Account { id, .. } => (0, id.clone(), String::new()),
        ArchiveItem::AccountKey { account, id, .. } => (1, account.clone(), id.as_str().to_owned()),
        ArchiveItem::DaySums {
            account, day, subject, ..
        } => (2, account.clone(), format!("{day} {subject}")),
        ArchiveItem::Row { row } => (3, row.account.to_string(), row.time_ms.to_string()),
        ArchiveItem::Key { .. } | ArchiveItem::KeyGone { .. } | ArchiveItem::Stability { .. } => {
            (4, String::new(), String::new())
        }
    });
    items
}

/// The daily sums of the days of the tests.
async fn sums(ledger: &dyn LedgerStore) -> Vec<DailySum> {
    let day = START_MS / DAY_MS;
    let mut sums = Vec::new();
    for of in [
        SumSelector::One(SumSubject::Account),
        SumSelector::Keys,
        SumSelector::Tags,
    ] {
        sums.extend(ledger.sums("acme", day - 2..=day, &of).await.unwrap());
    }
    sums
}

/// By way of a backup's file.
async fn copy(from: &dyn Archive, to: &dyn Archive) {
    let header = archive::BackupHeader {
        weir_backup: archive::FORMAT,
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
    let (encoded, bytes) = tokio::join!(archive::send_backup(from, &header, sender), taking);
    encoded.unwrap();
    archive::check(&*bytes).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("backup");
    std::fs::write(&path, bytes).unwrap();
    let mut all = archive::BackupItems::open(&path).unwrap();
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
        rates: RateLimits {
            rpm: Some(100_000),
            tpm: Some(1_000_000),
            concurrency: None,
        },
    }
}

/// Two accounts with terms, keys and more rows than one script takes.
async fn fill(ledger: &dyn LedgerStore) {
    let charge = |number: u64| {
        let day = i64::try_from(number % 3).unwrap() * DAY_MS;
        let (at_ms, cost) = (START_MS - day, nanos(1));
        let mut row = row("acme", 1, &format!("r{number}"), at_ms, cost);
        row.tags.extend(Tag::parse(&format!("team={}", number % 7)));
        AccountChange::Settle(Box::new(Settlement {
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
    let once = |number: i64| AccountChange::Credit {
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
        reset: QuotaReset::Weekly,
        rates: RateLimits {
            rpm: Some(60),
            tpm: None,
            concurrency: Some(4),
        },
        ..KeyTerms::default()
    };
    record.expires_at = Some(i64::MAX / 10_000);
    let ask = AdmitCall {
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
    // The sums of each of three days are those of the account, its key and seven tags.
    assert_eq!(before.len(), 2 + 2 + 3 * 9 + 500);

    let server = TestServer::start().await.unwrap();
    let to = join(&server, &clock).await;
    assert!(Archive::is_empty(&*to.ledger).await.unwrap());
    copy(&*from.ledger, &*to.ledger).await;
    assert!(!Archive::is_empty(&*to.ledger).await.unwrap());
    // No account is there before all of it is.
    assert_eq!(to.ledger.account("acme").await.unwrap(), None);
    let word = to.joined.store.known_generation().await.unwrap().unwrap();
    to.ledger.finish_restore(Some(&word)).await.unwrap();

    assert_eq!(items(&*to.ledger).await, before);
    let reached = to.ledger.summed_up_to("acme").await;
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
    to.ledger.finish_restore(None).await.unwrap();
    assert_eq!(items(&*to.ledger).await, items(&from).await);
    assert_eq!(to.ledger.summed_up_to("acme").await, from.summed_up_to("acme").await);
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
    assert_eq!(to.ledger.operation_amount("acme", &known).await, Ok(Some(nanos(3))));
    let generation: String = server.ask(&["HGET", "{weir:a:acme}:state", "gen"]).await;
    assert!(!generation.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_a_backup_are_passed_over_where_none_are_kept() {
    let Some((_server, clock, from)) = start().await else {
        return;
    };
    fill(&*from.ledger).await;
    let mut expected = items(&*from.ledger).await;
    expected.retain(|item| !matches!(item, ArchiveItem::Row { .. }));
    let summed = sums(&*from.ledger).await;

    let server = TestServer::start().await.unwrap();
    let other = join(&server, &clock).await;
    let redis = without_rows::ledger(&other, &clock);
    copy(&*from.ledger, &redis).await;
    redis.finish_restore(None).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = || EmbeddedLedger::open(folder.path(), clock.source()).unwrap();
    copy(&*from.ledger, &file()).await;
    let file = file();
    for (ledger, archive) in [
        (&redis as &dyn LedgerStore, &redis as &dyn Archive),
        (&file as &dyn LedgerStore, &file as &dyn Archive),
    ] {
        assert_eq!(items(archive).await, expected);
        assert_eq!(sums(ledger).await, summed);
        // It goes on where it stood.
        let mut next = row("acme", 1, "next", START_MS - DAY_MS, nanos(1));
        next.tags
            .extend(["team=new", "team=1"].map(|tag| Tag::parse(tag).unwrap()));
        let next = [AccountChange::Settle(Box::new(Settlement::of(next, 0)))];
        ledger.apply(&node(1), "acme", &steps(505, next), 0).await.unwrap();
    }
    let after = sums(&redis).await;
    assert_eq!((after.len(), after), (summed.len() + 1, sums(&file).await));
}

/// What the items of `acme` say of its requests, each of which cost one: the balance that is spent, the key's counter, the sums of
/// the account, and the rows.
fn counted(items: &[ArchiveItem]) -> [u64; 4] {
    let (mut spent, mut of_key, mut rows) = (nanos(0), nanos(0), 0);
    let mut of_days = BTreeMap::new();
    for item in items {
        match item {
            ArchiveItem::Account { id, standing, .. } if id == "acme" => spent = standing.spent,
            ArchiveItem::AccountKey { id, state, .. } if *id == key_id(1) => of_key = state.spent[&Period::All],
            ArchiveItem::DaySums {
                day, subject, models, ..
            } if subject == "a" => {
                // What comes later stands in the place of what came before.
                of_days.insert(*day, models.values().map(|sums| sums.requests).sum::<u64>());
            }
            ArchiveItem::Row { .. } => rows += 1,
            _ => {}
        }
    }
    let cost = |amount: NanoUsd| amount.nanos().unsigned_abs();
    [cost(spent), cost(of_key), of_days.values().sum(), rows]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_that_is_taken_while_rows_come_is_of_one_moment() {
    // Rows of a day that is over: fewer than the times that an account is read.
    const LATE: u64 = 5;
    let Some((_server, _clock, first)) = start().await else {
        return;
    };
    let ledger = &first.ledger;
    fill(&**ledger).await;
    let (is_over, mut number) = (AtomicBool::new(false), 0);
    let settling = async {
        while !is_over.load(Ordering::Relaxed) {
            let is_late = number % 10 == 0 && number / 10 < LATE;
            let at_ms = START_MS - if is_late { 5 * DAY_MS } else { 0 };
            let more = steps(505 + number, [settled(&format!("more-{number}"), at_ms, 1)]);
            ledger.apply(&node(1), "acme", &more, 0).await.unwrap();
            number += 1;
        }
    };
    let dumping = async {
        let mut dumps = Vec::new();
        for _ in 0..20 {
            dumps.push(counted(&items(&**ledger).await));
        }
        is_over.store(true, Ordering::Relaxed);
        dumps
    };
    let ((), dumps) = tokio::join!(settling, dumping);
    for dump in &dumps {
        assert_eq!(*dump, [dump[0]; 4], "{dumps:?}");
    }
    assert!(dumps.is_sorted() && dumps[0] != dumps[19], "{dumps:?}");
    assert_eq!(counted(&items(&**ledger).await), [500 + number; 4]);
}
