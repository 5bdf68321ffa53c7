//! `weir log init`: creates the database schema and grants rights.

use std::time::Duration;

use crate::sinks::postgres::{
    connection::{PostgresDialer, with_timeout},
    error::PostgresError,
    migrations,
    settings::PostgresSettings,
};

/// The timeout for the whole setup: an index on a large table takes long.
const LIMIT: Duration = Duration::from_secs(3600);

/// Roles that get rights, in addition to the owner of the schema.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Grants {
    /// Roles that may write the log.
    pub writers: Vec<String>,
    /// Roles that may read the log.
    pub readers: Vec<String>,
}

/// Applies the missing migrations and grants the rights; returns the numbers of the applied migrations. Calling it again changes
/// nothing.
pub(crate) async fn set_up(settings: &PostgresSettings, grants: &Grants) -> Result<Vec<i32>, PostgresError> {
    let dialer = PostgresDialer::new(settings)?;
    let mut connection = dialer.connect(LIMIT).await?;
    let client = &mut connection.client;
    with_timeout(LIMIT, async {
        let applied = migrations::apply(client).await?;
        for role in &grants.writers {
            migrations::grant_writer(client, role).await?;
        }
        for role in &grants.readers {
            migrations::grant_reader(client, role).await?;
        }
        Ok(applied)
    })
    .await
}
