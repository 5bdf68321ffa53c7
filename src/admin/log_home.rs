//! The homes of the log: which they are, what brings rows from the one before, and what removes them there.

use super::{
    Admin, accounts,
    ask::Answered,
    author::Author,
    verify::{self, DAY_MS},
};
use crate::{
    api::{
        error::AdminError,
        log::{
            Day,
            checks::{FillLogHome, FilledDay, LogHome, RemoveFormerRows, RemovedDay, ShowLogHome},
        },
    },
    domain::ledger::{
        consumption::RETENTION_DAYS,
        usage_report::{date, day},
    },
    sinks::{FormerHome, OpenHome, fill},
};

impl Answered for ShowLogHome {
    async fn answer(self, admin: &Admin, _: Author) -> Result<LogHome, AdminError> {
        let today = admin.ledger.now_ms().await?.div_euclid(DAY_MS);
        let homes = &admin.homes;
        Ok(LogHome {
            home: homes.home.name().to_owned(),
            former: homes.former().map(|former| former.name().to_owned()),
            from: Day(date(today - i64::from(RETENTION_DAYS))),
            until: Day(date(today + 1)),
        })
    }
}

impl Answered for FillLogHome {
    async fn answer(self, admin: &Admin, author: Author) -> Result<FilledDay, AdminError> {
        let homes = &admin.homes;
        let OpenHome::Fed(fed) = &homes.home else {
            return Err(AdminError::invalid(
                "the log's home is the store, which gets rows with their settlement only",
            ));
        };
        let former = homes
            .former()
            .ok_or_else(|| AdminError::invalid("`[log] former_home` names no home that rows could be brought from"))?;
        let account = accounts::existing(admin, self.account.as_str()).await?.id;
        admin.audit(author.peer, "log.fill", "", &self).await?;
        let _turn = homes.filling.lock().await;
        let before_ms = fed.figures.complete_before(admin.ledger.now_ms().await?);
        let filled = fill::fill(&*fed.home, former, (&account, day(self.day.0)), before_ms).await;
        Ok(FilledDay {
            account,
            day: self.day,
            home: fed.name().to_owned(),
            rows: filled.map_err(|error| AdminError::failed(error.to_string()))?,
        })
    }
}

impl Answered for RemoveFormerRows {
    async fn answer(self, admin: &Admin, author: Author) -> Result<RemovedDay, AdminError> {
        let Some(FormerHome::Store(store)) = &admin.homes.former else {
            return Err(AdminError::invalid(
                "`[log] former_home` is not the store: what is left at another home is yours to remove",
            ));
        };
        let account = accounts::existing(admin, self.account.as_str()).await?.id;
        let number = day(self.day.0);
        // Seen before the day is proven: the sums count each of these rows, and so does the home then.
        let seen = store.lists().log_days(&account, number..=number).await?.pop();
        let (mut rows, mut proven) = (0, true);
        if let Some(seen) = seen.filter(|seen| seen.rows > 0) {
            proven = verify::prove(admin, &account, number).await?.is_proven();
            if proven {
                admin.audit(author.peer, "log.remove", "", &self).await?;
                // Otherwise a node whose log is still at home in the store has put a row there.
                let is_removed = store.lists().remove(&account, &seen).await?;
                (rows, proven) = (if is_removed { seen.rows } else { 0 }, is_removed);
            }
        }
        Ok(RemovedDay {
            account,
            day: self.day,
            rows,
            proven,
        })
    }
}
