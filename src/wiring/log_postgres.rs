//! Opens the log backend in Postgres, from its settings.

use std::{path::Path, sync::Arc};

use tokio::{runtime::Runtime, sync::watch};

use crate::{
    config::{log_postgres::LogPostgresConfig, secret_source},
    domain::{catalogue::SecretRef, keys::secret::Secret, ledger::consumption::RETENTION_DAYS},
    sinks::postgres::{PostgresLog, PostgresRetention, PostgresSettings},
    wiring::StartError,
};

/// Opens the log backend in Postgres; does not connect yet, so that weir starts without the database.
pub(super) fn open_postgres(
    config: &LogPostgresConfig,
    background: &Runtime,
    stopped: &watch::Receiver<bool>,
) -> Result<Arc<PostgresLog>, StartError> {
    let wrong = |error: &dyn std::fmt::Display| StartError::Configuration(error.to_string());
    let settings = postgres_settings(config, &config.url)?;
    let retention = PostgresRetention::new(settings.clone()).map_err(|error| wrong(&error))?;
    let log = PostgresLog::new(settings).map_err(|error| wrong(&error))?;
    background.spawn(retention.run(stopped.clone()));
    Ok(Arc::new(log))
}

/// The settings, with the connection string at `url`.
pub(super) fn postgres_settings(config: &LogPostgresConfig, url: &SecretRef) -> Result<PostgresSettings, StartError> {
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

/// Reads a required secret.
pub(super) fn secret(key: &str, reference: &SecretRef) -> Result<Secret, StartError> {
    match secret_source::read(reference) {
        Ok(Some(secret)) => Ok(secret),
        Ok(None) => Err(StartError::Configuration(format!("{key}: {reference} is missing"))),
        Err(reason) => Err(StartError::Configuration(format!("{key}: {reason}"))),
    }
}

/// Reads a file with certificates.
pub(super) fn pem(key: &str, path: &Path) -> Result<Vec<u8>, StartError> {
    std::fs::read(path).map_err(|error| StartError::Configuration(format!("{key} {}: {error}", path.display())))
}
