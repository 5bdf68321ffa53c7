//! Calls of the admin API that compare daily sums with the rows in all log backends, and replace wrong sums.

use crate::{
    admin::{Admin, AdminHandler, accounts, audit::Author},
    api::{
        AdminError,
        log::{
            UtcDay,
            checks::{
                FillFromJournal, JournalDayView, JournalDays, MendLog, MendedDay, NoteVerifiedLog, SumsDifference,
                VerificationReply, VerifiedCounters, VerifiedDay, VerifyCounters, VerifyJournal, VerifyLog,
                WrongCounter,
            },
        },
        values::AccountId,
    },
    domain::ledger::{
        NodeId,
        reports::{date_of_day, day_of_date},
    },
    sinks::{
        LogBackendError, counters,
        own_journal::{self, ComparedLog, JournalPortion, ROWS_AT_ONCE, RowSelection},
        proof::ProofFindings,
        reading::LogReadError,
    },
    store::StoreError,
};

pub(super) const DAY_MS: i64 = 24 * 3_600_000;

impl AdminHandler for VerifyLog {
    async fn answer(self, admin: &Admin, _: Author) -> Result<VerifiedDay, AdminError> {
        let account = accounts::existing_account(admin, self.account.as_str()).await?.id;
        let ProofFindings { counts, verdict, .. } = prove(admin, &account, day_of_date(self.day.0)).await?;
        Ok(VerifiedDay {
            account,
            day: self.day,
            home: admin.homes.home.name().to_owned(),
            rows: counts.stored,
            on_their_way: counts.pending,
            again: counts.duplicates,
            behind: verdict.behind.iter().map(NodeId::to_string).collect(),
            missing: verdict.missing,
            sums_agree: verdict.sums_agree,
            differences: verdict.differences.iter().map(SumsDifference::from).collect(),
        })
    }
}

impl AdminHandler for NoteVerifiedLog {
    async fn answer(self, admin: &Admin, _: Author) -> Result<VerificationReply, AdminError> {
        let now_ms = admin.ledger.now_ms().await?;
        let counts = (day_of_date(self.from.0)..day_of_date(self.until.0)).contains(&(now_ms.div_euclid(DAY_MS) - 1));
        if counts {
            admin.log.record_verified(now_ms.div_euclid(1000));
        }
        Ok(VerificationReply { counts })
    }
}

impl AdminHandler for MendLog {
    async fn answer(self, admin: &Admin, author: Author) -> Result<MendedDay, AdminError> {
        let account = accounts::existing_account(admin, self.account.as_str()).await?.id;
        admin.audit(author.peer, "log.mend", "", &self).await?;
        let (name, number) = (admin.homes.home.name(), day_of_date(self.day.0));
        let found = prove(admin, &account, number).await?;
        if let [lane, ..] = &*found.verdict.behind {
            return Err(AdminError::invalid(format!(
                "{lane} may still bring rows of account `{account}` on {} to the log backend ({name}), so the sums of its rows may \
                 be incomplete; try again later",
                self.day
            )));
        }
        if found.counts.duplicates > 0 {
            return Err(AdminError::invalid(format!(
                "the log backend ({name}) has {} duplicate rows of account `{account}` on {}: remove them first, as described in docs/log.md",
                found.counts.duplicates, self.day
            )));
        }
        let is_whole = found.verdict.differences.is_empty();
        let ledger = &*admin.ledger;
        if !is_whole && !ledger.put_sums(&account, number, &found.sums, found.requests).await? {
            let message = format!(
                "cannot replace the sums of account `{account}`: further rows were settled meanwhile; try again"
            );
            return Err(StoreError::Busy(message).into());
        }
        Ok(MendedDay {
            account,
            day: self.day,
            mended: true,
        })
    }
}

/// Compares the rows of one account and one day with the daily sums of that account and day.
pub(super) async fn prove(admin: &Admin, account: &str, day: i64) -> Result<ProofFindings, AdminError> {
    let found = admin.homes.prover(&*admin.ledger).prove(account, day).await;
    found.map_err(|error: LogBackendError| LogReadError::from(error).into())
}

impl AdminHandler for VerifyCounters {
    async fn answer(self, admin: &Admin, _: Author) -> Result<VerifiedCounters, AdminError> {
        let account = accounts::existing_account(admin, self.account.as_str()).await?.id;
        let days = day_of_date(self.from.0)..day_of_date(self.until.0);
        let counted = counters::compare(&*admin.ledger, admin.log(), &account, &days).await;
        let counted = counted.map_err(|error| AdminError::failed(error.to_string()))?;
        Ok(VerifiedCounters {
            account,
            differences: counted.differences.iter().map(WrongCounter::from).collect(),
            compared: counted.compared,
            moving: counted.moving,
            older_than_sums: counted.older_than_sums,
        })
    }
}

impl AdminHandler for VerifyJournal {
    async fn answer(self, admin: &Admin, _: Author) -> Result<JournalDays, AdminError> {
        self.compare(admin, false).await
    }
}

impl AdminHandler for FillFromJournal {
    async fn answer(self, admin: &Admin, author: Author) -> Result<JournalDays, AdminError> {
        let Self(asked) = self;
        asked.journal_position()?;
        admin.audit(author.peer, "log.fill", "", &asked).await?;
        let _turn = admin.homes.filling.lock().await;
        asked.compare(admin, true).await
    }
}

impl VerifyJournal {
    /// Returns the position in the journals from which the comparison continues. `None` for the beginning.
    fn journal_position(&self) -> Result<Option<own_journal::LanePosition>, AdminError> {
        let place = self.after.as_deref().map(str::parse).transpose();
        place.map_err(|()| AdminError::of_field("after", "the value must be the `next` of a previous answer"))
    }

    async fn compare(&self, admin: &Admin, fills: bool) -> Result<JournalDays, AdminError> {
        let from = self.journal_position()?;
        let wanted = RowSelection {
            days: day_of_date(self.from.0)..day_of_date(self.until.0),
            account: self.account.as_ref().map(AccountId::to_string),
        };
        let homes = &admin.homes;
        let log = ComparedLog {
            home: &homes.home,
            former: homes.former(),
            ledger: &*admin.ledger,
            fills,
        };
        let portion = own_journal::compare(log, &homes.lanes, &wanted, from.as_ref(), ROWS_AT_ONCE).await;
        let JournalPortion { days, next } = portion.map_err(|error| AdminError::failed(error.to_string()))?;
        let days = days.into_iter().map(|((account, day), found)| JournalDayView {
            account: account.into(),
            day: UtcDay(date_of_day(day)),
            rows: found.rows,
            missing: found.missing,
            differing: found.differing,
            brought: found.brought,
            requests: found.named,
        });
        Ok(JournalDays {
            days: days.collect(),
            next: next.map(|next| next.to_string()),
        })
    }
}
