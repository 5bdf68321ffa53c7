//! Loading everything anew while weir runs: on SIGHUP, and when a file that was read has changed. Either all of it
//! holds, or nothing changes and the log says why.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher, event::ModifyKind};
use sha2::{Digest, Sha256};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::{Notify, watch},
    task::JoinHandle,
};

use crate::{
    clock,
    config::Config,
    domain::catalogue::{Catalogue, SecretRef},
    live::{Live, LiveCell},
    metrics::Metrics,
    pools::Pools,
    resolver::Resolver,
    wiring::{StartError, catalogue, parts},
};

/// Editors write a file in several steps: this long after the last of them it is read.
const QUIET: Duration = Duration::from_millis(200);

/// How often a name that a new version needs is looked for before it serves.
const RESOLVED_POLL: Duration = Duration::from_millis(10);

/// What a reload works on.
pub struct Reloader {
    /// The configuration file.
    pub conf: PathBuf,
    /// The version in force.
    pub live: Arc<LiveCell>,
    /// Providers' addresses.
    pub resolver: Arc<Resolver>,
    /// Where the outcome is counted.
    pub metrics: Arc<Metrics>,
    /// Ends the background work of the version in force.
    pub pools_task: JoinHandle<()>,
}

impl Reloader {
    /// Reloads until `stop` turns true.
    pub async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let Ok(mut hangup) = signal(SignalKind::hangup()) else {
            tracing::error!("SIGHUP cannot be listened for: the configuration is not loaded anew");
            return;
        };
        let changed = Arc::new(Notify::new());
        let mut _watched = Watched::start(&self.files(), &changed);
        let mut seen = fingerprint(&self.files());
        loop {
            let forced = tokio::select! {
                _ = hangup.recv() => true,
                () = changed.notified() => false,
                _ = stop.wait_for(|stop| *stop) => break,
            };
            if !forced {
                tokio::time::sleep(QUIET).await;
            }
            let now = fingerprint(&self.files());
            if !forced && now == seen {
                continue;
            }
            seen = now;
            match self.reload(&stop).await {
                Ok(()) => {
                    tracing::info!(conf = %self.conf.display(), "configuration loaded anew");
                    self.metrics.reloaded(true, clock::unix_seconds());
                }
                Err(error) => {
                    tracing::error!(%error, "the configuration was not loaded anew: the one in force stays");
                    self.metrics.reloaded(false, clock::unix_seconds());
                }
            }
            // What is read now may be elsewhere. `seen` stays what it was before the reload: a change that came in
            // between is found by the next look, which its event brings about.
            _watched = Watched::start(&self.files(), &changed);
        }
        self.pools_task.abort();
    }

    async fn reload(&mut self, stop: &watch::Receiver<bool>) -> Result<(), StartError> {
        let conf = self.conf.clone();
        let read = tokio::task::spawn_blocking(move || read(&conf));
        let (mut config, catalogue) = read.await.map_err(|error| StartError::failed("the reload", error))??;
        let before = self.live.get();
        for section in config.needs_restart(&before.config) {
            tracing::warn!(
                section,
                "changed in the configuration; that takes effect with the next start"
            );
        }
        let repriced = catalogue.repriced_under_one_version(&before.catalogue);
        if !repriced.is_empty() {
            tracing::warn!(
                models = repriced.join(", "),
                "prices changed but not their version: give the price list a new one, or older charges cannot be computed again"
            );
        }
        // Keys are made with the prefix of the start, so they are taken with it too.
        config.gateway.key_prefix = before.config.gateway.key_prefix.clone();
        let hosts = catalogue::hosts(&catalogue);
        let both: BTreeSet<(String, u16)> = hosts
            .iter()
            .cloned()
            .chain(catalogue::hosts(&before.catalogue))
            .collect();
        self.resolver.set_hosts(both.into_iter().collect());
        self.resolved(&hosts, config.upstream.resolve_timeout).await;
        let pools = Arc::new(Pools::build(&catalogue, &self.resolver, Some(&before.pools)));
        pools.update().await;
        parts::tell_metrics(&self.metrics, &catalogue);
        let task = tokio::spawn(Arc::clone(&pools).run(stop.clone()));
        self.live.set(Live {
            config: Arc::new(config),
            catalogue: Arc::new(catalogue),
            pools,
        });
        // From here on nothing asks for names that have gone, but requests that run already, which have theirs.
        self.resolver.set_hosts(hosts);
        std::mem::replace(&mut self.pools_task, task).abort();
        Ok(())
    }

    /// Waits for the addresses of new names, so that their first requests find them; bounded.
    async fn resolved(&self, hosts: &[(String, u16)], wait: Duration) {
        let all = async {
            while !hosts
                .iter()
                .all(|(host, port)| self.resolver.addresses(host, *port).is_some())
            {
                tokio::time::sleep(RESOLVED_POLL).await;
            }
        };
        if tokio::time::timeout(wait, all).await.is_err() {
            tracing::warn!("not every provider's name is resolved; those providers answer 503 until it is");
        }
    }

    /// Every file that says something about the version in force.
    fn files(&self) -> BTreeSet<PathBuf> {
        let live = self.live.get();
        let mut files = BTreeSet::from([self.conf.clone()]);
        if let Some(folder) = &live.config.rules.folder {
            files.insert(folder.clone());
            files.extend(catalogue::folder_files(folder).into_iter().flatten());
        }
        files.extend(live.config.prices.file.clone());
        let credentials = std::env::var_os("CREDENTIALS_DIRECTORY").map(PathBuf::from);
        for secret in live.catalogue.secrets() {
            match secret {
                SecretRef::File(path) => {
                    files.insert(PathBuf::from(path));
                }
                SecretRef::Credential(name) => files.extend(credentials.as_ref().map(|folder| folder.join(name))),
                SecretRef::Env(_) => {}
            }
        }
        files
    }
}

fn read(conf: &Path) -> Result<(Config, Catalogue), StartError> {
    let config = Config::load(conf).map_err(|error| StartError::Configuration(error.to_string()))?;
    let catalogue = catalogue::build(&config)?;
    Ok((config, catalogue))
}

/// What the files hold, in one number: the folders that they lie in see other changes too.
fn fingerprint(files: &BTreeSet<PathBuf>) -> [u8; 32] {
    let mut hash = Sha256::new();
    for file in files {
        hash.update(file.as_os_str().as_encoded_bytes());
        hash.update([0]);
        // A file that is gone, and a folder, count by their name alone.
        hash.update(std::fs::read(file).unwrap_or_default());
    }
    hash.finalize().into()
}

/// Whether an event in a watched folder may be about a file that is read. Logs and stores may lie beside it and are written
/// to all the time, so what is written to counts by its name; a file that comes, goes or is renamed may be any of them.
fn matters(event: &notify::Event, names: &BTreeSet<OsString>) -> bool {
    match event.kind {
        EventKind::Access(_) => false,
        EventKind::Create(_) | EventKind::Remove(_) | EventKind::Modify(ModifyKind::Name(_)) => true,
        _ => event
            .paths
            .iter()
            .any(|path| path.file_name().is_some_and(|name| names.contains(name))),
    }
}

/// Watches the folders of files: a file that an editor or a tool puts in another's place is a new file.
struct Watched {
    _watcher: Option<RecommendedWatcher>,
}

impl Watched {
    fn start(files: &BTreeSet<PathBuf>, changed: &Arc<Notify>) -> Self {
        let changed = Arc::clone(changed);
        let names: BTreeSet<OsString> = files
            .iter()
            .filter_map(|file| Some(file.file_name()?.to_owned()))
            .collect();
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            if event.is_ok_and(|event| matters(&event, &names)) {
                changed.notify_one();
            }
        });
        let mut watcher = match watcher {
            Ok(watcher) => watcher,
            Err(error) => {
                tracing::warn!(%error, "files cannot be watched: send SIGHUP after a change");
                return Self { _watcher: None };
            }
        };
        let folders: BTreeSet<&Path> = files
            .iter()
            .filter_map(|file| {
                if file.is_dir() {
                    Some(file.as_path())
                } else {
                    file.parent()
                }
            })
            .collect();
        for folder in folders {
            let folder = if folder.as_os_str().is_empty() {
                Path::new(".")
            } else {
                folder
            };
            if let Err(error) = watcher.watch(folder, RecursiveMode::NonRecursive) {
                tracing::warn!(%error, folder = %folder.display(), "cannot be watched: send SIGHUP after a change");
            }
        }
        Self {
            _watcher: Some(watcher),
        }
    }
}
