//! Opens the log's files, in a folder or a bucket, from their settings.

use std::time::Duration;

use tokio::{runtime::Runtime, sync::watch, time::timeout};

use crate::{
    config::{log_bucket::LogBucketConfig, log_home::LogFilesConfig},
    domain::ledger::consumption::RETENTION_DAYS,
    edges::{clock, low_priority::LowPriorityThreads},
    sinks::files::{BucketSettings, LogFiles},
    wiring::{
        StartError,
        log_postgres::{pem, secret},
    },
};

/// How often the files of past days are merged, and old ones removed. Files of today are merged when there are many.
const UPKEEP_EVERY: Duration = Duration::from_secs(600);

/// Opens the log's files, in a folder or a bucket; does not connect to a bucket yet.
pub(super) fn open_files(
    config: &LogFilesConfig,
    background: &Runtime,
    stopped: &watch::Receiver<bool>,
) -> Result<LogFiles, StartError> {
    let mut files = LogFiles::open(&config.path, config.longest, config.rows_max).map_err(|error| {
        let what = format!("{}: {error}; give another folder", config.path.display());
        StartError::failed("the folder of the log (log.files.path)", what)
    })?;
    if let Some(bucket) = &config.bucket {
        let in_bucket = files.in_bucket(&bucket_settings(bucket)?, background.handle().clone());
        files = in_bucket.map_err(|error| StartError::Configuration(error.to_string()))?;
    }
    background.spawn(run_upkeep(files.clone(), stopped.clone()));
    Ok(files)
}

fn bucket_settings(bucket: &LogBucketConfig) -> Result<BucketSettings, StartError> {
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

/// Merges and removes the log's files until `stopped` turns true.
async fn run_upkeep(files: LogFiles, mut stopped: watch::Receiver<bool>) {
    let upkeep = LowPriorityThreads::new(1);
    loop {
        let kept = files.clone();
        let done = upkeep.run(move || kept.housekeep(clock::unix_millis(), i64::from(RETENTION_DAYS)));
        if let Ok(Err(error)) = done.await {
            tracing::warn!(%error, "the log's files cannot be merged or removed; trying again later");
        }
        tokio::select! {
            _ = stopped.wait_for(|stopped| *stopped) => return,
            _ = timeout(UPKEEP_EVERY, files.wait_for_many_files()) => {}
        }
    }
}
