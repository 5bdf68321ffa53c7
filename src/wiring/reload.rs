//! Reloads everything at run time: when that is asked for (SIGHUP), and when a file that was read has changed. Either all of it takes effect,
//! or nothing changes and the log says why.

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
    gateway::log_entry::Sinks,
    providers::{
        live::{Live, LiveCell},
        pools::Pools,
    },
    telemetry::metrics::Metrics,
    wiring::{StartError, catalogue, notify as service_manager, process::Process, tls},
};

/// Editors write a file in several steps: this long after the last of them it is read.
const QUIET: Duration = Duration::from_millis(200);

/// How often a name that a new version needs is looked for before it serves.
const RESOLVED_POLL: Duration = Duration::from_millis(10);

/// Asks the reloader for a reload. Clones ask the same one.
#[derive(Clone)]
pub(crate) struct ReloadTrigger {
    sinks: Arc<Sinks>,
    asked: Arc<Notify>,
}

impl ReloadTrigger {
    pub(super) fn new(sinks: &Arc<Sinks>) -> Self {
        Self {
            sinks: Arc::clone(sinks),
            asked: Arc::default(),
        }
    }

    /// Has the configuration read again, and the access log go on in the file that is at its path. Returns at once.
    pub(crate) fn ask(&self) {
        self.sinks.access_log.reopen();
        self.asked.notify_one();
    }
}

/// What a reload reads and replaces.
pub(crate) struct Reloader {
    /// The path of the configuration file.
    pub conf: PathBuf,
    /// What the process was started with, which stays in force in what is read only then.
    pub started: Arc<Config>,
    /// Holds the current version.
    pub live: Arc<LiveCell>,
    /// Resolves the providers' names in the background.
    pub resolver: Arc<Resolver>,
    /// What the listeners show.
    pub tls: Arc<tls::Listeners>,
    /// Where the outcome is counted.
    pub metrics: Arc<Metrics>,
    /// Ends the background work of the version in force.
    pub pools_task: JoinHandle<()>,
    /// What the files held before the start read them: what changes from then on is loaded anew.
    pub contents: Contents,
    /// Asks for reloads that no changed file is the reason of.
    pub trigger: ReloadTrigger,
    /// Only of its own process weir tells the service manager.
    pub process: Process,
}

impl Reloader {
    /// Reloads until `stop` turns true.
    pub(crate) async fn run(mut self, mut stop: watch::Receiver<bool>) {
        fail::fail_point!("reloader_begins");
        let changed = Arc::new(Notify::new());
        let mut refused = None;
        let mut seen = Seen {
            live: std::mem::take(&mut self.contents),
            refused: Contents::new(),
        };
        let mut _watched = Watched::start(&seen.paths(), &changed);
        if self.look(None) != seen {
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
            let now = self.look(refused.as_ref());
            if forced || now != seen {
                // Only what it has asked for is waited for by the service manager.
                let is_waited_for = forced && self.process == Process::Own;
                if is_waited_for {
                    service_manager::reloading();
                }
                let (outcome, candidate) = self.reload(&stop).await;
                self.tell(&outcome);
                if is_waited_for {
                    service_manager::ready();
                }
                seen = now.after(outcome.is_ok(), candidate.as_ref());
                refused = candidate.filter(|_| outcome.is_err());
            }
            // What is named now may be elsewhere. A change from before the watch is found by one more look.
            _watched = Watched::start(&seen.paths(), &changed);
            if self.look(refused.as_ref()) != seen {
                changed.notify_one();
            }
        }
        self.pools_task.abort();
    }

    fn look(&self, refused: Option<&Candidate>) -> Seen {
        Seen {
            live: contents(&self.conf, &self.live.get().config),
            refused: refused.map_or_else(Contents::new, |refused| contents(&self.conf, &refused.config)),
        }
    }

    fn tell(&self, outcome: &Result<(), StartError>) {
        match outcome {
            Ok(()) => tracing::info!(conf = %self.conf.display(), "configuration loaded anew"),
            Err(error) => tracing::error!(%error, "the configuration was not loaded anew: the one in force stays"),
        }
        let (program, result) = (&self.metrics.program, if outcome.is_ok() { "ok" } else { "failed" });
        program.reloads.of([result.into()]).inc();
        program.reload_failed.set(outcome.is_err());
        if outcome.is_ok() {
            program.reloaded_at.set(clock::unix_seconds());
        }
    }

    /// The outcome, and the configuration that was read, if one was.
    async fn reload(&mut self, stop: &watch::Receiver<bool>) -> (Result<(), StartError>, Option<Candidate>) {
        let conf = self.conf.clone();
        let read = tokio::task::spawn_blocking(move || read(&conf)).await;
        let (candidate, content) = match read {
            Ok(Ok(read)) => read,
            Ok(Err(error)) => return (Err(error), None),
            Err(error) => return (Err(StartError::failed("the reload", error)), None),
        };
        let outcome = match content {
            Ok((catalogue, identities)) => {
                self.put_in_force(candidate.config.clone(), catalogue, stop).await;
                tls::warn(&identities);
                self.tls.show(identities);
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
        catalogue::tell_metrics(&self.metrics, &catalogue);
        let task = tokio::spawn(Arc::clone(&pools).run(stop.clone()));
        self.live.set(Live::new(Arc::new(config), Arc::new(catalogue), pools));
        // From here on nothing asks for names that have gone, but requests that run already, which have theirs.
        self.resolver.set_hosts(hosts);
        std::mem::replace(&mut self.pools_task, task).abort();
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
}

/// A configuration that was read, and the files that it names as they were before they were read.
struct Candidate {
    config: Config,
    contents: Contents,
}

/// What the files hold that a configuration names.
type Content = (Catalogue, tls::Identities);

/// Reads a configuration, and what it names.
fn read(conf: &Path) -> Result<(Candidate, Result<Content, StartError>), StartError> {
    let config = Config::load(conf).map_err(|error| StartError::Configuration(error.to_string()))?;
    let contents = contents(conf, &config);
    let content = catalogue::build(&config).and_then(|catalogue| {
        let identities = tls::read(&config).map_err(|errors| catalogue::refused(&errors))?;
        Ok((catalogue, identities))
    });
    Ok((Candidate { config, contents }, content))
}

/// Files, each with a digest of what it holds. A file that is not there, and a folder, count by their name alone.
pub(super) type Contents = BTreeMap<PathBuf, [u8; 32]>;

/// What the files hold that say something about a configuration.
pub(super) fn contents(conf: &Path, config: &Config) -> Contents {
    let mut files = catalogue::files(config);
    files.insert(conf.to_owned());
    files.extend(tls::files(config));
    let digest = |file: PathBuf| {
        let digest = Sha256::digest(std::fs::read(&file).unwrap_or_default());
        (file, digest.into())
    };
    files.into_iter().map(digest).collect()
}

/// What a look at the files found.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    /// Those of the version in force.
    live: Contents,
    /// Those of the version that was refused last: once they change it may be accepted.
    refused: Contents,
}

impl Seen {
    fn paths(&self) -> BTreeSet<PathBuf> {
        self.live.keys().chain(self.refused.keys()).cloned().collect()
    }

    /// What was found, with what a reload then read: a file counts as it was when it was looked at first.
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
                refused: Contents::new(),
            },
            false => Self { live, refused: read },
        }
    }
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
        // A folder that is not there yet shows in the nearest one that is.
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
                tracing::warn!(%error, folder = %folder.display(), "cannot be watched: send SIGHUP after a change");
            }
        }
        Self {
            _watcher: Some(watcher),
        }
    }
}
