//! Filling the log's files from a store, and from other files.

use std::{collections::BTreeSet, time::Duration};

use super::*;
use crate::{
    domain::ledger::{AccountChange, Settlement, Step},
    journal::tests::scratch,
    sinks::{
        contract::{BEGIN_MS, node, pages::of_day, row},
        files::LogFiles,
        store_log::StoreLog,
    },
    store::ledger::{LedgerStore as _, contract::memory},
};

const DAY: i64 = BEGIN_MS / 86_400_000;

fn ids<'a>(rows: impl IntoIterator<Item = &'a Row>) -> BTreeSet<String> {
    rows.into_iter().map(|row| row.request_id.to_string()).collect()
}

#[tokio::test]
async fn a_home_gets_the_rows_that_it_lacks_once_and_those_that_a_journal_may_bring_not() {
    let (ledger, folder) = (memory::ledger(), scratch());
    let store = StoreLog::new(Arc::clone(&ledger) as _, Arc::clone(&ledger) as _);
    let home = LogFiles::open(folder.path(), Duration::from_secs(3600), 50_000).unwrap();
    let rows: Vec<Row> = (0..2_500)
        .map(|seed| Row {
            account: "acme".into(),
            ..row(seed, BEGIN_MS + i64::try_from(seed).unwrap())
        })
        .collect();
    let steps: Vec<Step> = std::iter::zip(1.., &rows)
        .map(|(seq, row)| Step {
            seq,
            change: AccountChange::Settle(Box::new(Settlement::of(row.clone(), 0))),
        })
        .collect();
    for some in steps.chunks(200) {
        ledger.apply(&node(7), "acme", some, 0).await.unwrap();
    }
    let fed = std::iter::zip(1.., rows.iter().skip(300).take(500)).map(|(number, row)| NumberedRow {
        number,
        row: row.clone(),
    });
    let batch = Batch {
        node: node(7),
        after: 0,
        upto: 501,
        rows: fed.map(Arc::new).collect(),
    };
    home.append(&batch).await.unwrap();
    let before_ms = BEGIN_MS + 2_400;
    let brought = fill(&home, &store, ("acme", DAY), before_ms).await.unwrap();
    assert_eq!(brought, 2_400 - 500);
    let there = of_day(&home, "acme", DAY, 4096).await;
    assert_eq!(there.len(), 2_400, "none is there twice");
    assert_eq!(ids(&there), ids(rows.iter().take(2_400)));
    for (day, before_ms, brought) in [(DAY, before_ms, 0), (DAY, i64::MAX, 100), (DAY + 1, i64::MAX, 0)] {
        let found = fill(&home, &store, ("acme", day), before_ms).await.unwrap();
        assert_eq!(found, brought);
    }
    // The same from a home to the next one.
    let next_folder = scratch();
    let next = LogFiles::open(next_folder.path(), Duration::from_secs(3600), 50_000).unwrap();
    let moved = fill(&next, &home, ("acme", DAY), i64::MAX).await.unwrap();
    let there = of_day(&next, "acme", DAY, 4096).await;
    assert_eq!((moved, ids(&there)), (2_500, ids(&rows)));
    assert_eq!(fill(&next, &home, ("acme", DAY), i64::MAX).await.unwrap(), 0);
}
