//! Calls of the admin API about this node: its audit record, its upgrade, its models and providers, and a backup of the store
//! that it owns.

use std::sync::Arc;

use serde::Serialize;
use tokio::sync::mpsc;

use crate::{
    admin::{Admin, errors::AdminHandler, peer::Author},
    api::{
        AdminQuestion,
        error::AdminError,
        node::{
            AuditPage, Backup, DisableProvider, EnableProvider, ListAuditedChanges, ListModels, ListProviders,
            ModelList, ProviderList, SwitchedProvider, Upgrade, UpgradedProcess,
        },
        values::Moment,
    },
    edges::clock,
    store::archive::file::{self, BackupHeader, FORMAT},
};

/// The maximum number of pieces of a backup that wait to be sent.
const PIECES_WAITING: usize = 4;

impl AdminHandler for ListAuditedChanges {
    async fn answer(self, admin: &Admin, _: Author) -> Result<AuditPage, AdminError> {
        let page = admin.audit.read_page(self.before).await;
        page.map_err(|error| AdminError::failed(error.to_string()))
    }
}

impl AdminHandler for Upgrade {
    async fn answer(self, admin: &Admin, author: Author) -> Result<UpgradedProcess, AdminError> {
        let Some(upgrades) = admin.upgrades.clone() else {
            return Err(AdminError::not_found(
                "cannot upgrade this process: only a weir that was started by `weir serve` can be upgraded",
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
            AdminError::not_found("cannot back up the store through this process, because several nodes share it: run `weir store backup` with the configuration, which reads the store directly")
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
            if let Err(error) = file::send_backup(&*archive, &header, to).await {
                tracing::error!(%error, "cannot complete a backup of the store: the client has got only a part");
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

/// The values that the audit record has for switching a provider on or off.
#[derive(Serialize)]
struct AuditedSwitch<'a> {
    provider: &'a str,
}

async fn switch(admin: &Admin, author: Author, name: String, on: bool) -> Result<SwitchedProvider, AdminError> {
    let known = admin.providers.providers();
    // A provider that is no longer configured can still be switched on. Otherwise the record that it is off would remain for
    // ever.
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
            "cannot switch on {name}, because it is off by its configuration: {why}"
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
    let changed = changed.map_err(|error| AdminError::failed(format!("cannot save whether {name} is on: {error}")))?;
    Ok(SwitchedProvider {
        provider: name,
        enabled: on,
        changed,
    })
}
