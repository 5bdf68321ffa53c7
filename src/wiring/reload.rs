//! Reloads the configuration and all files that it names while weir runs: on request (SIGHUP), and when one of the files has
//! changed. A reload is applied completely or not at all. If anything is invalid, nothing changes, and the reason is logged.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher, event::ModifyKind};
use sha2::{Digest, Sha256};
use tokio::{
    sync::{Notify, watch},
    task::JoinHandle,
};

use crate::{
    config::Config,
    domain::catalogue::Catalogue,
    edges::{clock, resolver::Resolver},
    gateway::log_entry::RequestReporters,
    providers::{ConfigSnapshot, CurrentConfig, pools::Pools},
    telemetry::metrics::Metrics,
    wiring::{StartError, catalogue, process as service_manager, process::ProcessOwner, tls},
};

/// The time between a change of a file and the reading of the files. It is needed because editors write a file in several steps.
const QUIET: Duration = Duration::from_millis(200);

/// The interval at which the reload checks whether the host names in the new configuration are resolved.
const RESOLVED_POLL: Duration = Duration::from_millis(10);

/// Triggers reloads. Clones trigger the same reloader.
#[derive(Clone)]
pub(crate) struct ReloadTrigger {
    sinks: Arc<RequestReporters>,
    asked: Arc<Notify>,
}

impl ReloadTrigger {
    pub(super) fn new(sinks: &Arc<RequestReporters>) -> Self {
        Self {
            sinks: Arc::clone(sinks),
            asked: Arc::default(),
        }
    }

    /// Requests a reload, and reopens the access log at its path. Returns at once.
    pub(crate) fn request(&self) {
        self.sinks.access_log.reopen();
        self.asked.notify_one();
    }
}

/// The task that reloads the configuration.
pub(crate) struct Reloader {
    /// The path of the configuration file.
    pub conf: PathBuf,
    /// The configuration at the start of the process. Settings that can only change with a restart keep their values from it.
    pub started: Arc<Config>,
    /// The current config snapshot, which a reload replaces.
    pub live: Arc<CurrentConfig>,
    /// Resolves the host names of providers in the background.
    pub resolver: Arc<Resolver>,
    /// The listeners with TLS, whose certificates a reload replaces.
    pub tls: Arc<tls::TlsListeners>,
    /// The metrics that count the results of reloads.
    pub metrics: Arc<Metrics>,
    /// The background task of the current snapshot's pools.
    pub pools_task: JoinHandle<()>,
    /// The digests of all files, computed before the start read the files. A file that has changed since then is reloaded.
    pub contents: FileDigests,
    /// Requests a reload even if no file has changed.
    pub trigger: ReloadTrigger,
    /// The owner of the process. If weir owns it, the service manager is notified of reloads.
    pub process: ProcessOwner,
}

impl Reloader {
    /// Reloads the configuration after each request and each change of a file, until `stop` turns true.
    pub(crate) async fn run(mut self, mut stop: watch::Receiver<bool>) {
        fail::fail_point!("reloader_begins");
        let changed = Arc::new(Notify::new());
        let mut refused = None;
        let mut seen = WatchedContents {
            live: std::mem::take(&mut self.contents),
            refused: FileDigests::new(),
        };
        let mut _watched = FolderWatcher::start(&seen.paths(), &changed);
        if self.read_contents(None) != seen {
            changed.notify_one();
        }
        loop {
            let forced = tokio::select! {
                () = self.trigger.asked.notified() => true,
                () = changed.notified() => false,
                _ = stop.wait_for(|stop| *stop) => break,
            };
            if !forced {
                tokio::time::sleep(QUIET).await;
            }
            let now = self.read_contents(refused.as_ref());
            if forced || now != seen {
                // The service manager waits only for reloads that it has requested.
                let is_waited_for = forced && self.process == ProcessOwner::Own;
                if is_waited_for {
                    service_manager::reloading();
                }
                let (outcome, candidate) = self.reload(&stop).await;
                self.report_result(&outcome);
                if is_waited_for {
                    service_manager::notify_ready();
                }
                seen = now.after(outcome.is_ok(), candidate.as_ref());
                refused = candidate.filter(|_| outcome.is_err());
            }
            // The new configuration may name files in other folders. A second check finds changes that were made before these
            // folders were watched.
            _watched = FolderWatcher::start(&seen.paths(), &changed);
            if self.read_contents(refused.as_ref()) != seen {
                changed.notify_one();
            }
        }
        self.pools_task.abort();
    }

    fn read_contents(&self, refused: Option<&Candidate>) -> WatchedContents {
        WatchedContents {
            live: contents(&self.conf, &self.live.get().config),
            refused: refused.map_or_else(FileDigests::new, |refused| contents(&self.conf, &refused.config)),
        }
    }

    fn report_result(&self, outcome: &Result<(), StartError>) {
        match outcome {
            Ok(()) => tracing::info!(conf = %self.conf.display(), "configuration reloaded"),
            Err(error) => {
                tracing::error!(%error, "cannot reload the configuration; the current configuration remains in force")
            }
        }
        let (program, result) = (&self.metrics.program, if outcome.is_ok() { "ok" } else { "failed" });
        program.reloads.with_labels([result.into()]).inc();
        program.reload_failed.set(outcome.is_err());
        if outcome.is_ok() {
            program.reloaded_at.set(clock::unix_seconds());
        }
    }

    /// Reloads the configuration. Returns the result of the reload, and the configuration if it could be read.
    async fn reload(&mut self, stop: &watch::Receiver<bool>) -> (Result<(), StartError>, Option<Candidate>) {
        let conf = self.conf.clone();
        let read = tokio::task::spawn_blocking(move || read(&conf)).await;
        let (candidate, content) = match read {
            Ok(Ok(read)) => read,
            Ok(Err(error)) => return (Err(error), None),
            Err(error) => return (Err(StartError::failed("cannot reload the configuration", error)), None),
        };
        let outcome = match content {
            Ok((catalogue, identities)) => {
                self.put_in_force(candidate.config.clone(), catalogue, stop).await;
                tls::log_warnings(&identities);
                self.tls.replace_certificates(identities);
                Ok(())
            }
            Err(error) => Err(error),
        };
        (outcome, Some(candidate))
    }

    async fn put_in_force(&mut self, mut config: Config, catalogue: Catalogue, stop: &watch::Receiver<bool>) {
        let before = self.live.get();
        for setting in config.needs_restart(&self.started) {
            tracing::warn!(
                setting,
                "the changed setting takes effect with the next start or `weir upgrade`"
            );
        }
        let repriced = catalogue.repriced_under_one_version(&before.catalogue);
        if !repriced.is_empty() {
            tracing::warn!(
                models = repriced.join(", "),
                "prices have changed, but their version has not: give the price list a new version, so that older charges can be recomputed"
            );
        }
        // A new prefix takes effect only with a restart: new keys still get the prefix from the start, so it must remain
        // accepted.
        config.gateway.key_prefix = before.config.gateway.key_prefix.clone();
        let hosts = catalogue::hosts(&catalogue);
        let both: BTreeSet<(String, u16)> = hosts
            .iter()
            .cloned()
            .chain(catalogue::hosts(&before.catalogue))
            .collect();
        self.resolver.set_hosts(both.into_iter().collect());
        self.wait_for_addresses(&hosts, config.upstream.resolve_timeout).await;
        let pools = Arc::new(Pools::build(&catalogue, &self.resolver, Some(&before.pools)));
        pools.update().await;
        catalogue::add_metric_labels(&self.metrics, &catalogue);
        let task = tokio::spawn(Arc::clone(&pools).run(stop.clone()));
        self.live
            .set(ConfigSnapshot::new(Arc::new(config), Arc::new(catalogue), pools));
        // From now on, only running requests use removed host names, and these requests already have the addresses.
        self.resolver.set_hosts(hosts);
        std::mem::replace(&mut self.pools_task, task).abort();
    }

    /// Waits until all host names are resolved, so that the first requests need not wait for addresses. Waits at most for the
    /// time `wait`.
    async fn wait_for_addresses(&self, hosts: &[(String, u16)], wait: Duration) {
        let all = async {
            while !hosts
                .iter()
                .all(|(host, port)| self.resolver.addresses(host, *port).is_some())
            {
                tokio::time::sleep(RESOLVED_POLL).await;
            }
        };
        if tokio::time::timeout(wait, all).await.is_err() {
            tracing::warn!(
                "cannot resolve the host names of some providers; requests to these providers get 503 until their names are resolved"
            );
        }
    }
}

/// A configuration that was read, with the digests of the files that it names. The digests were computed before the files were
/// read.
struct Candidate {
    config: Config,
    contents: FileDigests,
}

/// The catalogue and the certificates that were read from the files that a configuration names.
type ConfigContents = (Catalogue, tls::Identities);

/// Reads a configuration and the files that it names.
fn read(conf: &Path) -> Result<(Candidate, Result<ConfigContents, StartError>), StartError> {
    let config = Config::load(conf).map_err(|error| StartError::Configuration(error.to_string()))?;
    let contents = contents(conf, &config);
    let content = catalogue::build(&config).and_then(|catalogue| {
        let identities = tls::read(&config).map_err(|errors| catalogue::config_error(&errors))?;
        Ok((catalogue, identities))
    });
    Ok((Candidate { config, contents }, content))
}

/// The digest of each file's content. A missing file and a folder have the digest of an empty file.
pub(super) type FileDigests = BTreeMap<PathBuf, [u8; 32]>;

/// Returns the digests of all files that affect a configuration.
pub(super) fn contents(conf: &Path, config: &Config) -> FileDigests {
    let mut files = catalogue::files(config);
    files.insert(conf.to_owned());
    files.extend(tls::files(config));
    let digest = |file: PathBuf| {
        let digest = Sha256::digest(std::fs::read(&file).unwrap_or_default());
        (file, digest.into())
    };
    files.into_iter().map(digest).collect()
}

/// The digests of all watched files.
#[derive(Debug, PartialEq, Eq)]
struct WatchedContents {
    /// The files of the configuration in force.
    live: FileDigests,
    /// The files of the configuration that was refused most recently. Empty if a later configuration was accepted. If one of
    /// these files changes, the refused configuration may have become valid.
    refused: FileDigests,
}

impl WatchedContents {
    fn paths(&self) -> BTreeSet<PathBuf> {
        self.live.keys().chain(self.refused.keys()).cloned().collect()
    }

    /// Returns the digests to compare with after a reload. A file that was already watched before the reload retains its earlier
    /// digest, so a change of the file during the reload is noticed.
    fn after(self, accepted: bool, candidate: Option<&Candidate>) -> Self {
        let Self { live, refused } = self;
        let mut read = candidate
            .map(|candidate| candidate.contents.clone())
            .unwrap_or_default();
        for (file, digest) in &mut read {
            if let Some(before) = live.get(file).or_else(|| refused.get(file)) {
                *digest = *before;
            }
        }
        match accepted {
            true => Self {
                live: read,
                refused: FileDigests::new(),
            },
            false => Self { live, refused: read },
        }
    }
}

/// Returns whether an event in a watched folder may concern a file of the configuration. Creating, removing or renaming any file
/// is relevant. A write is only relevant if the file's name matches, because logs and stores in the same folder are written all
/// the time.
fn is_relevant(event: &notify::Event, names: &BTreeSet<OsString>) -> bool {
    match event.kind {
        EventKind::Access(_) => false,
        EventKind::Create(_) | EventKind::Remove(_) | EventKind::Modify(ModifyKind::Name(_)) => true,
        _ => event
            .paths
            .iter()
            .any(|path| path.file_name().is_some_and(|name| names.contains(name))),
    }
}

/// Watches the folders that contain the files. The files themselves are not watched, because an editor or a tool may replace a
/// file by a new one.
struct FolderWatcher {
    _watcher: Option<RecommendedWatcher>,
}

impl FolderWatcher {
    fn start(files: &BTreeSet<PathBuf>, changed: &Arc<Notify>) -> Self {
        let changed = Arc::clone(changed);
        let names: BTreeSet<OsString> = files
            .iter()
            .filter_map(|file| Some(file.file_name()?.to_owned()))
            .collect();
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            if event.is_ok_and(|event| is_relevant(&event, &names)) {
                changed.notify_one();
            }
        });
        let mut watcher = match watcher {
            Ok(watcher) => watcher,
            Err(error) => {
                tracing::warn!(%error, "cannot watch the files of the configuration; send SIGHUP to weir after you change one of them");
                return Self { _watcher: None };
            }
        };
        // For a folder that does not exist, the nearest existing folder above it is watched, so that its creation is noticed.
        let folders: BTreeSet<&Path> = files
            .iter()
            .map(|file| {
                file.ancestors()
                    .find(|folder| folder.is_dir())
                    .unwrap_or(Path::new("."))
            })
            .collect();
        for folder in folders {
            if let Err(error) = watcher.watch(folder, RecursiveMode::NonRecursive) {
                tracing::warn!(%error, folder = %folder.display(), "cannot watch a folder with files of the configuration; send SIGHUP to weir after you change one of these files");
            }
        }
        Self {
            _watcher: Some(watcher),
        }
    }
}
