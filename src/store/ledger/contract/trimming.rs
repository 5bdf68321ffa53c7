//! Rows that leave the store: what goes, what stays, and when nothing does.

use super::{Fixture, node, row};
use crate::domain::{
    ledger::{
        Change, LogDay, Settlement, Step,
        consumption::Row,
        daily_sums::{DailySums, Subject, SumsOf},
        tag::Tag,
    },
    money::NanoUsd,
};
use crate::store::{
    StoreError,
    ledger::{LedgerStore, PUT_ROWS_MAX},
};

const DAY_MS: i64 = 24 * 3600 * 1000;

fn settled(rows: &[Row], first: u64) -> Vec<Step> {
    let changes = rows
        .iter()
        .map(|row| Change::Settle(Box::new(Settlement::of(row.clone(), 0))));
    changes.zip(first..).map(|(change, seq)| Step { seq, change }).collect()
}

fn some(requests: std::ops::Range<u64>, time_ms: i64) -> Vec<Row> {
    let of = |request: u64| {
        let key = u8::try_from(request % 3).unwrap();
        let mut row = row("acme", key, &format!("r{request}"), time_ms, NanoUsd::from_nanos(7));
        row.usage.input_uncached = request;
        row.tags.extend(Tag::parse(&format!("team={}", request % 2)));
        row
    };
    requests.map(of).collect()
}

/// All sums of a day.
async fn sums(store: &dyn LedgerStore, day: i64) -> DailySums {
    let mut sums = DailySums::default();
    for of in [SumsOf::One(Subject::Account), SumsOf::Keys, SumsOf::Tags] {
        sums.extend(store.sums("acme", day..=day, &of).await.unwrap());
    }
    sums
}

pub(crate) async fn rows_that_have_left_are_gone_and_their_sums_stay(fixture: &Fixture) {
    let (store, now) = (&*fixture.store, fixture.clock.now_ms());
    let day = now / DAY_MS - 3;
    let (old, other) = (some(0..30, day * DAY_MS + 5), some(30..33, now));
    store.apply(&node(1), "acme", &settled(&old, 1), 0).await.unwrap();
    store.apply(&node(1), "acme", &settled(&other, 31), 0).await.unwrap();
    let seen = |day, rows, trimmed| LogDay { day, rows, trimmed };
    let today = now / DAY_MS;
    let standing = store.log_days("acme", day - 5..=today).await;
    assert_eq!(standing, Ok(vec![seen(day, 30, 0), seen(today, 3, 0)]));
    let (before, view) = (sums(store, day).await, store.account("acme").await);
    assert_eq!(before, DailySums::of_day(&old));

    assert_eq!(store.trim("acme", &seen(day, 30, 0)).await, Ok(true));
    assert_eq!(store.rows("acme", day, 0, 100).await, Ok(vec![]));
    assert_eq!(store.rows("acme", today, 0, 100).await, Ok(other));
    assert_eq!((sums(store, day).await, store.account("acme").await), (before, view));
    let standing = store.log_days("acme", day..=day).await;
    assert_eq!(standing, Ok(vec![seen(day, 0, 30)]));
    assert!(matches!(store.resum("acme", day).await, Err(StoreError::Busy(_))));
    assert_eq!(
        sums(store, day).await,
        DailySums::of_day(&old),
        "what cannot be told is left as it is"
    );

    // Rows that come late are there, are summed with the others, and leave as well.
    let late = some(33..45, day * DAY_MS + 9);
    for _ in 0..2 {
        store.apply(&node(1), "acme", &settled(&late, 34), 0).await.unwrap();
    }
    assert_eq!(store.rows("acme", day, 0, 100).await, Ok(late.clone()));
    assert_eq!(store.rows("acme", day, 5, 3).await, Ok(late[5..8].to_vec()));
    assert_eq!(sums(store, day).await, DailySums::of_day(old.iter().chain(&late)));
    assert_eq!(store.log_days("acme", day..=day).await, Ok(vec![seen(day, 12, 30)]));
    assert_eq!(store.trim("acme", &seen(day, 12, 30)).await, Ok(true));
    assert_eq!(store.log_days("acme", day..=day).await, Ok(vec![seen(day, 0, 42)]));
    assert_eq!(store.rows("acme", day, 0, 100).await, Ok(vec![]));
    assert_eq!(sums(store, day).await, DailySums::of_day(old.iter().chain(&late)));
}

pub(crate) async fn a_day_that_has_changed_does_not_leave(fixture: &Fixture) {
    let (store, now) = (&*fixture.store, fixture.clock.now_ms());
    let day = now / DAY_MS - 3;
    let rows = some(0..6, day * DAY_MS + 5);
    store.apply(&node(1), "acme", &settled(&rows[..5], 1), 0).await.unwrap();
    let seen = store.log_days("acme", day..=day).await.unwrap()[0];
    store.apply(&node(1), "acme", &settled(&rows[5..], 6), 0).await.unwrap();
    assert_eq!(store.trim("acme", &seen).await, Ok(false), "a row has come");
    assert_eq!(store.rows("acme", day, 0, 100).await, Ok(rows));
    let seen = store.log_days("acme", day..=day).await.unwrap()[0];
    assert_eq!(store.trim("acme", &seen).await, Ok(true));
    assert_eq!(store.trim("acme", &seen).await, Ok(false), "they have left already");
    // As many have come again as there were.
    let again = some(6..12, day * DAY_MS + 5);
    store.apply(&node(1), "acme", &settled(&again, 7), 0).await.unwrap();
    assert_eq!(store.trim("acme", &seen).await, Ok(false));
    assert_eq!(store.rows("acme", day, 0, 100).await, Ok(again));
    for (account, day) in [("beta", day), ("acme", day - 1)] {
        let unseen = LogDay {
            day,
            rows: 1,
            trimmed: 0,
        };
        assert_eq!(store.trim(account, &unseen).await, Ok(false));
        assert_eq!(store.log_days(account, day..=day).await, Ok(vec![]));
    }
}

pub(crate) async fn rows_that_were_lost_are_put_back_without_a_charge(fixture: &Fixture) {
    let (store, now) = (&*fixture.store, fixture.clock.now_ms());
    let day = now / DAY_MS - 2;
    let rows = some(0..9, day * DAY_MS + 5);
    assert_eq!(store.put_rows("acme", day, &rows).await, Ok(false), "of no account");
    assert_eq!(store.log_days("acme", day..=day).await, Ok(vec![]));
    store.apply(&node(1), "acme", &settled(&rows[..4], 1), 0).await.unwrap();
    let view = store.account("acme").await;
    assert_eq!(store.put_rows("acme", day, &rows[4..]).await, Ok(true));
    store.resum("acme", day).await.unwrap();
    assert_eq!(store.rows("acme", day, 0, 100).await, Ok(rows.clone()));
    assert_eq!(sums(store, day).await, DailySums::of_day(&rows));
    assert_eq!(store.account("acme").await, view, "nothing is charged");
    assert_eq!(store.watermark(&node(1), "acme").await, Ok(4));
    // A day that has lost all of them, and its sums: as many as one call puts back.
    let many = some(20..20 + PUT_ROWS_MAX as u64, (day - 1) * DAY_MS);
    assert_eq!(store.put_rows("acme", day - 1, &many).await, Ok(true));
    assert_eq!(sums(store, day - 1).await, DailySums::of_day(&many));
    let standing = store.log_days("acme", day - 1..=day).await.unwrap();
    assert_eq!(
        standing.iter().map(|day| day.rows).collect::<Vec<_>>(),
        [PUT_ROWS_MAX as u64, 9]
    );
    let next = some(9..10, day * DAY_MS + 6);
    store.apply(&node(1), "acme", &settled(&next, 5), 0).await.unwrap();
    assert_eq!(
        store.rows("acme", day, 9, 100).await,
        Ok(next),
        "the next one comes behind them"
    );
    // What has left for the log's home is not put back: the store cannot tell whether it is that.
    assert_eq!(store.trim("acme", &standing[0]).await, Ok(true));
    assert_eq!(
        store.put_rows("acme", day - 1, &some(23..24, (day - 1) * DAY_MS)).await,
        Ok(false)
    );
    assert_eq!(store.rows("acme", day - 1, 0, 100).await, Ok(vec![]));
}
