//! `weir log init`: makes what a database needs, and says who may use it.

use std::time::Duration;

use crate::sinks::postgres::{
    connection::{Dialer, within},
    error::PostgresError,
    migrations,
    settings::PostgresSettings,
};

/// Longest time for all of it: an index on a large table takes its time.
const LIMIT: Duration = Duration::from_secs(3600);

/// Roles that get rights, besides whoever owns what is made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Grants {
    /// These may write the log.
    pub writers: Vec<String>,
    /// These may read it.
    pub readers: Vec<String>,
}

/// Makes what is missing, and grants. Answers with the numbers of the migrations that were applied now. Doing it again
/// changes nothing.
pub(crate) async fn set_up(settings: &PostgresSettings, grants: &Grants) -> Result<Vec<i32>, PostgresError> {
    let dialer = Dialer::new(settings)?;
    let mut connection = dialer.connect(LIMIT).await?;
    let client = &mut connection.client;
    within(LIMIT, async {
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
