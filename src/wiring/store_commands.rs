//! Runs the subcommands of `weir store`, which open the store without a gateway.

use std::{
    fs::{File, OpenOptions},
    io::{BufWriter, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
    sync::Arc,
    time::Duration,
};

use jiff::{Timestamp, tz::TimeZone};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};

use crate::{
    api::node::Backup,
    cli::{
        admin_client::{AdminClient, AdminClientError},
        output::{CommandProgress, ProgressArgs, ProgressUnit, partial_path},
        store::{BackupArgs, InitArgs, PruneArgs, RestoreArgs, StoreCommand},
    },
    config::{Config, RedisConfig, StoreConfig, log::LogBackendConfig},
    domain::ledger::consumption::RETENTION_DAYS,
    edges::clock,
    store::{
        KeyStore, StoreError, StoreOpenError,
        archive::{
            self, Archive, ArchiveItem, Archives, BackupError, BackupHeader, BackupItems, BackupTrailer, FORMAT,
        },
        embedded::{EmbeddedStore, ledger::EmbeddedLedger},
        redis::{AdoptPolicy, InitOutcome, RedisLedger, RedisStore},
    },
    wiring::{StartError, client_runtime, load, print_result, store},
};

/// The timeout for connecting to Redis.
const CONNECT_WAIT: Duration = Duration::from_secs(5);
/// The pause between two attempts to reach Redis.
const CONNECT_EVERY: Duration = Duration::from_millis(50);
/// The number of items that are restored in one call of the store.
const BATCH: usize = 500;
const DAY_SECONDS: i64 = 24 * 3600;
/// The maximum number of pieces of a backup that wait to be written to the file.
const PIECES_WAITING: usize = 4;

/// Runs one subcommand of `weir store`.
pub(super) fn run(command: &StoreCommand, out: &mut impl Write) -> Result<(), StartError> {
    let (args, told) = match command {
        StoreCommand::Init(args) => (&args.store, init(args)?),
        StoreCommand::Backup(args) => (&args.store, backup(args)?),
        StoreCommand::Restore(args) => (&args.store, restore(args)?),
        StoreCommand::Prune(args) => (&args.store, prune(args)?),
    };
    let (text, value) = told;
    let written = if args.json {
        writeln!(out, "{value}")
    } else {
        writeln!(out, "{text}")
    };
    print_result(written)
}

/// Marks an embedded ledger as ready to serve, even if the ledger has no accounts and the journal has some.
fn begin_ledger(folder: &Path) -> Result<(), StartError> {
    let begun = EmbeddedLedger::open(folder, Arc::new(clock::unix_millis)).and_then(|ledger| ledger.begin(0));
    begun.map_err(|error| StartError::failed("cannot open the embedded ledger", error))
}

/// The output of a command: text for users, and JSON for scripts.
type CommandOutput = (String, Value);

fn init(args: &InitArgs) -> Result<CommandOutput, StartError> {
    let config = load(&args.store.conf)?;
    let redis = match &config.store {
        StoreConfig::Redis(redis) => redis,
        StoreConfig::Embedded(embedded) if args.adopt => {
            begin_ledger(&embedded.path)?;
            let text =
                "the ledger is accepted as it is; `weir serve` adds the steps that are still in the journal".to_owned();
            return Ok((text, json!({ "engine": "embedded", "changed": true })));
        }
        StoreConfig::Embedded(_) => {
            let text = "there is nothing to set up: `weir serve` creates an embedded store by itself".to_owned();
            return Ok((text, json!({ "engine": "embedded", "changed": false })));
        }
    };
    let adopt = if args.adopt {
        AdoptPolicy::Data
    } else {
        AdoptPolicy::Refuse
    };
    let found = run_with_redis(redis, async |store| store.init(adopt).await.map_err(failed))?;
    let told = |text: &str, changed| (text.to_owned(), json!({ "engine": "redis", "changed": changed }));
    match found {
        InitOutcome::Made => Ok(told("the Redis is set up", true)),
        InitOutcome::Already => Ok(told("the Redis is already set up", false)),
        InitOutcome::HasData => Err(StartError::failed(
            "cannot set up the Redis",
            "the Redis has keys of weir but no generation, so part of its data was lost; empty the Redis and restore a backup with \
             `weir store restore`, or accept the remaining data with --adopt",
        )),
    }
}

fn backup(args: &BackupArgs) -> Result<CommandOutput, StartError> {
    if !args.force && args.out.exists() {
        let what = format!(
            "cannot write {}: the file exists; --force replaces it",
            args.out.display()
        );
        return Err(StartError::Client(what));
    }
    let config = load(&args.store.conf)?;
    let partial = partial_path(&args.out);
    let written = write_backup(&config, &partial, args.progress).and_then(|()| {
        let (_, end) = check(&partial, args.progress)
            .map_err(|error| StartError::failed("cannot verify the written backup", error))?;
        std::fs::rename(&partial, &args.out).map_err(|error| file_failed(&args.out, &error))?;
        Ok(end)
    });
    if written.is_err() {
        // The partial file is removed, because it is useless. The returned error describes the failure.
        let _ = std::fs::remove_file(&partial);
    }
    let end = written?;
    let text = format!("{} written to {}", with_items(end.items), args.out.display());
    Ok((
        text,
        json!({ "out": args.out, "items": end.items, "sha256": end.sha256 }),
    ))
}

/// Writes a backup to a file and syncs it. If a running weir owns the store, that process makes the backup.
fn write_backup(config: &Config, path: &Path, progress: ProgressArgs) -> Result<(), StartError> {
    let progress = CommandProgress::start(progress, "Writing", ProgressUnit::Bytes, None);
    let refused = |error: std::io::Error| file_failed(path, &error);
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(path);
    let mut file = BufWriter::new(file.map_err(refused)?);
    match &config.store {
        StoreConfig::Embedded(embedded) => {
            let client = AdminClient::new(config.admin.socket.clone());
            let mut counted = progress.count_writes(&mut file);
            let asked = client_runtime()?.block_on(client.download(&Backup {}, &mut counted));
            drop(counted);
            match asked {
                Ok(()) => {}
                Err(AdminClientError::Unreachable { .. } | AdminClientError::AnswerLost { .. })
                    if is_untouched(&file) =>
                {
                    let archives = embedded_archives(&embedded.path)?;
                    let header = header("embedded", None);
                    let mut counted = progress.count_writes(&mut file);
                    client_runtime()?.block_on(copy(&archives, &header, &mut counted))?;
                }
                Err(error) => return Err(StartError::Client(error.to_string())),
            }
        }
        StoreConfig::Redis(redis) => run_with_redis(redis, async |store| {
            let generation = store.known_generation().await.map_err(failed)?;
            let (archives, _) = redis_archives(&store, false);
            let mut counted = progress.count_writes(&mut file);
            copy(&archives, &header("redis", generation), &mut counted).await
        })?,
    }
    file.into_inner()
        .map_err(|error| refused(error.into_error()))?
        .sync_all()
        .map_err(refused)
}

/// Returns whether nothing has been written yet.
fn is_untouched(file: &BufWriter<File>) -> bool {
    file.buffer().is_empty() && file.get_ref().metadata().is_ok_and(|file| file.len() == 0)
}

async fn copy(archives: &Archives, header: &BackupHeader, out: &mut impl Write) -> Result<(), StartError> {
    let (to, mut pieces) = mpsc::channel::<Vec<u8>>(PIECES_WAITING);
    let writing = async move {
        while let Some(piece) = pieces.recv().await {
            out.write_all(&piece)?;
        }
        Ok::<_, std::io::Error>(())
    };
    let (encoded, written) = tokio::join!(archive::send_backup(archives, header, to), writing);
    written.map_err(|error| StartError::failed("cannot write the backup's file", error))?;
    encoded.map_err(failed)
}

/// Reads a backup completely, to verify that it is complete and valid.
fn check(path: &Path, progress: ProgressArgs) -> Result<(BackupHeader, BackupTrailer), BackupError> {
    let named = |error: std::io::Error| std::io::Error::other(format!("{}: {error}", path.display()));
    let backup = File::open(path).map_err(named)?;
    let size = backup.metadata().map_err(named)?.len();
    let progress = CommandProgress::start(progress, "Checking", ProgressUnit::Bytes, Some(size));
    archive::check(progress.count_reads(backup))
}

fn restore(args: &RestoreArgs) -> Result<CommandOutput, StartError> {
    let config = load(&args.store.conf)?;
    let checked = check(&args.from, args.progress);
    let (header, end) = checked.map_err(|error| StartError::failed("cannot restore the backup", error))?;
    let keeps_rows = keeps_rows(&config);
    let rows = match &config.store {
        StoreConfig::Embedded(embedded) => {
            let archives = embedded_archives(&embedded.path)?;
            let rows = client_runtime()?.block_on(async {
                must_be_empty(&archives).await?;
                let refused = |error: std::io::Error| StartError::failed("cannot write to the store's folder", error);
                EmbeddedStore::begin_restore(&embedded.path).map_err(refused)?;
                let rows = load_all(&archives, args, end.items).await?;
                EmbeddedStore::finish_restore(&embedded.path).map_err(refused)?;
                Ok::<_, StartError>(rows)
            })?;
            drop(archives);
            begin_ledger(&embedded.path)?;
            rows
        }
        StoreConfig::Redis(redis) => run_with_redis(redis, async |store| {
            let (archives, ledger) = redis_archives(&store, keeps_rows);
            must_be_empty(&archives).await?;
            let rows = load_all(&archives, args, end.items).await?;
            // The accounts are marked as complete first, because nodes use the store as soon as its keys are complete.
            let generation = header.generation.as_deref();
            ledger.finish_restore(generation).await.map_err(failed)?;
            let made = store.finish_restore(generation).await.map_err(failed)?;
            match made {
                InitOutcome::Made => Ok(rows),
                InitOutcome::Already | InitOutcome::HasData => Err(not_empty()),
            }
        })?,
    };
    let left_out = if keeps_rows { 0 } else { rows };
    let items = end.items.saturating_sub(left_out);
    let more = if left_out == 0 {
        String::new()
    } else {
        format!(
            "; {left_out} rows of the log were left out, because this store does not keep the log. If the log backend lacks them, also \
             restore the backup into an empty Redis with `[log] former_home = \"store\"`, and run `weir log move` there"
        )
    };
    let text = format!("{} from {} restored{more}", with_items(items), header.time);
    Ok((
        text,
        json!({ "items": items, "time": header.time, "rows_left_out": left_out }),
    ))
}

/// Formats a number of items, in singular or plural.
fn with_items(items: u64) -> String {
    match items {
        1 => "1 item".to_owned(),
        more => format!("{more} items"),
    }
}

/// Returns whether a backup's rows are restored. They are only restored into a Redis that is the current or the previous log
/// backend.
fn keeps_rows(config: &Config) -> bool {
    let is_redis = matches!(config.store, StoreConfig::Redis(_));
    let mut homes = [Some(&config.log.home), config.log.former_home.as_ref()].into_iter();
    is_redis && homes.any(|home| home == Some(&LogBackendConfig::Store))
}

/// Runs `weir store prune`. It can remove more than retention does by itself (`domain/ledger/retention.rs`).
fn prune(args: &PruneArgs) -> Result<CommandOutput, StartError> {
    let config = load(&args.store.conf)?;
    let StoreConfig::Embedded(embedded) = &config.store else {
        let text = "Redis itself removes old daily sums and rows, by its own clock".to_owned();
        return Ok((text, json!({ "engine": "redis", "sums": 0 })));
    };
    let refused = |why: &str| StartError::failed("cannot prune the store", why);
    let midnight = args
        .before
        .to_zoned(TimeZone::UTC)
        .map_err(|error| refused(&error.to_string()))?;
    let day = midnight.timestamp().as_second().div_euclid(DAY_SECONDS);
    let opened = |error: StoreOpenError| StartError::failed("cannot open the embedded store", error);
    let ledger = EmbeddedLedger::open(&embedded.path, Arc::new(clock::unix_millis)).map_err(opened)?;
    let pruned = client_runtime()?.block_on(ledger.prune(day)).map_err(failed)?;
    let sums = pruned.ok_or_else(|| {
        refused(&format!(
            "daily sums must be kept for {RETENTION_DAYS} days, but {} is more recent by this machine's clock; nothing was changed",
            args.before
        ))
    })?;
    let text = format!(
        "removed {sums} daily sums, and the hours of the public record, from before {}",
        args.before
    );
    Ok((text, json!({ "engine": "embedded", "sums": sums })))
}

async fn must_be_empty(archives: &Archives) -> Result<(), StartError> {
    if archives.is_empty().await.map_err(failed)? {
        Ok(())
    } else {
        Err(not_empty())
    }
}

fn not_empty() -> StartError {
    StartError::failed(
        "cannot restore the backup",
        "the store is not empty, and nothing was changed; stop weir and move the store's folder away, or empty its Redis",
    )
}

/// Restores all items of a backup. Returns the number of restored rows of the log.
async fn load_all(archives: &Archives, args: &RestoreArgs, items_in_all: u64) -> Result<u64, StartError> {
    let progress = CommandProgress::start(args.progress, "Restoring", ProgressUnit::Items, Some(items_in_all));
    let unreadable = |error: BackupError| StartError::failed("cannot restore the backup", error);
    let mut items = BackupItems::open(&args.from).map_err(unreadable)?;
    let mut rows = 0;
    loop {
        let batch = items.next_batch(BATCH).map_err(unreadable)?;
        if batch.is_empty() {
            return Ok(rows);
        }
        archives.load(&batch).await.map_err(failed)?;
        rows += batch
            .iter()
            .map(|item| u64::from(matches!(item, ArchiveItem::Row { .. })))
            .sum::<u64>();
        progress.advance(batch.len() as u64);
    }
}

/// Opens an embedded store for this process alone. Returns the archives of the store's keys and ledger.
fn embedded_archives(folder: &Path) -> Result<Archives, StartError> {
    let opened = |error: StoreOpenError| StartError::failed("cannot open the embedded store", error);
    let keys = EmbeddedStore::open(folder).map_err(opened)?;
    let ledger = EmbeddedLedger::open(folder, Arc::new(clock::unix_millis)).map_err(opened)?;
    Ok(Archives(vec![Arc::new(keys), Arc::new(ledger)]))
}

/// Returns the archives of the keys and the ledger in a Redis, and the ledger itself. `keeps_rows` says whether rows of a backup
/// are restored into the Redis.
fn redis_archives(store: &Arc<RedisStore>, keeps_rows: bool) -> (Archives, Arc<RedisLedger>) {
    let ledger = Arc::new(RedisLedger::new(Arc::clone(store), keeps_rows));
    let both: Vec<Arc<dyn Archive>> = vec![Arc::clone(store) as _, Arc::clone(&ledger) as _];
    (Archives(both), ledger)
}

/// Connects to a Redis, and runs `work` with the store.
fn run_with_redis<T>(
    redis: &RedisConfig,
    work: impl AsyncFnOnce(Arc<RedisStore>) -> Result<T, StartError>,
) -> Result<T, StartError> {
    let settings = store::redis_settings(redis)?;
    let store =
        RedisStore::open(&settings).map_err(|error| StartError::failed("cannot open the Redis store", error))?;
    let store = Arc::new(store);
    client_runtime()?.block_on(async {
        let (_go_on, stop) = watch::channel(false);
        tokio::select! {
            () = store.run(stop) => Err(StartError::failed("cannot use the Redis store", "the connection was closed")),
            done = async {
                wait_for_redis(&store).await?;
                work(Arc::clone(&store)).await
            } => done,
        }
    })
}

async fn wait_for_redis(store: &RedisStore) -> Result<(), StartError> {
    let asking = async {
        while store.is_empty().await.is_err() {
            tokio::time::sleep(CONNECT_EVERY).await;
        }
    };
    if tokio::time::timeout(CONNECT_WAIT, asking).await.is_ok() {
        return Ok(());
    }
    store.is_empty().await.map(drop).map_err(failed)
}

fn header(engine: &str, generation: Option<String>) -> BackupHeader {
    let now = Timestamp::from_millisecond(clock::unix_millis());
    BackupHeader {
        weir_backup: FORMAT,
        time: now.map_or_else(|_| String::new(), |now| now.to_string()),
        engine: engine.to_owned(),
        generation,
    }
}

fn file_failed(path: &Path, error: &std::io::Error) -> StartError {
    StartError::failed("cannot write the backup's file", format!("{}: {error}", path.display()))
}

fn failed(error: StoreError) -> StartError {
    StartError::failed("a call to the store failed", error)
}

#[cfg(test)]
mod tests;
