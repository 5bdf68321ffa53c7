//! The log's home in Postgres, from its settings.

use std::{path::Path, sync::Arc};

use tokio::{runtime::Runtime, sync::watch};

use crate::{
    config::{log_postgres::LogPostgresConfig, secret_source},
    domain::{catalogue::SecretRef, keys::secret::Secret, ledger::consumption::RETENTION_DAYS},
    sinks::postgres::{PostgresLog, PostgresSettings, Retention},
    wiring::StartError,
};

/// Connects nowhere yet: a database that is away keeps weir from nothing.
pub(super) fn open(
    config: &LogPostgresConfig,
    background: &Runtime,
    stopped: &watch::Receiver<bool>,
) -> Result<Arc<PostgresLog>, StartError> {
    let wrong = |error: &dyn std::fmt::Display| StartError::Configuration(error.to_string());
    let settings = settings(config, &config.url)?;
    let retention = Retention::new(settings.clone()).map_err(|error| wrong(&error))?;
    let log = PostgresLog::new(settings).map_err(|error| wrong(&error))?;
    background.spawn(retention.run(stopped.clone()));
    Ok(Arc::new(log))
}

/// The settings, with the connection string that a reference names.
pub(super) fn settings(config: &LogPostgresConfig, url: &SecretRef) -> Result<PostgresSettings, StartError> {
    Ok(PostgresSettings {
        url: secret("[log.postgres] url", url)?,
        tls: config.tls,
        ca: config
            .ca_file
            .as_deref()
            .map(|path| pem("[log.postgres] ca_file", path))
            .transpose()?,
        connect: config.connect,
        write: config.write,
        read: config.read,
        keep_days: RETENTION_DAYS,
    })
}

/// A secret that has to be there.
pub(super) fn secret(key: &str, reference: &SecretRef) -> Result<Secret, StartError> {
    match secret_source::read(reference) {
        Ok(Some(secret)) => Ok(secret),
        Ok(None) => Err(StartError::Configuration(format!("{key}: {reference} is not there"))),
        Err(reason) => Err(StartError::Configuration(format!("{key}: {reason}"))),
    }
}

/// The content of a file with certificates.
pub(super) fn pem(key: &str, path: &Path) -> Result<Vec<u8>, StartError> {
    std::fs::read(path).map_err(|error| StartError::Configuration(format!("{key} {}: {error}", path.display())))
}
