//! Removes old rows by dropping the partitions of past days.

use std::time::Duration;

use tokio::sync::watch;

use crate::sinks::postgres::{
    connection::{PostgresDialer, with_timeout},
    error::PostgresError,
    settings::PostgresSettings,
};

/// The interval of dropping a partition, if one is old enough. The server drops one an hour (`weir.drop_oldest`), however many
/// nodes request it. So weir catches up by 24 days a day, and a clock that is wrong for an hour costs at most one day of rows.
const EVERY: Duration = Duration::from_secs(3600);
/// The pause after a failure.
const AGAIN: Duration = Duration::from_secs(60);

/// The task that drops old partitions. Each node runs one; only one at a time has an effect.
pub(crate) struct PostgresRetention {
    dialer: PostgresDialer,
    settings: PostgresSettings,
}

impl PostgresRetention {
    /// Creates the task without connecting.
    ///
    /// # Errors
    /// [`PostgresError::Settings`].
    pub(crate) fn new(settings: PostgresSettings) -> Result<Self, PostgresError> {
        Ok(Self {
            dialer: PostgresDialer::new(&settings)?,
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
                // The feeder reports that the database is unreachable or not set up.
                Err(error @ (PostgresError::Unreachable(_) | PostgresError::Timeout(_) | PostgresError::NotReady)) => {
                    tracing::debug!(%error, "old rows stay in postgres for now");
                    AGAIN
                }
                Err(error) => {
                    tracing::warn!(%error, "old rows stay in postgres, weir tries again in an hour");
                    EVERY
                }
            };
            tokio::select! {
                _ = stopped.wait_for(|stopped| *stopped) => return,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Drops the oldest partition if it is too old; returns its day.
    pub(super) async fn drop_oldest(&self) -> Result<Option<jiff::civil::Date>, PostgresError> {
        let connection = self.dialer.connect(self.settings.write).await?;
        let keep = i32::try_from(self.settings.keep_days).unwrap_or(i32::MAX);
        let row = with_timeout(self.settings.write, async {
            let statement = "SELECT weir.drop_oldest($1)";
            Ok(connection.client.query_one(statement, &[&keep]).await?)
        });
        let row = row.await?;
        Ok(row.try_get(0)?)
    }
}
