//! The settings of the consumption log's database.

use std::time::Duration;

use crate::{config::log_postgres::PostgresTls, domain::keys::secret::Secret};

/// `[log.postgres]`, with secrets and files read.
#[derive(Clone, Debug)]
pub(crate) struct PostgresSettings {
    /// `postgres://USER:PASSWORD@HOST:PORT/DATABASE`, or the form `host=... user=...`.
    pub url: Secret,
    pub tls: PostgresTls,
    /// Authorities trusted in place of the platform's, PEM.
    pub ca: Option<Vec<u8>>,
    /// The timeout for a connection that is ready to use.
    pub connect: Duration,
    /// The timeout for committing a batch of rows.
    pub write: Duration,
    /// The timeout for a page of rows.
    pub read: Duration,
    /// The days for which rows are kept.
    pub keep_days: u32,
}
