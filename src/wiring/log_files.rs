//! The log's files, in a folder or a bucket, from their settings.

use std::time::Duration;

use tokio::{runtime::Runtime, sync::watch, time::timeout};

use crate::{
    config::{log_bucket::LogBucketConfig, log_home::LogFilesConfig},
    domain::ledger::consumption::RETENTION_DAYS,
    edges::{clock, low_priority::LowPriority},
    sinks::files::{BucketSettings, LogFiles},
    wiring::{
        StartError,
        log_postgres::{pem, secret},
    },
};

/// How often days that are over are merged, and old ones removed. Files of today are merged when there are many.
const UPKEEP_EVERY: Duration = Duration::from_secs(600);

/// Opens the folder; connects to no bucket yet.
pub(super) fn open(
    config: &LogFilesConfig,
    background: &Runtime,
    stopped: &watch::Receiver<bool>,
) -> Result<LogFiles, StartError> {
    let mut files = LogFiles::open(&config.path, config.longest, config.rows_max).map_err(|error| {
        let what = format!("{}: {error}; name another one", config.path.display());
        StartError::failed("the folder of the log (log.files.path)", what)
    })?;
    if let Some(bucket) = &config.bucket {
        let in_bucket = files.in_bucket(&settings(bucket)?, background.handle().clone());
        files = in_bucket.map_err(|error| StartError::Configuration(error.to_string()))?;
    }
    background.spawn(keep_house(files.clone(), stopped.clone()));
    Ok(files)
}

fn settings(bucket: &LogBucketConfig) -> Result<BucketSettings, StartError> {
    Ok(BucketSettings {
        name: bucket.name.clone(),
        prefix: bucket.prefix.clone(),
        region: bucket.region.clone(),
        endpoint: bucket.endpoint(),
        path_style: bucket.path_style(),
        access_key_id: secret("[log.files.bucket] access_key_id", &bucket.access_key_id)?,
        secret_access_key: secret("[log.files.bucket] secret_access_key", &bucket.secret_access_key)?,
        ca: bucket
            .ca_file
            .as_deref()
            .map(|path| pem("[log.files.bucket] ca_file", path))
            .transpose()?,
        connect: bucket.connect,
        answer: bucket.answer,
        write: bucket.write,
    })
}

/// Looks after the log's files until `stopped` turns true.
async fn keep_house(files: LogFiles, mut stopped: watch::Receiver<bool>) {
    let upkeep = LowPriority::new(1);
    loop {
        let kept = files.clone();
        let done = upkeep.run(move || kept.keep_house(clock::unix_millis(), i64::from(RETENTION_DAYS)));
        if let Ok(Err(error)) = done.await {
            tracing::warn!(%error, "the log's files cannot be merged or removed, it is tried again");
        }
        tokio::select! {
            _ = stopped.wait_for(|stopped| *stopped) => return,
            _ = timeout(UPKEEP_EVERY, files.has_many()) => {}
        }
    }
}
