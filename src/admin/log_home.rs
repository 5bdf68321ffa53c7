//! The log's home beside the store: compares it with the daily sums, and brings to it what it lacks.

use super::{
    Admin, accounts,
    ask::Answered,
    author::Author,
    home::OpenHome,
    verify::{self, DAY_MS},
};
use crate::{
    api::{
        self,
        error::AdminError,
        log::{
            Day,
            checks::{FillLogHome, FilledDay, ShowLogHome, SumsDifference, VerifiedHomeDay, VerifyLogHome},
        },
    },
    domain::ledger::{
        consumption::RETENTION_DAYS,
        daily_sums::{DailySums, DayTags, Subject, differences},
        usage_report::{date, day},
    },
    sinks::{
        comparison::{self, ROWS_AT_ONCE, Source},
        fill,
    },
};

impl Answered for ShowLogHome {
    async fn answer(self, admin: &Admin, _: Author) -> Result<api::log::checks::LogHome, AdminError> {
        let today = admin.ledger.now_ms().await?.div_euclid(DAY_MS);
        let homes = &admin.homes;
        Ok(api::log::checks::LogHome {
            home: homes.home.as_ref().map(|home| home.name().to_owned()),
            former: homes.former.name().map(str::to_owned),
            from: Day(date(today - i64::from(RETENTION_DAYS))),
            until: Day(date(today + 1)),
        })
    }
}

impl Answered for VerifyLogHome {
    async fn answer(self, admin: &Admin, _: Author) -> Result<VerifiedHomeDay, AdminError> {
        let home = home(admin)?;
        let account = accounts::existing(admin, self.account.as_str()).await?.id;
        let number = day(self.day.0);
        let end_ms = number.saturating_add(1).saturating_mul(DAY_MS);
        // Whether the home has all rows of the day that this process knows of.
        let complete = home.figures.complete_before(admin.ledger.now_ms().await?) >= end_ms;
        let kept = verify::kept(&*admin.ledger, &account, number).await?;
        let kept: DailySums = kept.into_iter().collect();
        let of_account = kept.iter().filter(|sum| sum.subject == Subject::Account);
        let expected = of_account.map(|sum| sum.sums.requests).sum();
        let (mut of_rows, mut tags) = (DailySums::default(), DayTags::default());
        let present = comparison::count(&*home.home, (&account, number), (expected, ROWS_AT_ONCE), |row| {
            of_rows.add(row, &mut tags);
        });
        let present = present.await.map_err(|error| AdminError::failed(error.to_string()))?;
        Ok(VerifiedHomeDay {
            account,
            day: self.day,
            home: home.name().to_owned(),
            complete,
            rows: present.rows as u64,
            again: present.again as u64,
            differences: differences(&kept, &of_rows).iter().map(SumsDifference::from).collect(),
        })
    }
}

impl Answered for FillLogHome {
    async fn answer(self, admin: &Admin, author: Author) -> Result<FilledDay, AdminError> {
        let home = home(admin)?;
        let account = accounts::existing(admin, self.account.as_str()).await?.id;
        admin.audit(author.peer, "log.fill", "", &self).await?;
        let _turn = home.filling.lock().await;
        let before_ms = home.figures.complete_before(admin.ledger.now_ms().await?);
        let sources = [Source::Store(&*admin.ledger)].into_iter();
        let mut rows = 0;
        for source in sources.chain(admin.homes.former.elsewhere().map(Source::Home)) {
            let filled = fill::fill(&*home.home, source, (&account, day(self.day.0)), before_ms).await;
            rows += filled.map_err(|error| AdminError::failed(error.to_string()))?;
        }
        Ok(FilledDay {
            account,
            day: self.day,
            home: home.name().to_owned(),
            rows,
        })
    }
}

/// The log's home, if it has another one than the store.
fn home(admin: &Admin) -> Result<OpenHome, AdminError> {
    admin.homes.home.clone().ok_or_else(|| {
        AdminError::invalid("the log has no other home than the store; name one in `[log] home` and start weir anew")
    })
}
