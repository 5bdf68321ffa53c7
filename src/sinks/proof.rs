//! Whether the rows of a day are what the daily sums say: those at the log's home, and of this process those on their way there.
//!
//! Nothing has to stand still for that. A home that is fed has rows with numbers, and the ledger says up to which number of each lane
//! the sums go; of the store's own lists a row comes in the same step as its sums.

use std::{
    collections::{BTreeMap, HashSet},
    hash::{BuildHasher, RandomState},
};

use crate::{
    domain::ledger::{
        NodeId,
        consumption::Row,
        daily_sums::{DailySums, Subject, SumsOf},
        log_filter::LogFilter,
        proof::{DayProof, Verdict},
    },
    sinks::{
        asks::{HomeError, PAGE_ROWS_MAX},
        day_rows::{DayRows, ROWS_AT_ONCE, each_listed, each_row},
        home::LogHome,
        open_home::{FedLog, OpenHome},
        own_journal::OpenLanes,
        store_log::StoreLog,
        tail::LaneRows,
    },
    store::{StoreError, ledger::LedgerStore},
};

/// How often a day is looked at again because rows came meanwhile.
const ATTEMPTS_MAX: usize = 16;

/// Proves days of accounts.
#[derive(Clone, Copy)]
pub(crate) struct Prover<'p> {
    /// The daily sums.
    pub(crate) ledger: &'p dyn LedgerStore,
    /// Where the rows are.
    pub(crate) home: &'p OpenHome,
    /// The home before. Where the store is the home, nothing brings rows there from it: what is there counts.
    pub(crate) former: Option<&'p dyn LogHome>,
    /// The lanes of this process, whose feeders know what they have brought.
    pub(crate) lanes: &'p OpenLanes,
}

/// What was found of a day of an account.
#[derive(Clone, Debug)]
pub(crate) struct Findings {
    /// How many rows there are.
    pub(crate) counts: RowCounts,
    /// Whether they are what the sums say.
    pub(crate) verdict: Verdict,
    /// How many rows the sums count.
    pub(crate) requests: u64,
    /// What the rows add up to that the sums come to.
    pub(crate) sums: DailySums,
}

/// How many rows of a day there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RowCounts {
    /// Rows at the home.
    pub(crate) at_home: u64,
    /// On their way there, and not there yet.
    pub(crate) on_their_way: u64,
    /// How many of all are further ones of requests that have a row already.
    pub(crate) again: u64,
}

impl Findings {
    fn of(proof: DayProof, counts: RowCounts) -> Self {
        Self {
            counts,
            verdict: proof.verdict(),
            requests: proof.requests(),
            sums: proof.into_sums(),
        }
    }

    /// Whether all rows are there, each once.
    pub(crate) fn is_proven(&self) -> bool {
        self.verdict.differences.is_empty() && self.counts.again == 0
    }
}

impl Prover<'_> {
    /// Compares the rows of an account and day with its daily sums.
    pub(crate) async fn prove(&self, account: &str, day: i64) -> Result<Findings, HomeError> {
        self.prove_by(ROWS_AT_ONCE, (account, day)).await
    }

    /// The same with the requests of so many rows in memory. Of a day with more all rows are read several times.
    async fn prove_by(&self, at_once: usize, place: (&str, i64)) -> Result<Findings, HomeError> {
        match self.home {
            OpenHome::Fed(fed) => self.of_fed(fed, at_once, place).await,
            OpenHome::Store(store) => self.of_lists(store, at_once, place).await,
        }
    }

    async fn of_fed(&self, fed: &FedLog, at_once: usize, place: (&str, i64)) -> Result<Findings, HomeError> {
        let (kept, summed) = self.standing(place).await?;
        let mut proof = DayProof::new(kept, summed);
        // Looked at behind the sums and before the home. What they count was on disk before, so of a lane of this process it is in the
        // tail unless it is at home; and what goes over meanwhile is in both, and counts once.
        let tails = fed.tails.by_lane(&LogFilter::of_day(place.0, place.1)).await;
        for of_lane in &tails {
            proof.reaches(&of_lane.node, of_lane.reached);
            for row in &of_lane.rows {
                proof.add_on_its_way(&of_lane.node, row.number, &row.row);
            }
        }
        let found = read(&*fed.home, proof.clone(), (&tails, at_once), place).await?;
        if found.verdict.differences.is_empty() {
            return Ok(found);
        }
        // A lane of another node may have brought rows while these were read. How far it is now says nothing of what was read before:
        // taken together, both would call a whole day wrong. So it is asked first how far each lane is, and then all is read again.
        // What the home had by then is among it. What comes later is so as well, or its lane is behind. The sums, their numbers and
        // the rows on their way are still those of the beginning: rows beyond these numbers are left out, and what was on its way then
        // is in memory here, wherever it is by now.
        self.ask_how_far(fed, &mut proof).await?;
        read(&*fed.home, proof, (&tails, at_once), place).await
    }

    /// Asks how far each lane is of which that is not known. What the home has lost, its feeder does not bring again by itself: its
    /// word counts, too.
    async fn ask_how_far(&self, fed: &FedLog, proof: &mut DayProof) -> Result<(), HomeError> {
        let lanes: Vec<NodeId> = proof.summed().keys().cloned().collect();
        for lane in &lanes {
            proof.reaches(lane, self.lanes.reached(lane, fed.name()));
        }
        if lanes.iter().any(|lane| !proof.has_reached(lane)) {
            for (lane, upto) in fed.home.watermarks().await?.unwrap_or_default() {
                proof.reaches(&lane, upto);
            }
        }
        Ok(())
    }

    /// Rows come to the list in the step that counts them. Between sums that are equal it is read to its end: then they are the sums of
    /// what was read, and nothing is open. While rows come it is read on from there.
    async fn of_lists(&self, store: &StoreLog, at_once: usize, place: (&str, i64)) -> Result<Findings, HomeError> {
        let mut begun = (DayProof::default(), None, 0);
        for _ in 0..ATTEMPTS_MAX {
            let kept = self.kept(place).await?;
            let (mut proof, requests, skip) = std::mem::take(&mut begun);
            proof.renew(kept.clone());
            let mut requests = requests.unwrap_or_else(|| Requests::new(proof.requests(), at_once));
            let read = each_listed(store.lists(), place, skip, |row| {
                proof.add_unnumbered(row);
                requests.see(row);
            });
            let read = read.await?;
            let there = listed(store, place).await?;
            if there == read as u64 && self.kept(place).await? == kept {
                let mut counts = RowCounts {
                    at_home: there,
                    ..RowCounts::default()
                };
                self.add_former(store, requests, (&mut proof, &mut counts), place)
                    .await?;
                return Ok(Findings::of(proof, counts));
            }
            // If the store has lost some of them, all are read again.
            if there >= read as u64 {
                begun = (proof, Some(requests), read);
            }
        }
        Err(busy(place.0).into())
    }

    /// Adds the rows of the home before that the list lacks, and counts those of the list that come again.
    async fn add_former(
        &self,
        store: &StoreLog,
        mut requests: Requests,
        (proof, counts): (&mut DayProof, &mut RowCounts),
        place: (&str, i64),
    ) -> Result<(), HomeError> {
        loop {
            counts.again += requests.again;
            if let Some(former) = self.former {
                each_row(former, place, |row| {
                    if requests.see(row) {
                        proof.add_unnumbered(row);
                        counts.at_home += 1;
                    }
                })
                .await?;
            }
            let Some(mut others) = requests.others() else {
                return Ok(());
            };
            each_listed(store.lists(), place, 0, |row| {
                others.see(row);
            })
            .await?;
            requests = others;
        }
    }

    /// The daily sums of a day, and up to which number of each lane its rows are in them, as of one moment.
    async fn standing(&self, place: (&str, i64)) -> Result<(DailySums, BTreeMap<NodeId, u64>), StoreError> {
        for _ in 0..ATTEMPTS_MAX {
            let before = self.kept(place).await?;
            let summed = self.ledger.summed(place.0).await?;
            // Sums only grow: between two that are equal no row of the day has come.
            if self.kept(place).await? == before {
                return Ok((before, summed));
            }
        }
        Err(busy(place.0))
    }

    /// All daily sums of a day of an account.
    async fn kept(&self, (account, day): (&str, i64)) -> Result<DailySums, StoreError> {
        let mut kept = DailySums::default();
        for of in [SumsOf::One(Subject::Account), SumsOf::Keys, SumsOf::Tags] {
            kept.extend(self.ledger.sums(account, day..=day, &of).await?);
        }
        Ok(kept)
    }
}

fn busy(account: &str) -> StoreError {
    StoreError::Busy(format!(
        "rows of account `{account}` come faster than they are read; try again later"
    ))
}

/// How many rows a store's list has of a day.
async fn listed(store: &StoreLog, (account, day): (&str, i64)) -> Result<u64, StoreError> {
    let days = store.lists().log_days(account, day..=day).await?;
    Ok(days.iter().map(|day| day.rows).sum())
}

/// Adds the home's rows of a day to those on their way there.
async fn read(
    home: &dyn LogHome,
    mut proof: DayProof,
    (tails, at_once): (&[LaneRows], usize),
    place: (&str, i64),
) -> Result<Findings, HomeError> {
    let on_their_way = || tails.iter().flat_map(|of_lane| &of_lane.rows);
    let mut counts = RowCounts {
        on_their_way: on_their_way().count() as u64,
        ..RowCounts::default()
    };
    let mut requests = Requests::new(proof.requests(), at_once);
    loop {
        for row in on_their_way() {
            requests.see(&row.row);
        }
        let mut day = DayRows::new(home, place);
        while !day.has_ended() {
            let page = day.next(PAGE_ROWS_MAX).await?;
            for ((lane, number), row) in page.numbers.iter().zip(&page.rows) {
                let is_in_both = proof.is_on_its_way(lane, *number);
                if !is_in_both {
                    requests.see(row);
                }
                if requests.is_first() {
                    proof.add(lane, *number, row);
                    counts.at_home += 1;
                    counts.on_their_way = counts.on_their_way.saturating_sub(u64::from(is_in_both));
                }
            }
        }
        counts.again += requests.again;
        match requests.others() {
            Some(others) => requests = others,
            None => return Ok(Findings::of(proof, counts)),
        }
    }
}

/// The requests of rows: of one part of all, so that not all are in memory.
#[derive(Debug)]
struct Requests {
    hashes: RandomState,
    part: u64,
    parts: u64,
    seen: HashSet<u64>,
    /// How many rows are of a request that was seen before.
    again: u64,
}

impl Requests {
    /// The first part of so many rows.
    fn new(rows: u64, at_once: usize) -> Self {
        Self {
            hashes: RandomState::new(),
            part: 0,
            parts: rows.div_ceil(at_once.max(1) as u64).max(1),
            seen: HashSet::new(),
            again: 0,
        }
    }

    fn is_first(&self) -> bool {
        self.part == 0
    }

    /// Notes the request of a row, if it is one of this part. Says whether that is a new one.
    fn see(&mut self, row: &Row) -> bool {
        let hash = self.hashes.hash_one(&row.request_id);
        if hash % self.parts != self.part {
            return false;
        }
        let is_new = self.seen.insert(hash);
        self.again += u64::from(!is_new);
        is_new
    }

    /// The next part; `None`: that was the last.
    fn others(self) -> Option<Self> {
        let part = self.part + 1;
        (part < self.parts).then(|| Self {
            part,
            seen: HashSet::new(),
            again: 0,
            ..self
        })
    }
}

#[cfg(test)]
mod tests;
