//! Questions about the log backends: which they are, copying rows from the former one, and removing them there.

use super::{
    Admin, accounts,
    ask::AdminHandler,
    author::Author,
    verify::{self, DAY_MS},
};
use crate::{
    api::{
        error::AdminError,
        log::{
            UtcDay,
            checks::{FillLogHome, FilledDay, LogBackendView, RemoveFormerRows, RemovedDay, ShowLogHome},
        },
    },
    domain::ledger::{
        consumption::RETENTION_DAYS,
        usage_report::{date_of_day, day_of_date},
    },
    sinks::{FormerLogBackend, OpenLogBackend, fill},
};

impl AdminHandler for ShowLogHome {
    async fn answer(self, admin: &Admin, _: Author) -> Result<LogBackendView, AdminError> {
        let today = admin.ledger.now_ms().await?.div_euclid(DAY_MS);
        let homes = &admin.homes;
        Ok(LogBackendView {
            home: homes.home.name().to_owned(),
            former: homes.former().map(|former| former.name().to_owned()),
            from: UtcDay(date_of_day(today - i64::from(RETENTION_DAYS))),
            until: UtcDay(date_of_day(today + 1)),
        })
    }
}

impl AdminHandler for FillLogHome {
    async fn answer(self, admin: &Admin, author: Author) -> Result<FilledDay, AdminError> {
        let homes = &admin.homes;
        let OpenLogBackend::Fed(fed) = &homes.home else {
            return Err(AdminError::invalid(
                "the log backend is the store, which gets rows only by their settlement",
            ));
        };
        let former = homes.former().ok_or_else(|| {
            AdminError::invalid("`[log] former_home` is not set: there is no former backend to copy rows from")
        })?;
        let account = accounts::existing_account(admin, self.account.as_str()).await?.id;
        admin.audit(author.peer, "log.fill", "", &self).await?;
        let _turn = homes.filling.lock().await;
        let before_ms = fed.stats.complete_before(admin.ledger.now_ms().await?);
        let filled = fill::fill(&*fed.home, former, (&account, day_of_date(self.day.0)), before_ms).await;
        Ok(FilledDay {
            account,
            day: self.day,
            home: fed.name().to_owned(),
            rows: filled.map_err(|error| AdminError::failed(error.to_string()))?,
        })
    }
}

impl AdminHandler for RemoveFormerRows {
    async fn answer(self, admin: &Admin, author: Author) -> Result<RemovedDay, AdminError> {
        let Some(FormerLogBackend::Store(store)) = &admin.homes.former else {
            return Err(AdminError::invalid(
                "`[log] former_home` is not the store: remove the rows of another backend yourself",
            ));
        };
        let account = accounts::existing_account(admin, self.account.as_str()).await?.id;
        let number = day_of_date(self.day.0);
        // Counted before the day is compared: the sums include each of these rows, and so must the backend.
        let seen = store.lists().log_days(&account, number..=number).await?.pop();
        let (mut rows, mut proven) = (0, true);
        if let Some(seen) = seen.filter(|seen| seen.rows > 0) {
            proven = verify::prove(admin, &account, number).await?.is_proven();
            if proven {
                admin.audit(author.peer, "log.remove", "", &self).await?;
                // If not, a node that still uses the store as its log backend has added a row.
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
