//! The node itself in the admin API: its audit record, the process that takes its place, and a backup of the store that it owns.

use tokio::sync::mpsc;

use super::{Admin, ask::Answered, author::Author};
use crate::{
    api::{
        Question,
        error::AdminError,
        node::{AuditPage, Backup, ListAuditedChanges, Upgrade, Upgraded},
        values::Moment,
    },
    edges::clock,
    store::archive::file::{self, FORMAT, Header},
};

/// Pieces of a backup that wait for the client.
const PIECES_WAITING: usize = 4;

impl Answered for ListAuditedChanges {
    async fn answer(self, admin: &Admin, _: Author) -> Result<AuditPage, AdminError> {
        let page = admin.audit.page(self.before).await;
        page.map_err(|error| AdminError::failed(error.to_string()))
    }
}

impl Answered for Upgrade {
    async fn answer(self, admin: &Admin, author: Author) -> Result<Upgraded, AdminError> {
        let Some(upgrades) = admin.upgrades.clone() else {
            return Err(AdminError::not_found(
                "this weir was not started by `weir serve`: it cannot be upgraded",
            ));
        };
        admin.audit(author.peer, "upgrade", "", &self).await?;
        upgrades.upgrade().await.map_err(AdminError::failed)
    }
}

impl Admin {
    /// The pieces of a backup of a store that this process owns.
    ///
    /// # Errors
    /// The store is shared, or the author may not have it.
    pub(crate) fn back_up(&self, author: &Author, Backup {}: Backup) -> Result<mpsc::Receiver<Vec<u8>>, AdminError> {
        author.peer.check(Backup::ROLE)?;
        let archive = self.archive.clone().ok_or_else(|| {
            AdminError::not_found("this store is shared: `weir store backup` reads it itself, with the configuration")
        })?;
        let header = Header {
            weir_backup: FORMAT,
            time: Moment::of_millis(clock::unix_millis()).map_or_else(String::new, |time| time.to_string()),
            engine: "embedded".to_owned(),
            generation: None,
        };
        let (to, pieces) = mpsc::channel::<Vec<u8>>(PIECES_WAITING);
        tokio::spawn(async move {
            // The client sees that the last line is missing.
            if let Err(error) = file::encode(&*archive, &header, to).await {
                tracing::error!(%error, "a backup was broken off");
            }
        });
        Ok(pieces)
    }
}
