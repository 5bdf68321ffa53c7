//! Proves that the rows of a day match the account's daily sums. The rows are those in the log backend and those of this process
//! that the log backend has not acknowledged yet.
//!
//! Rows may be settled meanwhile, so the proof must know which rows the sums include. If a sink is the log backend, rows have
//! numbers, and the ledger has, for each lane, the number of the last row that the sums include. If the store is the log backend,
//! the store adds each row to its list and to the sums in one atomic step.

use std::{
    collections::{BTreeMap, HashSet},
    hash::{BuildHasher, RandomState},
};

use crate::{
    domain::ledger::{
        NodeId,
        consumption::Row,
        daily_sums::{DailySums, SumSelector, SumSubject},
        log_query::LogFilter,
        proof::{DayProof, ProofOutcome},
    },
    sinks::{
        FedLog, LogBackend, LogBackendError, OpenLogBackend, PAGE_ROWS_MAX,
        backfill::{DayRows, ROWS_AT_ONCE, for_each_listed_row, for_each_row},
        own_journal::OpenLanes,
        store_log::StoreLog,
        tail::LaneRows,
    },
    store::{StoreError, ledger::LedgerStore},
};

/// The maximum number of readings of a day. A day is read again if rows were settled meanwhile.
const ATTEMPTS_MAX: usize = 16;

/// Proves the rows of days against daily sums.
#[derive(Clone, Copy)]
pub(crate) struct Prover<'p> {
    /// The ledger, which has the daily sums.
    pub(crate) ledger: &'p dyn LedgerStore,
    /// The log backend, which has the rows.
    pub(crate) home: &'p OpenLogBackend,
    /// The former log backend, if there is one. Its rows count only if the store is the log backend, because nothing copies them
    /// to the store.
    pub(crate) former: Option<&'p dyn LogBackend>,
    /// The lanes that this process has open. Their feeders have reported the log backend's watermarks.
    pub(crate) lanes: &'p OpenLanes,
}

/// The result of proving the rows of an account and day.
#[derive(Clone, Debug)]
pub(crate) struct ProofFindings {
    /// The numbers of rows that were found, by place.
    pub(crate) counts: RowCounts,
    /// The differences between the rows and the sums, and the lanes from which rows may still arrive.
    pub(crate) verdict: ProofOutcome,
    /// The number of rows that the daily sums include.
    pub(crate) requests: u64,
    /// The sums of those found rows that the daily sums include.
    pub(crate) sums: DailySums,
}

/// The numbers of a day's rows in each place where rows were found, and the number of duplicates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RowCounts {
    /// The number of rows in the log backend.
    pub(crate) stored: u64,
    /// The number of rows that the log backend has not acknowledged and does not have yet.
    pub(crate) pending: u64,
    /// The number of duplicates: rows whose request has another row already.
    pub(crate) duplicates: u64,
}

impl ProofFindings {
    fn from_proof(proof: DayProof, counts: RowCounts) -> Self {
        Self {
            counts,
            verdict: proof.verdict(),
            requests: proof.requests(),
            sums: proof.into_sums(),
        }
    }

    /// Returns whether the rows match the sums and there are no duplicates.
    pub(crate) fn is_proven(&self) -> bool {
        self.verdict.differences.is_empty() && self.counts.duplicates == 0
    }
}

impl Prover<'_> {
    /// Compares the rows of one account and one day with the daily sums of that account and day.
    pub(crate) async fn prove(&self, account: &str, day: i64) -> Result<ProofFindings, LogBackendError> {
        self.prove_in_parts(ROWS_AT_ONCE, (account, day)).await
    }

    /// Does the same as [`Prover::prove`], with the request ids of at most `at_once` rows in memory. If a day has more rows, it
    /// is read several times.
    async fn prove_in_parts(&self, at_once: usize, place: (&str, i64)) -> Result<ProofFindings, LogBackendError> {
        match self.home {
            OpenLogBackend::Fed(fed) => self.prove_fed(fed, at_once, place).await,
            OpenLogBackend::Store(store) => self.prove_lists(store, at_once, place).await,
        }
    }

    async fn prove_fed(
        &self,
        fed: &FedLog,
        at_once: usize,
        place: (&str, i64),
    ) -> Result<ProofFindings, LogBackendError> {
        let (kept, summed) = self.consistent_sums(place).await?;
        let mut proof = DayProof::new(kept, summed);
        // The tails are read after the sums and before the log backend. Rows that the sums include were on disk before, so each
        // row of this process is in the tail or in the log backend. A row that moves meanwhile is in both, and counts once.
        let tails = fed.tails.by_lane(&LogFilter::of_day(place.0, place.1)).await;
        for of_lane in &tails {
            proof.set_reached(&of_lane.node, of_lane.reached);
            for row in &of_lane.rows {
                proof.add_pending(&of_lane.node, row.number, &row.row);
            }
        }
        let found = read_backend(&*fed.home, proof.clone(), (&tails, at_once), place).await?;
        if found.verdict.differences.is_empty() {
            return Ok(found);
        }
        // A lane of another node may have brought rows while the log backend was read. The lane's current watermark does not
        // describe the rows that were read before, so combining both would report a correct day as wrong. Therefore the
        // watermarks are fetched first, and then all rows are read again. This second reading finds all rows before these
        // watermarks. A lane whose later rows are still missing counts as behind. The sums, their last numbers and the tails
        // remain those from the beginning: rows beyond the last numbers are ignored, and rows that were in a tail are in memory
        // here, wherever they are now.
        self.fetch_watermarks(fed, &mut proof).await?;
        read_backend(&*fed.home, proof, (&tails, at_once), place).await
    }

    /// Adds to `proof` the watermarks that the lanes' feeders have reported. If the sums include rows beyond some of these
    /// watermarks, also fetches the log backend's watermarks and adds them. A watermark that a feeder has reported counts even if
    /// the log backend has lost rows since the report, because the feeder does not send these rows again.
    async fn fetch_watermarks(&self, fed: &FedLog, proof: &mut DayProof) -> Result<(), LogBackendError> {
        let lanes: Vec<NodeId> = proof.summed().keys().cloned().collect();
        for lane in &lanes {
            proof.set_reached(lane, self.lanes.sink_position(lane, fed.name()));
        }
        if lanes.iter().any(|lane| !proof.has_reached(lane)) {
            for (lane, upto) in fed.home.watermarks().await?.unwrap_or_default() {
                proof.set_reached(&lane, upto);
            }
        }
        Ok(())
    }

    /// Proves a day whose rows are in the store's lists. The store adds each row to the list and to the sums in one atomic step.
    /// The sums are read before the list is read to its end, and again afterwards. If they have not changed, they are the sums of
    /// the rows that were read. If rows are added meanwhile, the next reading begins after the last row that was read.
    async fn prove_lists(
        &self,
        store: &StoreLog,
        at_once: usize,
        place: (&str, i64),
    ) -> Result<ProofFindings, LogBackendError> {
        let mut begun = (DayProof::default(), None, 0);
        for _ in 0..ATTEMPTS_MAX {
            let kept = self.daily_sums(place).await?;
            let (mut proof, requests, skip) = std::mem::take(&mut begun);
            proof.replace_sums(kept.clone());
            let mut requests = requests.unwrap_or_else(|| SeenRequests::new(proof.requests(), at_once));
            let read = for_each_listed_row(store.lists(), place, skip, |row| {
                proof.add_unnumbered(row);
                requests.insert(row);
            });
            let read = read.await?;
            let there = listed_rows(store, place).await?;
            if there == read as u64 && self.daily_sums(place).await? == kept {
                let mut counts = RowCounts {
                    stored: there,
                    ..RowCounts::default()
                };
                self.add_former(store, requests, (&mut proof, &mut counts), place)
                    .await?;
                return Ok(ProofFindings::from_proof(proof, counts));
            }
            // If the store has fewer rows than were read, it has lost rows, and all are read again.
            if there >= read as u64 {
                begun = (proof, Some(requests), read);
            }
        }
        Err(busy(place.0).into())
    }

    /// Adds those rows of the former log backend that the list lacks, and counts duplicates.
    async fn add_former(
        &self,
        store: &StoreLog,
        mut requests: SeenRequests,
        (proof, counts): (&mut DayProof, &mut RowCounts),
        place: (&str, i64),
    ) -> Result<(), LogBackendError> {
        loop {
            counts.duplicates += requests.duplicates;
            if let Some(former) = self.former {
                for_each_row(former, place, |row| {
                    if requests.insert(row) {
                        proof.add_unnumbered(row);
                        counts.stored += 1;
                    }
                })
                .await?;
            }
            let Some(mut others) = requests.next_part() else {
                return Ok(());
            };
            for_each_listed_row(store.lists(), place, 0, |row| {
                others.insert(row);
            })
            .await?;
            requests = others;
        }
    }

    /// Returns the daily sums of an account and day and, for each lane, the number of the last row that they include. The sums
    /// and the numbers are from the same moment.
    async fn consistent_sums(&self, place: (&str, i64)) -> Result<(DailySums, BTreeMap<NodeId, u64>), StoreError> {
        for _ in 0..ATTEMPTS_MAX {
            let before = self.daily_sums(place).await?;
            let summed = self.ledger.summed_up_to(place.0).await?;
            // Sums only grow. If they are equal before and after, no row of the day was added between.
            if self.daily_sums(place).await? == before {
                return Ok((before, summed));
            }
        }
        Err(busy(place.0))
    }

    /// Reads all daily sums of an account and day.
    async fn daily_sums(&self, (account, day): (&str, i64)) -> Result<DailySums, StoreError> {
        let mut kept = DailySums::default();
        for of in [
            SumSelector::One(SumSubject::Account),
            SumSelector::Keys,
            SumSelector::Tags,
        ] {
            kept.extend(self.ledger.sums(account, day..=day, &of).await?);
        }
        Ok(kept)
    }
}

fn busy(account: &str) -> StoreError {
    StoreError::Busy(format!(
        "cannot compare the rows of account `{account}` with its daily sums: rows are added faster than they can be read; try again later"
    ))
}

/// Returns the number of rows in the store's list of an account and day.
async fn listed_rows(store: &StoreLog, (account, day): (&str, i64)) -> Result<u64, StoreError> {
    let days = store.lists().log_days(account, day..=day).await?;
    Ok(days.iter().map(|day| day.rows).sum())
}

/// Adds a day's rows in the log backend to `proof`, which already contains the rows in the tails. Returns the result of the
/// proof.
async fn read_backend(
    home: &dyn LogBackend,
    mut proof: DayProof,
    (tails, at_once): (&[LaneRows], usize),
    place: (&str, i64),
) -> Result<ProofFindings, LogBackendError> {
    let on_their_way = || tails.iter().flat_map(|of_lane| &of_lane.rows);
    let mut counts = RowCounts {
        pending: on_their_way().count() as u64,
        ..RowCounts::default()
    };
    let mut requests = SeenRequests::new(proof.requests(), at_once);
    loop {
        for row in on_their_way() {
            requests.insert(&row.row);
        }
        let mut day = DayRows::new(home, place);
        while !day.has_ended() {
            let page = day.next(PAGE_ROWS_MAX).await?;
            for ((lane, number), row) in page.numbers.iter().zip(&page.rows) {
                let is_in_both = proof.is_pending(lane, *number);
                if !is_in_both {
                    requests.insert(row);
                }
                if requests.is_first_part() {
                    proof.add(lane, *number, row);
                    counts.stored += 1;
                    counts.pending = counts.pending.saturating_sub(u64::from(is_in_both));
                }
            }
        }
        counts.duplicates += requests.duplicates;
        match requests.next_part() {
            Some(others) => requests = others,
            None => return Ok(ProofFindings::from_proof(proof, counts)),
        }
    }
}

/// Finds duplicates among rows. Only one part of all request ids is in memory at a time. The hash of an id determines its
/// part.
#[derive(Debug)]
struct SeenRequests {
    hashes: RandomState,
    part: u64,
    parts: u64,
    seen: HashSet<u64>,
    /// The number of rows whose request id was inserted before.
    duplicates: u64,
}

impl SeenRequests {
    /// Begins with the first part. The number of parts is such that each part has about `at_once` of the `rows` rows.
    fn new(rows: u64, at_once: usize) -> Self {
        Self {
            hashes: RandomState::new(),
            part: 0,
            parts: rows.div_ceil(at_once.max(1) as u64).max(1),
            seen: HashSet::new(),
            duplicates: 0,
        }
    }

    fn is_first_part(&self) -> bool {
        self.part == 0
    }

    /// Inserts the request id of a row, if it belongs to the current part. Returns whether it was inserted and is new.
    fn insert(&mut self, row: &Row) -> bool {
        let hash = self.hashes.hash_one(&row.request_id);
        if hash % self.parts != self.part {
            return false;
        }
        let is_new = self.seen.insert(hash);
        self.duplicates += u64::from(!is_new);
        is_new
    }

    /// Continues with the next part. Returns `None` if this was the last part.
    fn next_part(self) -> Option<Self> {
        let part = self.part + 1;
        (part < self.parts).then(|| Self {
            part,
            seen: HashSet::new(),
            duplicates: 0,
            ..self
        })
    }
}

#[cfg(test)]
mod tests;
