//! Calls of the admin API about this node: its audit record, its upgrade, its models and providers, its log backends, and a
//! backup of the store that it owns.

use std::sync::Arc;

use serde::Serialize;
use tokio::sync::{Mutex, mpsc};

use crate::{
    admin::{
        Admin, AdminHandler, accounts,
        audit::Author,
        verify::{self, DAY_MS},
    },
    api::{
        AdminError, AdminQuestion,
        log::{
            UtcDay,
            checks::{FillLogHome, FilledDay, LogBackendView, RemoveFormerRows, RemovedDay, ShowLogHome},
        },
        node::{
            AuditPage, Backup, DisableProvider, EnableProvider, ListAuditedChanges, ListModels, ListProviders,
            ModelList, ProviderList, SwitchedProvider, Upgrade, UpgradedProcess,
        },
        values::Moment,
    },
    domain::ledger::{
        consumption::RETENTION_DAYS,
        reports::{date_of_day, day_of_date},
    },
    edges::clock,
    sinks::{
        FormerLogBackend, LogBackend, OpenLogBackend, backfill, own_journal::OpenLanes, proof::Prover,
        reading::LogReader,
    },
    store::{
        archive::{self, BackupHeader, FORMAT},
        ledger::LedgerStore,
    },
};

/// The maximum number of pieces of a backup that wait to be sent.
const PIECES_WAITING: usize = 4;

impl AdminHandler for ListAuditedChanges {
    async fn answer(self, admin: &Admin, _: Author) -> Result<AuditPage, AdminError> {
        let page = admin.audit.read_page(self.before).await;
        page.map_err(|error| AdminError::failed(format!("cannot read the audit record: {error}")))
    }
}

impl AdminHandler for Upgrade {
    async fn answer(self, admin: &Admin, author: Author) -> Result<UpgradedProcess, AdminError> {
        let Some(upgrades) = admin.upgrades.clone() else {
            return Err(AdminError::not_found(
                "cannot upgrade this process: only a process that was started by `weir serve` can be upgraded",
            ));
        };
        admin.audit(author.peer, "upgrade", "", &self).await?;
        upgrades.upgrade().await.map_err(AdminError::failed)
    }
}

impl Admin {
    /// Begins a backup of the store that this process owns, and returns the receiver of its pieces.
    ///
    /// # Errors
    /// The store is not owned by this process, or the author's role does not permit a backup.
    pub(crate) fn back_up(&self, author: &Author, Backup {}: Backup) -> Result<mpsc::Receiver<Vec<u8>>, AdminError> {
        author.peer.check_role(Backup::ROLE)?;
        let archive = self.archive.clone().ok_or_else(|| {
            AdminError::not_found("cannot back up the store through this process, because several nodes share it: run `weir store backup --conf FILE`, which reads the store directly")
        })?;
        let header = BackupHeader {
            weir_backup: FORMAT,
            time: Moment::of_millis(clock::unix_millis()).map_or_else(String::new, |time| time.to_string()),
            engine: "embedded".to_owned(),
            generation: None,
        };
        let (to, pieces) = mpsc::channel::<Vec<u8>>(PIECES_WAITING);
        tokio::spawn(async move {
            // The client notices the failure, because the last line of the backup is missing.
            if let Err(error) = archive::send_backup(&*archive, &header, to).await {
                tracing::error!(%error, "a backup of the store failed; the client received only a part of the backup");
            }
        });
        Ok(pieces)
    }
}

impl AdminHandler for ListModels {
    async fn answer(self, admin: &Admin, _: Author) -> Result<ModelList, AdminError> {
        let models = admin.providers.models();
        Ok(ModelList { models })
    }
}

impl AdminHandler for ListProviders {
    async fn answer(self, admin: &Admin, _: Author) -> Result<ProviderList, AdminError> {
        let providers = admin.providers.providers();
        Ok(ProviderList { providers })
    }
}

impl AdminHandler for EnableProvider {
    async fn answer(self, admin: &Admin, author: Author) -> Result<SwitchedProvider, AdminError> {
        switch(admin, author, self.name, true).await
    }
}

impl AdminHandler for DisableProvider {
    async fn answer(self, admin: &Admin, author: Author) -> Result<SwitchedProvider, AdminError> {
        switch(admin, author, self.name, false).await
    }
}

/// The values that the audit record contains when a provider is switched on or off.
#[derive(Serialize)]
struct AuditedSwitch<'a> {
    provider: &'a str,
}

async fn switch(admin: &Admin, author: Author, name: String, on: bool) -> Result<SwitchedProvider, AdminError> {
    let known = admin.providers.providers();
    // A provider that is no longer configured can be switched on, because otherwise the record that it is off would remain
    // forever.
    if !on && known.iter().all(|provider| provider.name != name) {
        let names: Vec<&str> = known.iter().map(|provider| provider.name.as_str()).collect();
        return Err(AdminError::not_found(format!(
            "provider `{name}` does not exist; the providers are {}",
            names.join(", ")
        )));
    }
    let of_name = known.iter().find(|provider| provider.name == name);
    if on && let Some(why) = of_name.and_then(|provider| provider.why_off.as_deref()) {
        return Err(AdminError::invalid(format!(
            "cannot enable provider {name}, because its configuration disables it: {why}"
        )));
    }
    let operation = if on { "provider.enable" } else { "provider.disable" };
    admin
        .audit(author.peer, operation, "", &AuditedSwitch { provider: &name })
        .await?;
    let providers = Arc::clone(&admin.providers);
    let changing = {
        let name = name.clone();
        tokio::task::spawn_blocking(move || providers.switch(&name, on))
    };
    let changed = changing.await.map_err(|error| AdminError::failed(error.to_string()))?;
    let changed = changed
        .map_err(|error| AdminError::failed(format!("cannot save whether provider {name} is enabled: {error}")))?;
    Ok(SwitchedProvider {
        provider: name,
        enabled: on,
        changed,
    })
}

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
                "cannot copy rows: the log backend is the store, which gets rows only by settlement",
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
        // The rows are counted before the day is compared. Therefore the sums include each of these rows, and the log backend
        // must have each of them.
        let seen = store.lists().log_days(&account, number..=number).await?.pop();
        let (mut rows, mut proven) = (0, true);
        if let Some(seen) = seen.filter(|seen| seen.rows > 0) {
            let found = verify::prove(admin, &account, number).await?;
            // A row that only the journal has would be lost with the journal.
            proven = found.is_proven() && found.counts.pending == 0;
            if proven {
                admin.audit(author.peer, "log.remove", "", &self).await?;
                // If the rows were not removed, a node that still uses the store as its log backend has added a row in the
                // meantime.
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
    /// The former log backend, which is still read. `None` if no former log backend is configured.
    pub(super) former: Option<FormerLogBackend>,
    /// The journal's lanes that are open in this process.
    pub(super) lanes: Arc<OpenLanes>,
    /// Locked while rows are copied to the log backend, because two concurrent calls would copy the same rows.
    pub(super) filling: Arc<Mutex<()>>,
}

impl AdminLogBackends {
    /// Combines the two log backends. `home` is the current log backend, which gets the rows of `lanes`. `former` is the former
    /// log backend, which is only read.
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

    /// Returns the former log backend, for reading. `None` if no former log backend is configured.
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
