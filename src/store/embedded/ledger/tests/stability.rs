//! Tests of the hourly buckets in the ledger's file.

use std::path::Path;

use tokio::sync::mpsc;

use crate::edges::clock;
use crate::store::archive::{Archive, ArchiveItem};
use crate::store::embedded::ledger::*;
use crate::store::ledger::contract::node;
use crate::store::ledger::stability_contract::{Fixture, share, stability_suite, this_hour};

fn opened(folder: &Path) -> EmbeddedLedger {
    EmbeddedLedger::open(folder, Arc::new(clock::unix_millis)).unwrap()
}

async fn open() -> Option<Fixture> {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(opened(folder.path()));
    Some(Fixture {
        store,
        kept: Box::new(folder),
    })
}

stability_suite!(open);

#[tokio::test]
async fn what_was_told_is_there_again_at_the_next_start() {
    let folder = tempfile::tempdir().unwrap();
    let now = this_hour();
    let told = share(now, &[("a", 3)]);
    opened(folder.path())
        .put_shares(&node(1), std::slice::from_ref(&told))
        .await
        .unwrap();
    let again = opened(folder.path());
    assert_eq!(again.buckets(now, now).await.unwrap()[&now], told.bucket);
    assert!(!again.epochs.subscribe().has_changed().unwrap());
}

#[tokio::test]
async fn hours_are_removed_when_old_sums_are() {
    let folder = tempfile::tempdir().unwrap();
    let store = opened(folder.path());
    let now_ms = clock::unix_millis();
    let now = Hour::from_unix_ms(now_ms);
    let (kept, gone) = (now.plus(-24 * 180), now.plus(-24 * 181 - 1));
    for hour in [now, kept, gone] {
        store.put_shares(&node(1), &[share(hour, &[("a", 1)])]).await.unwrap();
    }
    // As on the days before, half a day apart.
    for half_days in (0..=4).rev() {
        let books = store.books();
        let at_ms = now_ms - half_days * crate::domain::ledger::daily_sums::RUN_INTERVAL_MS;
        blocking(move || books.remove_old(at_ms)).await.unwrap();
    }
    for (hour, is_there) in [(now, true), (kept, true), (gone, false)] {
        assert_eq!(!store.buckets(hour, hour).await.unwrap().is_empty(), is_there);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hours_go_through_a_backup() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (from, to) = (opened(one.path()), opened(two.path()));
    let now = this_hour();
    from.put_shares(
        &node(1),
        &[share(now, &[("a/b:c", 3)]), share(now.plus(-30), &[("d", u64::MAX)])],
    )
    .await
    .unwrap();
    from.put_shares(&node(2), &[share(now, &[("a/b:c", 4)])]).await.unwrap();
    let (sender, mut items) = mpsc::channel::<ArchiveItem>(16);
    from.dump(sender).await.unwrap();
    let mut all = Vec::new();
    while let Some(item) = items.recv().await {
        let line = serde_json::to_vec(&item).unwrap();
        all.push(serde_json::from_slice(&line).unwrap());
    }
    assert_eq!(all.len(), 3);
    to.load(&all).await.unwrap();
    let (first, last) = (now.plus(-30), now);
    assert_eq!(
        to.buckets(first, last).await.unwrap(),
        from.buckets(first, last).await.unwrap()
    );
    // A node goes on from where it was.
    to.put_shares(&node(1), &[share(now, &[("a/b:c", 2)])]).await.unwrap();
    assert_eq!(
        to.buckets(now, now).await.unwrap(),
        from.buckets(now, now).await.unwrap()
    );
}
