//! Questions about the node itself: its audit record, its upgrade, and a backup of the store that it owns.

use tokio::sync::mpsc;

use super::{Admin, ask::AdminHandler, author::Author};
use crate::{
    api::{
        AdminQuestion,
        error::AdminError,
        node::{AuditPage, Backup, ListAuditedChanges, Upgrade, UpgradedProcess},
        values::Moment,
    },
    edges::clock,
    store::archive::file::{self, BackupHeader, FORMAT},
};

/// The maximum number of pieces of a backup that wait for the client.
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
                "only a weir that was started by `weir serve` can be upgraded",
            ));
        };
        admin.audit(author.peer, "upgrade", "", &self).await?;
        upgrades.upgrade().await.map_err(AdminError::failed)
    }
}

impl Admin {
    /// The pieces of a backup of the store that this process owns.
    ///
    /// # Errors
    /// The store is shared, or the author may not make a backup.
    pub(crate) fn back_up(&self, author: &Author, Backup {}: Backup) -> Result<mpsc::Receiver<Vec<u8>>, AdminError> {
        author.peer.check_role(Backup::ROLE)?;
        let archive = self.archive.clone().ok_or_else(|| {
            AdminError::not_found("this store is shared: `weir store backup` with the configuration reads it directly")
        })?;
        let header = BackupHeader {
            weir_backup: FORMAT,
            time: Moment::of_millis(clock::unix_millis()).map_or_else(String::new, |time| time.to_string()),
            engine: "embedded".to_owned(),
            generation: None,
        };
        let (to, pieces) = mpsc::channel::<Vec<u8>>(PIECES_WAITING);
        tokio::spawn(async move {
            // The client notices, because the last line is missing.
            if let Err(error) = file::send_backup(&*archive, &header, to).await {
                tracing::error!(%error, "a backup failed");
            }
        });
        Ok(pieces)
    }
}
