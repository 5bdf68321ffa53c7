//! Rows leave the store when the log's home has them, and not before.

use super::*;
use crate::{
    domain::{
        ledger::{Change, Settlement, Step, consumption::Row},
        money::NanoUsd,
    },
    journal::{NumberedRow, tests::scratch},
    sinks::{
        comparison::{Present, Source},
        contract::samples::{BEGIN_MS, node, row},
        files::LogFiles,
        sink::{Batch, Sink},
    },
    store::ledger::contract::memory,
};

mod redis;

const DAY: i64 = BEGIN_MS / DAY_MS;

/// A ledger and files of the log, with what has to live as long as they.
struct Both {
    ledger: Arc<dyn LedgerStore>,
    home: Arc<LogFiles>,
    figures: Arc<TrimFigures>,
    _folder: tempfile::TempDir,
}

impl Both {
    fn new(ledger: Arc<dyn LedgerStore>) -> Self {
        let folder = scratch();
        let home = LogFiles::open(folder.path(), Duration::from_secs(3600), 50_000).unwrap();
        Self {
            ledger,
            home: Arc::new(home),
            figures: Arc::default(),
            _folder: folder,
        }
    }

    fn trimmer(&self, fills: bool) -> Trimmer {
        let of = Trimming {
            home: Arc::clone(&self.home) as _,
            fed: Arc::default(),
            filling: Arc::default(),
            ledger: Arc::clone(&self.ledger),
            node: node(1),
            keep: Duration::from_secs(48 * 3600),
            fills,
        };
        Trimmer::new(of, Arc::clone(&self.figures))
    }

    /// Charges rows of an account from a step on.
    async fn charge(&self, first: u64, rows: &[Row]) {
        let steps: Vec<Step> = std::iter::zip(first.., rows)
            .map(|(seq, row)| Step {
                seq,
                change: Change::Settle(Box::new(Settlement::of(row.clone(), 0))),
            })
            .collect();
        for some in steps.chunks(200) {
            let account = &rows[0].account;
            let watermark = self.ledger.apply(&node(7), account, some, 0).await;
            assert_eq!(watermark, Ok(some.last().unwrap().seq));
        }
    }

    /// Brings rows to the home, as a journal of their own does.
    async fn feed(&self, lane: u32, rows: &[Row]) {
        let numbered = std::iter::zip(1.., rows).map(|(number, row)| NumberedRow {
            number,
            row: row.clone(),
        });
        let batch = Batch {
            node: node(lane),
            after: 0,
            upto: rows.len() as u64 + 1,
            rows: numbered.map(Arc::new).collect(),
        };
        self.home.append(&batch).await.unwrap();
    }

    /// How many rows of the day the store has, and how many have left.
    async fn standing(&self) -> (u64, u64) {
        let days = self.ledger.log_days("acme", DAY..=DAY).await.unwrap();
        days.first().map_or((0, 0), |day| (day.rows, day.trimmed))
    }
}

fn rows(count: u64) -> Vec<Row> {
    let of = |seed: u64| Row {
        account: "acme".into(),
        ..row(seed, BEGIN_MS + i64::try_from(seed).unwrap())
    };
    (0..count).map(of).collect()
}

#[tokio::test]
async fn a_day_leaves_when_the_home_has_it_and_what_comes_late_leaves_later() {
    let both = Both::new(memory::ledger());
    let all = rows(2_600);
    both.charge(1, &all[..2_500]).await;
    both.feed(7, &all[..2_500]).await;
    let mut trimmer = both.trimmer(false);
    trimmer.round(DAY - 10, DAY).await.unwrap();
    assert_eq!(both.standing().await, (2_500, 0), "the day is not old enough");
    trimmer.round(DAY - 10, DAY + 1).await.unwrap();
    assert_eq!(both.standing().await, (0, 2_500));
    assert_eq!((both.figures.rows(), both.figures.differing()), (2_500, 0));

    both.charge(2_501, &all[2_500..]).await;
    trimmer.round(DAY - 10, DAY + 1).await.unwrap();
    assert_eq!(both.standing().await, (100, 2_500), "the home lacks what came late");
    assert_eq!(both.figures.differing(), 1);
    both.feed(8, &all[2_500..]).await;
    trimmer.round(DAY - 10, DAY + 1).await.unwrap();
    assert_eq!(
        both.standing().await,
        (100, 2_500),
        "a day that differed is not compared each time"
    );
    trimmer
        .differing
        .values_mut()
        .for_each(|differing| differing.again = clock::instant());
    trimmer.round(DAY - 10, DAY + 1).await.unwrap();
    assert_eq!(both.standing().await, (0, 2_600));
    assert_eq!((both.figures.rows(), both.figures.differing()), (2_600, 0));
}

#[tokio::test]
async fn what_the_home_lacks_or_has_otherwise_stays() {
    let all = rows(40);
    let lacking = all[1..].to_vec();
    let mut dearer = all.clone();
    dearer[3].cost_nano_usd = dearer[3].cost_nano_usd.saturating_add(NanoUsd::from_nanos(1));
    // The keys' costs are exchanged: the account's are the same.
    let mut exchanged = all.clone();
    let other = (1..40).find(|index| all[*index].key_id != all[0].key_id && all[*index].model == all[0].model);
    let other = other.unwrap();
    (exchanged[0].key_id, exchanged[other].key_id) = (all[other].key_id.clone(), all[0].key_id.clone());
    // Two rows alike but for their names, of which the home has one twice: all sums are the same.
    let mut alike = all.clone();
    alike[1] = Row {
        request_id: all[1].request_id.clone(),
        ..all[0].clone()
    };
    let mut twice = alike.clone();
    twice[1].request_id.clone_from(&alike[0].request_id);
    let more = rows(41);
    for (what, charged, of_home) in [
        ("one is lacking", &all, lacking),
        ("one is dearer by a nano-dollar", &all, dearer),
        ("two keys are exchanged", &all, exchanged),
        ("one is there twice and one is not", &alike, twice),
        ("the home has one more", &all, more),
    ] {
        let both = Both::new(memory::ledger());
        both.charge(1, charged).await;
        both.feed(7, &of_home).await;
        both.trimmer(false).round(DAY - 10, DAY + 1).await.unwrap();
        assert_eq!(both.standing().await, (40, 0), "{what}");
        assert_eq!((both.figures.rows(), both.figures.differing()), (0, 1), "{what}");
    }
}

#[tokio::test]
async fn rows_are_looked_for_in_portions() {
    let both = Both::new(memory::ledger());
    let all = rows(40);
    both.charge(1, &all).await;
    both.feed(7, &all).await;
    let seen = both.ledger.log_days("acme", DAY..=DAY).await.unwrap()[0];
    for at_once in [1, 7, 40, 41] {
        let there = comparison::is_there(&*both.home, &*both.ledger, "acme", &seen, at_once).await;
        assert!(there.unwrap(), "{at_once}");
    }
    // The last of them is another than the home has.
    let other = Both::new(memory::ledger());
    let mut alike = all.clone();
    alike[39].request_id = "another".into();
    other.charge(1, &alike).await;
    other.feed(7, &all).await;
    for at_once in [1, 7, 40, 41] {
        let there = comparison::is_there(&*other.home, &*other.ledger, "acme", &seen, at_once).await;
        assert!(!there.unwrap(), "{at_once}");
    }
}

#[tokio::test]
async fn further_rows_of_a_request_are_counted_in_portions() {
    let both = Both::new(memory::ledger());
    let all = rows(40);
    both.feed(7, &all).await;
    both.feed(8, &all[..5]).await;
    for at_once in [1, 7, 40, 100] {
        let mut shown = 0;
        let count = comparison::count(&*both.home, ("acme", DAY), (40, at_once), |_, _| shown += 1);
        assert_eq!(count.await.unwrap(), Present { rows: 45, again: 5 }, "{at_once}");
        assert_eq!(shown, 45);
    }
}

#[tokio::test]
async fn a_store_of_one_node_fills_its_home_before_its_rows_leave() {
    let both = Both::new(memory::ledger());
    let all = rows(300);
    both.charge(1, &all).await;
    both.feed(7, &all[200..]).await;
    let mut trimmer = both.trimmer(true);
    // A lane of the journal may still bring some.
    trimmer.of.fed.may_lack_all(&node(7), None);
    trimmer.round(DAY - 10, DAY + 1).await.unwrap();
    assert_eq!(both.standing().await, (300, 0));
    trimmer.of.fed.lacks(&node(7), None);
    trimmer.differing.clear();
    trimmer.round(DAY - 10, DAY + 1).await.unwrap();
    assert_eq!(both.standing().await, (0, 300));
    let mut there = 0;
    comparison::each_row(Source::Home(&*both.home), "acme", DAY, |_| there += 1)
        .await
        .unwrap();
    assert_eq!(there, 300, "each once");
}

#[tokio::test]
async fn a_node_without_the_turn_takes_nothing_out() {
    let both = Both::new(memory::ledger());
    let all = rows(3);
    both.charge(1, &all).await;
    both.feed(7, &all).await;
    assert_eq!(both.ledger.take_turn(TASK, &node(2), 60_000).await, Ok(true));
    both.trimmer(false).round(DAY - 10, DAY + 1).await.unwrap();
    assert_eq!(both.standing().await, (3, 0));
}
