//! Tests of daily sums: which rows they include, for which subjects there are sums, and how they can be replaced.

use std::collections::BTreeMap;

use super::{Fixture, key_id, node, row};
use crate::domain::{
    keys::KeyId,
    ledger::{
        AccountChange, Settlement, Step,
        consumption::Row,
        daily_sums::{DailySum, DailySums, SumSelector, SumSubject, TAGS_A_DAY_MAX},
        ids::Tag,
    },
    money::NanoUsd,
};
use crate::store::ledger::{APPLY_STEPS_MAX, LedgerStore};

const DAY_MS: i64 = 24 * 3600 * 1000;

fn settled(rows: impl IntoIterator<Item = Row>, first: u64) -> Vec<Step> {
    let changes = rows
        .into_iter()
        .map(|row| AccountChange::Settle(Box::new(Settlement::of(row, 0))));
    changes.zip(first..).map(|(change, seq)| Step { seq, change }).collect()
}

fn tagged(mut row: Row, tags: &[&str]) -> Row {
    row.tags = tags.iter().map(|tag| Tag::parse(tag).unwrap()).collect();
    row
}

/// Returns all sums of an account on a day.
async fn all(store: &dyn LedgerStore, day: i64) -> Vec<DailySum> {
    let mut sums = Vec::new();
    for of in [
        SumSelector::One(SumSubject::Account),
        SumSelector::Keys,
        SumSelector::Tags,
    ] {
        sums.extend(store.sums("acme", day..=day, &of).await.unwrap());
    }
    sums
}

pub(crate) async fn what_was_used_is_summed_by_day_model_key_and_tag(fixture: &Fixture) {
    let (store, now) = (&fixture.store, fixture.clock.now_ms());
    let (today, cost) = (now / DAY_MS, NanoUsd::from_nanos(5));
    let mut failed = tagged(row("acme", 2, "r2", now, cost), &["team=a", "team=b"]);
    (failed.status, failed.model) = (502, "a;=|b".into());
    let rows = [
        tagged(row("acme", 1, "r1", now, cost), &["team=a", "session=1"]),
        failed,
        row("acme", 1, "r3", now, cost),
        row("acme", 1, "late", now + DAY_MS, cost),
    ];
    // If steps are sent again, their rows are included only once.
    for _ in 0..2 {
        assert_eq!(store.apply(&node(1), "acme", &settled(rows.clone(), 1), 0).await, Ok(4));
    }
    let expected = DailySums::of_day(&rows);
    let asked = async |of: SumSelector| {
        let days = today - 2..=today + 1;
        assert_eq!(
            store.sums("acme", days.clone(), &of).await,
            Ok(expected.select(&days, &of)),
            "{of:?}"
        );
    };
    for subject in [
        SumSubject::Account,
        SumSubject::Key(key_id(1)),
        SumSubject::Key(key_id(9)),
        SumSubject::OtherTags,
        SumSubject::Tag(Tag::parse("team=b").unwrap()),
        SumSubject::Tag(Tag::parse("session=1").unwrap()),
    ] {
        asked(SumSelector::One(subject)).await;
    }
    asked(SumSelector::Keys).await;
    asked(SumSelector::Tags).await;
    let whole = SumSelector::One(SumSubject::Account);
    let errors = store.sums("acme", today..=today, &whole).await.unwrap();
    let errors: Vec<_> = errors.iter().map(|sum| (sum.model.as_str(), sum.sums.errors)).collect();
    assert_eq!(errors, [("[]", 0), ("a;=|b", 1)]);
    for (account, day) in [("acme", today - 1), ("beta", today)] {
        assert_eq!(store.sums(account, day..=day, &whole).await, Ok(vec![]));
    }
}

pub(crate) async fn how_far_the_sums_come_is_known_of_each_node(fixture: &Fixture) {
    let (store, now) = (&fixture.store, fixture.clock.now_ms());
    let rows = |first: usize, count: usize| {
        (first..first + count).map(move |number| row("acme", 1, &format!("r{number}"), now, NanoUsd::from_nanos(1)))
    };
    assert_eq!(
        store.summed_up_to("acme").await,
        Ok(BTreeMap::new()),
        "of an account that is not there"
    );
    let first = settled(rows(0, 3), 1);
    // Sent again after an answer was lost, and after a gap, they change nothing.
    for (steps, upto) in [(&first, 70), (&first, 70), (&settled(rows(9, 1), 9), 900)] {
        assert_eq!(store.apply(&node(1), "acme", steps, upto).await, Ok(3));
        assert_eq!(store.summed_up_to("acme").await, Ok(BTreeMap::from([(node(1), 70)])));
    }
    // Steps without a row do not change it.
    let nothing = |seq| Step {
        seq,
        change: AccountChange::nothing(),
    };
    assert_eq!(store.apply(&node(1), "acme", &[nothing(4)], 0).await, Ok(4));
    assert_eq!(store.apply(&node(2), "acme", &[nothing(1)], 0).await, Ok(1));
    assert_eq!(store.summed_up_to("acme").await, Ok(BTreeMap::from([(node(1), 70)])));
    // The number may be larger than a double counts exactly.
    let large = u64::MAX - 1;
    assert_eq!(
        store.apply(&node(2), "acme", &settled(rows(20, 1), 2), large).await,
        Ok(2)
    );
    let both = BTreeMap::from([(node(1), 70), (node(2), large)]);
    assert_eq!(store.summed_up_to("acme").await, Ok(both.clone()));
    // If there are more steps than a call applies, the number of the last row among the applied ones is unknown.
    let many = settled(rows(100, APPLY_STEPS_MAX + 1), 5);
    let last = 4 + APPLY_STEPS_MAX as u64;
    assert_eq!(store.apply(&node(1), "acme", &many, 9_000).await, Ok(last));
    assert_eq!(store.summed_up_to("acme").await, Ok(both));
    assert_eq!(store.apply(&node(1), "acme", &many[1..], 9_000).await, Ok(last + 1));
    let both = BTreeMap::from([(node(1), 9_000), (node(2), large)]);
    assert_eq!(store.summed_up_to("acme").await, Ok(both));
    assert_eq!(store.summed_up_to("beta").await, Ok(BTreeMap::new()));
}

pub(crate) async fn so_many_tags_a_day_are_summed_one_by_one(fixture: &Fixture) {
    let (store, now) = (&fixture.store, fixture.clock.now_ms());
    let day = now / DAY_MS;
    let rows: Vec<Row> = (0..TAGS_A_DAY_MAX + 10)
        .map(|number| {
            let row = row("acme", 1, &format!("r{number}"), now, NanoUsd::from_nanos(1));
            tagged(row, &[&format!("a={number}"), &format!("b={}", number % 70)])
        })
        .collect();
    let mut first = 1;
    for rows in rows.chunks(7) {
        let steps = settled(rows.iter().cloned(), first);
        first += rows.len() as u64;
        assert_eq!(store.apply(&node(1), "acme", &steps, 0).await, Ok(first - 1));
    }
    let expected: Vec<DailySum> = DailySums::of_day(&rows).iter().collect();
    assert_eq!(all(&**store, day).await.len(), expected.len());
    let tags = store.sums("acme", day..=day, &SumSelector::Tags).await.unwrap();
    assert_eq!(
        tags.len(),
        TAGS_A_DAY_MAX + 1,
        "each has one model, and so have the others"
    );
    assert_eq!(
        all(&**store, day).await.into_iter().collect::<DailySums>(),
        DailySums::of_day(&rows)
    );
    // Stored as a whole, they are the same, and continue as before.
    let whole = DailySums::of_day(&rows);
    assert_eq!(store.put_sums("acme", day, &whole, rows.len() as u64).await, Ok(true));
    assert_eq!(
        all(&**store, day).await.into_iter().collect::<DailySums>(),
        DailySums::of_day(&rows)
    );
    let more = tagged(row("acme", 1, "more", now, NanoUsd::from_nanos(1)), &["a=7", "a=new"]);
    store
        .apply(&node(1), "acme", &settled([more.clone()], first), 0)
        .await
        .unwrap();
    let rows: Vec<Row> = rows.into_iter().chain([more]).collect();
    assert_eq!(
        all(&**store, day).await.into_iter().collect::<DailySums>(),
        DailySums::of_day(&rows)
    );
}

pub(crate) async fn sums_of_the_requests_that_were_seen_are_replaced(fixture: &Fixture) {
    let (store, now) = (&fixture.store, fixture.clock.now_ms());
    let (day, cost) = (now / DAY_MS, NanoUsd::from_nanos(5));
    let some = |requests: std::ops::Range<u8>, time_ms: i64, tags: &[&str]| -> Vec<Row> {
        let of = |request: u8| {
            let mut row = row("acme", request % 3, &format!("r{request}"), time_ms, cost);
            row.model = ["m", "n"][usize::from(request % 2)].into();
            tagged(row, tags)
        };
        requests.map(of).collect()
    };
    let kept = async |day: i64| all(&**store, day).await.into_iter().collect::<DailySums>();
    let mended = some(4..9, now, &["team=b"]);
    let of_mended = DailySums::of_day(&mended);
    assert_eq!(
        store.put_sums("acme", day, &of_mended, 0).await,
        Ok(false),
        "of no account"
    );
    let (rows, before) = (some(0..7, now, &["team=a"]), some(7..9, now - DAY_MS, &[]));
    let steps = settled(rows.iter().chain(&before).cloned(), 1);
    assert_eq!(store.apply(&node(1), "acme", &steps, 70).await, Ok(9));
    let view = store.account("acme").await;
    for seen in [0, 6, 8] {
        assert_eq!(store.put_sums("acme", day, &of_mended, seen).await, Ok(false));
        assert_eq!(kept(day).await, DailySums::of_day(&rows), "{seen} were seen");
    }
    assert_eq!(store.put_sums("acme", day, &of_mended, 7).await, Ok(true));
    assert_eq!(kept(day).await, of_mended);
    assert_eq!(kept(day - 1).await, DailySums::of_day(&before));
    assert_eq!(store.account("acme").await, view, "nothing is charged");
    assert_eq!(store.summed_up_to("acme").await, Ok(BTreeMap::from([(node(1), 70)])));
    // The next row is added to them.
    let next = some(20..21, now, &["team=b", "team=c"]);
    let steps = settled(next.clone(), 10);
    assert_eq!(store.apply(&node(1), "acme", &steps, 0).await, Ok(10));
    assert_eq!(kept(day).await, DailySums::of_day(mended.iter().chain(&next)));
    // A day without sums has a count of zero; and nothing may replace some.
    let lost = some(30..33, now - 5 * DAY_MS, &["team=a"]);
    let of_lost = DailySums::of_day(&lost);
    for (seen, is_put) in [(1, false), (0, true), (0, false)] {
        assert_eq!(store.put_sums("acme", day - 5, &of_lost, seen).await, Ok(is_put));
    }
    assert_eq!(kept(day - 5).await, of_lost);
    assert_eq!(
        store.put_sums("acme", day - 5, &DailySums::default(), 3).await,
        Ok(true)
    );
    assert_eq!(kept(day - 5).await, DailySums::default());
}

pub(crate) async fn sums_of_more_keys_than_a_script_unpacks_are_put(fixture: &Fixture) {
    const KEYS: u64 = 5_000;
    let (store, now) = (&fixture.store, fixture.clock.now_ms());
    let day = now / DAY_MS;
    let one = row("acme", 1, "r", now, NanoUsd::from_nanos(1));
    let steps = settled([one.clone()], 1);
    assert_eq!(store.apply(&node(1), "acme", &steps, 0).await, Ok(1));
    let keys = (0..KEYS).map(|number| Row {
        key_id: KeyId::parse(&format!("key_{number:016}")).unwrap(),
        ..one.clone()
    });
    let sums = DailySums::of_day(&keys.collect::<Vec<_>>());
    assert_eq!(store.put_sums("acme", day, &sums, 1).await, Ok(true));
    assert_eq!(all(&**store, day).await.into_iter().collect::<DailySums>(), sums);
}
