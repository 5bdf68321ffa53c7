//! How long rows are kept: by dropping the partitions of days that are too long ago.

use std::time::Duration;

use tokio::sync::watch;

use crate::sinks::postgres::{
    connection::{Dialer, within},
    error::PostgresError,
    settings::PostgresSettings,
};

/// How often a partition is dropped, if one is old enough. The server drops one an hour (`weir.drop_oldest`), however many nodes
/// ask, so weir catches up by 24 days a day, and a clock that is off for an hour costs a day of rows at most.
const EVERY: Duration = Duration::from_secs(3600);
/// The pause after a failure.
const AGAIN: Duration = Duration::from_secs(60);

/// The task that drops them. Each node has one; one at a time does something.
pub(crate) struct Retention {
    dialer: Dialer,
    settings: PostgresSettings,
}

impl Retention {
    /// Connects nowhere yet.
    ///
    /// # Errors
    /// [`PostgresError::Settings`].
    pub(crate) fn new(settings: PostgresSettings) -> Result<Self, PostgresError> {
        Ok(Self {
            dialer: Dialer::new(&settings)?,
            settings,
        })
    }

    /// Runs until `stopped` turns true.
    pub(crate) async fn run(self, mut stopped: watch::Receiver<bool>) {
        loop {
            let pause = match self.drop_oldest().await {
                Ok(dropped) => {
                    if let Some(day) = dropped {
                        tracing::info!(%day, "the rows of a day are no longer in postgres");
                    }
                    EVERY
                }
                // That it is away, or not set up, is said by whoever writes to it.
                Err(error @ (PostgresError::Away(_) | PostgresError::Late(_) | PostgresError::NotReady)) => {
                    tracing::debug!(%error, "old rows stay in postgres for now");
                    AGAIN
                }
                Err(error) => {
                    tracing::warn!(%error, "old rows stay in postgres, it is tried again in an hour");
                    EVERY
                }
            };
            tokio::select! {
                _ = stopped.wait_for(|stopped| *stopped) => return,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Drops the oldest partition if it is too old; says which day that was.
    pub(super) async fn drop_oldest(&self) -> Result<Option<jiff::civil::Date>, PostgresError> {
        let connection = self.dialer.connect(self.settings.write).await?;
        let keep = i32::try_from(self.settings.keep_days).unwrap_or(i32::MAX);
        let row = within(self.settings.write, async {
            let statement = "SELECT weir.drop_oldest($1)";
            Ok(connection.client.query_one(statement, &[&keep]).await?)
        });
        let row = row.await?;
        Ok(row.try_get(0)?)
    }
}
