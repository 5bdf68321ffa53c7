//! Calls of the admin API about the log backends: they return which ones there are, copy rows from the former one, and remove
//! rows from it.

use std::sync::Arc;

use tokio::sync::Mutex;

use crate::{
    admin::{
        Admin, accounts,
        errors::AdminHandler,
        peer::Author,
        verify::{self, DAY_MS},
    },
    api::{
        error::AdminError,
        log::{
            UtcDay,
            checks::{FillLogHome, FilledDay, LogBackendView, RemoveFormerRows, RemovedDay, ShowLogHome},
        },
    },
    domain::ledger::{
        consumption::RETENTION_DAYS,
        reports::{date_of_day, day_of_date},
    },
    sinks::{
        FormerLogBackend, LogBackend, OpenLogBackend, backfill, own_journal::OpenLanes, proof::Prover,
        reading::LogReader,
    },
    store::ledger::LedgerStore,
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
                "cannot copy rows: the log backend is the store, which gets rows only by their settlement",
            ));
        };
        let former = homes.former().ok_or_else(|| {
            AdminError::invalid("cannot copy rows: `[log] former_home` does not name a log backend to copy from")
        })?;
        let account = accounts::existing_account(admin, self.account.as_str()).await?.id;
        admin.audit(author.peer, "log.fill", "", &self).await?;
        let _turn = homes.filling.lock().await;
        let before_ms = fed.stats.complete_before(admin.ledger.now_ms().await?);
        let filled = backfill::fill(&*fed.home, former, (&account, day_of_date(self.day.0)), before_ms).await;
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
                "cannot remove rows, because `[log] former_home` is not the store: remove the rows of another log backend yourself",
            ));
        };
        let account = accounts::existing_account(admin, self.account.as_str()).await?.id;
        let number = day_of_date(self.day.0);
        // Counted before the day is compared. So the sums include each of these rows, and the log backend must have each.
        let seen = store.lists().log_days(&account, number..=number).await?.pop();
        let (mut rows, mut proven) = (0, true);
        if let Some(seen) = seen.filter(|seen| seen.rows > 0) {
            proven = verify::prove(admin, &account, number).await?.is_proven();
            if proven {
                admin.audit(author.peer, "log.remove", "", &self).await?;
                // If the rows were not removed, a node that still uses the store as its log backend has added a row meanwhile.
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

/// The log backends that the admin API reads and changes.
#[derive(Clone)]
pub(crate) struct AdminLogBackends {
    /// The current log backend, which gets new rows.
    pub(super) home: OpenLogBackend,
    /// The former log backend, which is still read. `None` if there is none.
    pub(super) former: Option<FormerLogBackend>,
    /// The lanes of the journal that this process has open.
    pub(super) lanes: Arc<OpenLanes>,
    /// Locked while rows are copied to the log backend, because two concurrent calls would copy the same rows.
    pub(super) filling: Arc<Mutex<()>>,
}

impl AdminLogBackends {
    /// Creates the value. `home` gets the rows of `lanes`; `former` is only read.
    pub(crate) fn new(home: OpenLogBackend, former: Option<FormerLogBackend>, lanes: Arc<OpenLanes>) -> Self {
        Self {
            home,
            former,
            lanes,
            filling: Arc::default(),
        }
    }

    /// Returns a reader of the log in both log backends.
    pub(super) fn reading(&self) -> LogReader {
        self.home.reading(self.former.as_ref())
    }

    /// Returns the former log backend, for reading. `None` if there is none.
    pub(super) fn former(&self) -> Option<&dyn LogBackend> {
        self.former.as_ref().map(FormerLogBackend::as_backend)
    }

    /// Returns a prover that compares rows with the daily sums of `ledger`.
    pub(super) fn prover<'p>(&'p self, ledger: &'p dyn LedgerStore) -> Prover<'p> {
        Prover {
            ledger,
            home: &self.home,
            former: self.former(),
            lanes: &self.lanes,
        }
    }
}
