//! Compares the daily sums with the rows that they are the sums of, and makes them anew. Of days whose rows have left for the
//! log's home, the store's part of that is how many there were (`log_home.rs` has the other).

use std::collections::BTreeMap;

use smol_str::SmolStr;

use super::{Admin, accounts, ask::Answered, author::Author};
use crate::{
    api::{
        error::AdminError,
        log::checks::{MendLog, MendedDay, NoteVerifiedLog, NotedVerified, SumsDifference, VerifiedDay, VerifyLog},
    },
    domain::ledger::{
        LogDay, NodeId,
        daily_sums::{DailySum, DailySums, DayTags, Difference, Subject, Sums, SumsOf, differences},
        usage_report::day,
    },
    store::{
        StoreError,
        ledger::{LOG_ROWS_MAX, LedgerStore},
    },
};

/// How often a day is looked at again because rows came meanwhile.
const ATTEMPTS_MAX: usize = 16;
pub(super) const DAY_MS: i64 = 24 * 3_600_000;

/// What a day's comparison finds.
struct Compared {
    rows: usize,
    /// How many have left the store for the log's home, which is compared with the same sums.
    trimmed: u64,
    /// Whether the keys' sums add up to the account's.
    sums_agree: bool,
    differences: Vec<Difference>,
}

impl Answered for VerifyLog {
    async fn answer(self, admin: &Admin, _: Author) -> Result<VerifiedDay, AdminError> {
        let account = accounts::existing(admin, self.account.as_str()).await?.id;
        let compared = compare(&*admin.ledger, &account, day(self.day.0)).await?;
        Ok(VerifiedDay {
            account,
            day: self.day,
            rows: compared.rows as u64,
            trimmed: compared.trimmed,
            sums_agree: compared.sums_agree,
            differences: compared.differences.iter().map(SumsDifference::from).collect(),
        })
    }
}

impl Answered for NoteVerifiedLog {
    async fn answer(self, admin: &Admin, _: Author) -> Result<NotedVerified, AdminError> {
        let now_ms = admin.ledger.now_ms().await?;
        let counts = (day(self.from.0)..day(self.until.0)).contains(&(now_ms.div_euclid(DAY_MS) - 1));
        if counts {
            admin.log.note_verified(now_ms.div_euclid(1000));
        }
        Ok(NotedVerified { counts })
    }
}

impl Answered for MendLog {
    async fn answer(self, admin: &Admin, author: Author) -> Result<MendedDay, AdminError> {
        let account = accounts::existing(admin, self.account.as_str()).await?.id;
        let number = day(self.day.0);
        let standing = log_day(&*admin.ledger, &account, number).await?;
        if standing.trimmed > 0 {
            return Err(AdminError::invalid(format!(
                "{} rows of account `{account}` on {} have left the store for the log's home, so the store cannot make their sums \
                 anew: they stay as they were when the home was found to have the same",
                standing.trimmed, self.day
            )));
        }
        admin.audit(author.peer, "log.mend", "", &self).await?;
        admin.ledger.resum(&account, number).await?;
        Ok(MendedDay {
            account,
            day: self.day,
            mended: true,
        })
    }
}

/// Compares a day of an account, as of one moment: no row has come between the rows that were read and the sums.
async fn compare(ledger: &dyn LedgerStore, account: &str, day: i64) -> Result<Compared, StoreError> {
    let (mut of_rows, mut tags, mut rows) = (DailySums::default(), DayTags::default(), 0);
    let mut before = log_day(ledger, account, day).await?;
    for _ in 0..ATTEMPTS_MAX {
        let now = log_day(ledger, account, day).await?;
        if now.trimmed != before.trimmed {
            (before, of_rows, tags, rows) = (now, DailySums::default(), DayTags::default(), 0);
        }
        rows += loop {
            let page = ledger.rows(account, day, rows, LOG_ROWS_MAX).await?;
            page.iter().for_each(|row| of_rows.add(row, &mut tags));
            if page.len() < LOG_ROWS_MAX {
                break page.len();
            }
            rows += page.len();
        };
        let kept = kept(ledger, account, day).await?;
        let now = log_day(ledger, account, day).await?;
        if now.trimmed == before.trimmed && now.rows == rows as u64 {
            let sums_agree = agree(&kept);
            let kept: DailySums = kept.into_iter().collect();
            let differences = if now.trimmed == 0 {
                differences(&kept, &of_rows)
            } else {
                of_count(day, &kept, now).into_iter().collect()
            };
            return Ok(Compared {
                rows,
                trimmed: now.trimmed,
                sums_agree,
                differences,
            });
        }
    }
    Err(StoreError::Busy(format!(
        "rows of account `{account}` come faster than they are read; try again later"
    )))
}

/// What the store has of a day of an account.
async fn log_day(ledger: &dyn LedgerStore, account: &str, day: i64) -> Result<LogDay, StoreError> {
    let standing = ledger.log_days(account, day..=day).await?.pop();
    Ok(standing.unwrap_or(LogDay {
        day,
        ..LogDay::default()
    }))
}

/// Of a day with rows that have left, the store knows how many there are: whether its sums count as many.
fn of_count(day: i64, kept: &DailySums, standing: LogDay) -> Option<Difference> {
    let of_account = kept.iter().filter(|sum| sum.subject == Subject::Account);
    let kept = of_account.fold(Sums::default(), |all, sum| all.plus(&sum.sums));
    let requests = |requests| Sums {
        requests,
        ..Sums::default()
    };
    (kept.requests != standing.ever()).then(|| Difference {
        day,
        subject: Subject::Account,
        model: SmolStr::default(),
        kept: requests(kept.requests),
        of_rows: requests(standing.ever()),
    })
}

/// The daily sums of a day, and up to which number of each lane its rows are in them, as of one moment.
pub(super) async fn standing(
    ledger: &dyn LedgerStore,
    account: &str,
    day: i64,
) -> Result<(DailySums, BTreeMap<NodeId, u64>), StoreError> {
    for _ in 0..ATTEMPTS_MAX {
        let before = kept(ledger, account, day).await?;
        let summed = ledger.summed(account).await?;
        // Sums only grow: between two that are equal no row of the day has come.
        if kept(ledger, account, day).await? == before {
            return Ok((before.into_iter().collect(), summed));
        }
    }
    Err(StoreError::Busy(format!(
        "rows of account `{account}` come faster than their sums are read; try again later"
    )))
}

/// All daily sums of a day of an account.
async fn kept(ledger: &dyn LedgerStore, account: &str, day: i64) -> Result<Vec<DailySum>, StoreError> {
    let mut kept = Vec::new();
    for of in [SumsOf::One(Subject::Account), SumsOf::Keys, SumsOf::Tags] {
        kept.extend(ledger.sums(account, day..=day, &of).await?);
    }
    Ok(kept)
}

/// Whether what the keys have adds up to what the account has.
fn agree(kept: &[DailySum]) -> bool {
    let together = |takes: fn(&Subject) -> bool| {
        let taken = kept.iter().filter(|sum| takes(&sum.subject));
        taken.fold(Sums::default(), |all, sum| all.plus(&sum.sums))
    };
    together(|subject| *subject == Subject::Account) == together(|subject| matches!(subject, Subject::Key(_)))
}
