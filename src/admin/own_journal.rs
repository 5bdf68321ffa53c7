//! Compares the rows in this process's journals with those of the log.

use super::{Admin, ask::AdminHandler, author::Author};
use crate::{
    api::{
        error::AdminError,
        log::{
            UtcDay,
            checks::{FillFromJournal, JournalDayView, JournalDays, VerifyJournal},
        },
        names::AccountId,
    },
    domain::ledger::usage_report::{date_of_day, day_of_date},
    sinks::own_journal::{self, ComparedLog, JournalPortion, ROWS_AT_ONCE, RowSelection},
};

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
    /// The position in the journals to continue from.
    fn journal_position(&self) -> Result<Option<own_journal::LanePosition>, AdminError> {
        let place = self.after.as_deref().map(str::parse).transpose();
        place.map_err(|()| AdminError::of_field("after", "it must be the `next` of an answer"))
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
