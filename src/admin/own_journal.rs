//! The rows that this process's journals still have, beside those of the log.

use super::{Admin, ask::Answered, author::Author};
use crate::{
    api::{
        error::AdminError,
        log::{
            Day,
            checks::{FillFromJournal, JournalDay, JournalDays, VerifyJournal},
        },
        names::AccountId,
    },
    domain::ledger::usage_report::{date, day},
    sinks::own_journal::{self, Log, Portion, ROWS_AT_ONCE, Wanted},
};

impl Answered for VerifyJournal {
    async fn answer(self, admin: &Admin, _: Author) -> Result<JournalDays, AdminError> {
        self.compare(admin, false).await
    }
}

impl Answered for FillFromJournal {
    async fn answer(self, admin: &Admin, author: Author) -> Result<JournalDays, AdminError> {
        let Self(asked) = self;
        asked.place()?;
        admin.audit(author.peer, "log.fill", "", &asked).await?;
        let _turn = admin.homes.filling.lock().await;
        asked.compare(admin, true).await
    }
}

impl VerifyJournal {
    /// The place in the journals to go on from.
    fn place(&self) -> Result<Option<own_journal::JournalPlace>, AdminError> {
        let place = self.after.as_deref().map(str::parse).transpose();
        place.map_err(|()| AdminError::of_field("after", "what an answer has as `next`"))
    }

    async fn compare(&self, admin: &Admin, fills: bool) -> Result<JournalDays, AdminError> {
        let from = self.place()?;
        let wanted = Wanted {
            days: day(self.from.0)..day(self.until.0),
            account: self.account.as_ref().map(AccountId::to_string),
        };
        let homes = &admin.homes;
        let log = Log {
            home: &homes.home,
            former: homes.former(),
            ledger: &*admin.ledger,
            fills,
        };
        let portion = own_journal::compare(log, &homes.lanes, &wanted, from.as_ref(), ROWS_AT_ONCE).await;
        let Portion { days, next } = portion.map_err(|error| AdminError::failed(error.to_string()))?;
        let days = days.into_iter().map(|((account, day), found)| JournalDay {
            account: account.into(),
            day: Day(date(day)),
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
