//! What a process that dies leaves behind, and what sending again makes of it.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::domain::ledger::daily_sums::differences;

#[tokio::test]
async fn a_copy_taken_while_it_is_open_has_all_that_was_flushed() {
    let folder = tempfile::tempdir().unwrap();
    let store = opened(folder.path());
    let steps = journal(40);
    for many in (4..40).step_by(9) {
        store.apply(&node(1), "acme", &steps[..many], 0).await.unwrap();
        store.flush().await.unwrap();
        let flushed = lasting(&store).await;
        store.apply(&node(1), "acme", &steps[..many + 2], 0).await.unwrap();
        // What the disk holds at this moment is what a process killed now leaves behind.
        let image = tempfile::tempdir().unwrap();
        std::fs::copy(folder.path().join("ledger.redb"), image.path().join("ledger.redb")).unwrap();
        assert_eq!(lasting(&opened(image.path())).await, flushed);
    }
}

#[derive(Clone, Copy, Debug)]
enum Deed {
    /// A node sends this many steps from its watermark.
    Send {
        by: u8,
        many: usize,
    },
    Flush,
    /// Days that are written leave memory.
    Close,
    Crash,
}

fn deed() -> impl Strategy<Value = Deed> {
    prop_oneof![
        6 => (1..4_u8, 1..12_usize).prop_map(|(by, many)| Deed::Send { by, many }),
        2 => Just(Deed::Flush),
        1 => Just(Deed::Close),
        1 => Just(Deed::Crash),
    ]
}

async fn send(store: &EmbeddedLedger, by: u8, steps: &[Step], many: usize) {
    let known = usize::try_from(store.watermark(&node(by), "acme").await.unwrap()).unwrap();
    let some = &steps[known..steps.len().min(known + many)];
    let last = some.iter().rev().find(|step| step.has_row());
    let upto = last.map_or(0, |step| step.seq);
    store.apply(&node(by), "acme", some, upto).await.unwrap();
}

fn row_of(step: &Step) -> Option<Arc<Row>> {
    match &step.change {
        AccountChange::Settle(settlement) => settlement.row.clone(),
        AccountChange::Open { .. } | AccountChange::Credit { .. } | AccountChange::Adjust { .. } => None,
    }
}

fn sums_of(rows: &[Arc<Row>]) -> DailySums {
    DailySums::of_day(rows.iter().map(|row| &**row))
}

async fn crash_and_send_again(deeds: Vec<Deed>) {
    let folder = tempfile::tempdir().unwrap();
    let steps = journal(60);
    let mut store = opened(folder.path());
    for deed in deeds {
        match deed {
            Deed::Send { by, many } => send(&store, by, &steps, many).await,
            Deed::Flush => store.flush().await.unwrap(),
            Deed::Close => store.close_days(),
            Deed::Crash => {
                drop(store);
                store = opened(folder.path());
            }
        }
        // Whatever was lost: what is there is of one moment.
        let (views, spend, watermarks, sums) = lasting(&store).await;
        let mut expected = DailySums::default();
        for mark in &watermarks {
            let some = &steps[..usize::try_from(*mark).unwrap()];
            expected.extend(sums_of(&some.iter().filter_map(row_of).collect::<Vec<_>>()).iter());
        }
        assert_eq!(differences(&sums, &expected), []);
        let whole = sums.iter().filter(|sum| sum.subject == SumSubject::Account);
        let charged: i64 = whole.map(|sum| sum.sums.cost_nano_usd.nanos()).sum();
        assert_eq!(spend.all.nanos(), charged);
        let opened = watermarks.iter().filter(|mark| **mark > 0).count();
        let settled: u64 = watermarks.iter().map(|mark| mark.saturating_sub(1)).sum();
        let reached = store.summed_up_to("acme").await.unwrap();
        assert_eq!(reached.values().map(|mark| mark - 1).sum::<u64>(), settled);
        if let Some(view) = views.first() {
            let credits = 1_000 * i64::try_from(opened).unwrap();
            assert_eq!((view.spent.nanos(), view.balance.nanos()), (charged, credits - charged));
        }
    }
    let (mut model, mut expected) = (Account::default(), DailySums::default());
    for by in 1..4 {
        send(&store, by, &steps, steps.len()).await;
        let (_, rows) = model.apply(&node(by), &steps, 0);
        expected.extend(sums_of(&rows).iter());
    }
    let (views, spend, watermarks, sums) = lasting(&store).await;
    assert_eq!(views, [model.view("acme", START_MS).unwrap()]);
    assert_eq!(spend, model.key_spend(&key_id(1), START_MS));
    assert_eq!(watermarks, [61; 3]);
    assert_eq!(differences(&sums, &expected), []);
}

#[test]
fn after_a_crash_the_state_is_of_one_moment_and_what_is_sent_again_makes_it_exact() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let config = ProptestConfig {
        cases: 24,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    proptest!(config, |(deeds in vec(deed(), 1..40))| {
        runtime.block_on(crash_and_send_again(deeds));
    });
}
