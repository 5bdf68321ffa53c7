//! A request whose settlement is damaged in the journal is charged once: by the store before, or now.

use std::{fs, path::Path};

use super::{store::Store, *};
use crate::{
    domain::ledger::{Record, Settlement, settlement_after_crash},
    journal::{OpenedJournal, Position, tests},
};

fn settings(path: &Path) -> JournalConfig {
    JournalConfig {
        path: path.to_owned(),
        segment_bytes: 64 * 1024,
        keep: Duration::from_secs(86_400),
        sync: Duration::from_millis(1),
        sinks: Vec::new(),
    }
}

/// The journal after the settlement of its one request was damaged, with a step behind it.
fn with_a_damaged_settlement(path: &Path) -> OpenedJournal {
    let journal = Journal::open(&settings(path)).unwrap().journal;
    let mut room = journal.reserve(4 * STEP_BYTES_MAX).unwrap();
    let admitted = tests::admitted("one");
    journal
        .append(&Record::Admit(Box::new(admitted.clone())), &mut room)
        .unwrap();
    let settlement = AccountChange::Settle(Box::new(settlement_after_crash(admitted, None)));
    let (_, at) = journal.append_step("acme", settlement, 0, &mut room).unwrap();
    journal
        .append_step("acme", AccountChange::nothing(), 0, &mut room)
        .unwrap();
    drop((room, journal));
    let segment = path.join("000000000001.wal");
    let mut bytes = fs::read(&segment).unwrap();
    bytes[usize::try_from(at.offset).unwrap() + 40] ^= 0xff;
    fs::write(&segment, bytes).unwrap();
    Journal::open(&settings(path)).unwrap()
}

fn settlements(journal: &Journal) -> Vec<Settlement> {
    let mut reader = journal.reader(Position::START);
    let records = std::iter::from_fn(|| reader.read().unwrap());
    let of = |(_, record)| match record {
        Record::Step { step, .. } => match step.change {
            AccountChange::Settle(settlement) => Some(*settlement),
            _ => None,
        },
        _ => None,
    };
    records.filter_map(of).collect()
}

#[tokio::test]
async fn a_damaged_settlement_is_charged_again_only_if_the_store_has_not_applied_it() {
    for (applied, is_charged) in [(0, true), (1, false), (2, false)] {
        let folder = tests::scratch();
        let opened = with_a_damaged_settlement(folder.path());
        let journal = opened.journal;
        assert_eq!((journal.damaged_parts(), opened.unsettled.len()), (1, 0));
        assert_eq!(opened.possibly_settled.len(), 1);
        let store = Store::new();
        let step = |seq| crate::domain::ledger::Step {
            seq,
            change: AccountChange::nothing(),
        };
        let steps: Vec<_> = (1..=applied).map(step).collect();
        store.apply(journal.node(), "acme", &steps, 0).await.unwrap();

        settle_possibly_settled(&journal, &*store, opened.possibly_settled)
            .await
            .unwrap();
        let settled = settlements(&journal);
        assert_eq!(settled.len(), 1, "it has ended");
        let charged: Vec<_> = settled.iter().filter_map(|one| one.row.as_ref()).collect();
        assert_eq!(charged.len(), usize::from(is_charged), "{applied}");
        assert_eq!(settled[0].cost.nanos() > 0, is_charged, "{applied}");
        drop(journal);
        let again = Journal::open(&settings(folder.path())).unwrap();
        assert_eq!((again.unsettled.len(), again.possibly_settled.len()), (0, 0));
        assert_eq!(again.journal.damaged_parts(), 0, "what was covered is no damage");
    }
}

#[tokio::test]
async fn a_store_that_cannot_be_asked_is_taken_to_have_charged_it() {
    let folder = tests::scratch();
    let opened = with_a_damaged_settlement(folder.path());
    let store = Store::new();
    store.inner.lock().faults = vec![Fault::Away];
    settle_possibly_settled(&opened.journal, &*store, opened.possibly_settled)
        .await
        .unwrap();
    let settled = settlements(&opened.journal);
    assert!(matches!(settled.as_slice(), [one] if one.row.is_none()), "{settled:?}");
}
