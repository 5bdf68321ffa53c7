//! Sends calls to the store's Redis, in any mode: one server, a master watched by sentinels, or a cluster.
//!
//! A call is one script whose keys share one hash slot. It is sent again only if it changes nothing, or if it certainly did not
//! run: the server redirected it, did not know the script, or is no longer the master. All tries together stay within the call's
//! [`CallTimeout`]. The budget of a call limits how long Redis may be silent, not how long a call waits for earlier calls. Each
//! master has its own connection and circuit breaker ([`MasterLink`]).
//!
//! The redis crate's own clients for sentinels and clusters are not used: they can split accounts between masters, hang, and keep
//! using a silent master (docs/redis.md, "Why weir has a link of its own").

mod cluster;
pub(crate) mod connection;
mod master;
mod sentinel;
mod slots;
mod supervisor;

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use ::redis::{Client, ErrorKind, Pipeline, RedisError, RedisResult, ServerErrorKind};
use parking_lot::Mutex;
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

use crate::{
    edges::clock,
    store::{
        StoreError, StoreOpenError,
        redis::{
            dialer::RedisDialer,
            link::{
                cluster::Cluster,
                connection::Wire,
                master::{MasterLink, MasterLinkState, unavailable},
                sentinel::{MasterFinder, Sentinels},
                supervisor::{CallTimeout, TimeoutCheck},
            },
            rights,
            scripts::ScriptCall,
            settings::{RedisAddress, RedisMode, RedisSettings},
        },
    },
};

#[cfg(test)]
pub(super) use crate::store::redis::link::connection::CALLS_MIN as RUNTIME_CALLS_MIN;
pub(super) use crate::store::redis::link::connection::{CONNECT_WAIT_MAX, RetryPauses};

/// Maximum number of redirects of one call.
const REDIRECTS_MAX: usize = 8;
/// The pause before a call is repeated because its hash slot is being moved.
const SLOT_PAUSE: Duration = Duration::from_millis(5);

/// The connections to Redis, in any mode. Calls are sent through them.
pub(super) struct Link {
    route: LinkTopology,
    dialer: Arc<RedisDialer>,
    /// The epoch, which changes at every reconnect and every change of a master, whichever task notices it.
    epochs: watch::Sender<u64>,
    /// The timeout of a call in total, including the wait for earlier calls.
    queue: Duration,
}

enum LinkTopology {
    /// All keys are on one master.
    One {
        link: Arc<MasterLink>,
        finder: MasterFinder,
    },
    /// The first key of a call determines the master.
    Cluster(Cluster),
}

/// The maximum time for which a call waits, and whether it can be repeated.
#[derive(Clone, Copy, Debug)]
pub(super) enum CallPolicy {
    /// A call that changes nothing. It is repeated once if the connection broke. The duration is the maximum time without any
    /// answer from Redis.
    Read(Duration),
    /// A call that changes something. The duration is as for a read. The call is sent only once, because after a broken
    /// connection it is unknown whether it ran.
    Write(Duration),
}

/// Whether a call names all Redis keys that its script uses, or only the first one. All of them are in one hash slot.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyNaming {
    /// The call names all keys. While the hash slot is being moved, Redis itself runs the script only on a server that has all of
    /// them.
    Named,
    /// The call names only the first key, and the script derives the names of the others. While a cluster moves the hash slot,
    /// the call waits until all keys that the script uses are on one server again. The call must not be sent to the server to
    /// which the slot is being moved. There, the script would create data that still exists on the other server.
    Made,
}

/// The state of a call that has been sent.
#[derive(Default)]
struct CallProgress {
    awaited: Mutex<Option<AwaitedAnswer>>,
    /// Whether the last answer was that the hash slot is being moved.
    moving: AtomicBool,
}

/// The connection on which an answer is awaited.
#[derive(Clone)]
struct AwaitedAnswer {
    link: Arc<MasterLink>,
    number: u64,
    wire: Arc<Wire>,
}

impl Link {
    /// Checks the settings. Does not connect yet. `scripts` are the commands that load the scripts into a server.
    pub(super) fn new(settings: &RedisSettings, scripts: Pipeline) -> Result<Self, StoreOpenError> {
        let nodes = settings.addresses()?;
        let dialer = Arc::new(RedisDialer::new(settings, scripts)?);
        let epochs = watch::Sender::new(0);
        let call_budget = settings.budget;
        let one = |finder| LinkTopology::One {
            link: Arc::new(MasterLink::new(&dialer, &epochs, call_budget)),
            finder,
        };
        let route = match &settings.mode {
            RedisMode::Cluster => {
                LinkTopology::Cluster(Cluster::new(nodes, &settings.namespace, &dialer, &epochs, call_budget))
            }
            RedisMode::Sentinel {
                master_name, username, ..
            } => {
                let sentinel = Sentinels::new(nodes, master_name.clone(), username.as_deref());
                one(MasterFinder::Sentinel(sentinel))
            }
            RedisMode::Standalone => match nodes.as_slice() {
                [node] => one(MasterFinder::Standalone(node.clone())),
                _ => {
                    let text = "store.redis.nodes: give exactly one server";
                    return Err(StoreOpenError::Settings(text.to_owned()));
                }
            },
        };
        Ok(Self {
            route,
            dialer,
            epochs,
            queue: settings.queue,
        })
    }

    /// Runs a script within the call's timeout, and returns its answer.
    pub(super) async fn call(
        &self,
        call: &ScriptCall<'_>,
        effort: CallPolicy,
        keys: KeyNaming,
    ) -> Result<Vec<String>, StoreError> {
        let (CallPolicy::Read(silence) | CallPolicy::Write(silence)) = effort;
        let mut call_timeout = CallTimeout::new(silence, self.queue, clock::instant());
        let progress = CallProgress::default();
        let mut attempt = pin!(self.attempt(call, effort, keys, &progress));
        let mut wait = call_timeout.first();
        loop {
            if let Ok(answer) = timeout(wait, attempt.as_mut()).await {
                return answer;
            }
            let awaited = progress.awaited.lock().clone();
            let check = call_timeout.check(awaited.as_ref().map(|it| &it.wire.last_answer), clock::instant());
            match (&check, awaited) {
                (TimeoutCheck::Wait(more), _) => {
                    wait = *more;
                    continue;
                }
                (TimeoutCheck::Silent(since), Some(AwaitedAnswer { link, number, .. })) => link.suspect(number, *since),
                (TimeoutCheck::Silent(_) | TimeoutCheck::TooLong, _) => {}
            }
            if progress.moving.load(Ordering::Relaxed) {
                return Err(StoreError::Unavailable(
                    "redis is still moving the hash slot of the call's keys to another master".to_owned(),
                ));
            }
            return Err(call_timeout.error(&check));
        }
    }

    /// Returns the master link for a call, and whether the call must be sent with ASKING.
    async fn link_for(
        &self,
        call: &ScriptCall<'_>,
        redirect: Option<(RedisAddress, bool)>,
    ) -> Result<(Arc<MasterLink>, bool), StoreError> {
        Ok(match (&self.route, redirect) {
            (LinkTopology::Cluster(cluster), Some((address, asking))) => (cluster.link_to(&address), asking),
            (LinkTopology::Cluster(cluster), None) => {
                let slot = call.first_key().map(slots::of_key).unwrap_or_default();
                (cluster.link(slot).await?, false)
            }
            (LinkTopology::One { link, .. }, _) => (Arc::clone(link), false),
        })
    }

    async fn attempt(
        &self,
        call: &ScriptCall<'_>,
        effort: CallPolicy,
        keys: KeyNaming,
        progress: &CallProgress,
    ) -> Result<Vec<String>, StoreError> {
        let command = call.command();
        let mut again = matches!(effort, CallPolicy::Read(_));
        let mut redirect: Option<(RedisAddress, bool)> = None;
        let mut redirects = 0;
        while redirects < REDIRECTS_MAX {
            *progress.awaited.lock() = None;
            let (link, asking) = self.link_for(call, redirect.take()).await?;
            let live = link.live().await?;
            let wire = link.runtime_connections.wire(&live);
            *progress.awaited.lock() = Some(AwaitedAnswer {
                link: Arc::clone(&link),
                number: live.number,
                wire: Arc::clone(&wire),
            });
            let _permit = link.permit()?;
            let error = match link.send(&wire, call, &command, asking).await {
                Ok(reply) => return Ok(reply),
                Err(error) => error,
            };
            let verdict = match RedisErrorMeaning::of(&error) {
                RedisErrorMeaning::Ask(_) if keys == KeyNaming::Made => RedisErrorMeaning::Wait,
                verdict => verdict,
            };
            progress
                .moving
                .store(verdict == RedisErrorMeaning::Wait, Ordering::Relaxed);
            match (&self.route, verdict) {
                (LinkTopology::Cluster(cluster), RedisErrorMeaning::Moved(target)) => {
                    cluster.mark_stale();
                    redirects += 1;
                    redirect = RedisAddress::from_report(&target, &live.address).map(|address| (address, false));
                    if redirects > 1 {
                        // The servers do not agree yet on who owns the hash slot.
                        sleep(SLOT_PAUSE).await;
                    }
                }
                (LinkTopology::Cluster(_), RedisErrorMeaning::Ask(target)) => {
                    redirects += 1;
                    redirect = RedisAddress::from_report(&target, &live.address).map(|address| (address, true));
                }
                (LinkTopology::One { .. }, RedisErrorMeaning::Moved(_) | RedisErrorMeaning::Ask(_)) => {
                    let text = "redis is a cluster: set store.redis.mode = \"cluster\"";
                    return Err(StoreError::Unavailable(text.to_owned()));
                }
                (_, RedisErrorMeaning::Wait) => {
                    // There is no limit here: the call's timeout ends the tries.
                    redirects = 0;
                    sleep(SLOT_PAUSE).await;
                }
                (_, RedisErrorMeaning::NotMaster) => {
                    redirects += 1;
                    link.give_up(live.number, MasterLinkState::Connecting);
                }
                (_, RedisErrorMeaning::Broken) => {
                    link.give_up(live.number, MasterLinkState::Connecting);
                    if !again {
                        return Err(unavailable(&error));
                    }
                    again = false;
                }
                (_, RedisErrorMeaning::Denied) => {
                    link.denied.notify_one();
                    return Err(StoreError::Unavailable(self.dialer.rights.refusal_text()));
                }
                (_, RedisErrorMeaning::Refused) => return Err(unavailable(&error)),
            }
        }
        Err(StoreError::Unavailable(format!(
            "redis redirected a call {REDIRECTS_MAX} times, so the call was given up"
        )))
    }

    /// Maintains all connections. Cancel this to stop; established connections can still be used after that.
    pub(super) async fn maintain(&self) {
        match &self.route {
            LinkTopology::Cluster(cluster) => cluster.maintain().await,
            LinkTopology::One { link, finder } => tokio::select! {
                () = link.maintain(finder) => {}
                () = finder.follow(link) => {}
            },
        }
    }

    /// Starts a new epoch, because acknowledged changes may be lost for a reason that the link cannot detect.
    pub(super) fn advance_epoch(&self) {
        self.epochs.send_modify(|epoch| *epoch += 1);
    }

    /// The number of runtimes that have their own connection to the single master.
    #[cfg(test)]
    pub(super) fn runtime_connections(&self) -> usize {
        match &self.route {
            LinkTopology::One { link, .. } => link.runtime_connections.ready(),
            LinkTopology::Cluster(_) => 0,
        }
    }

    /// Returns a receiver that changes at every reconnect and every change of a master, because acknowledged changes may be lost
    /// then.
    pub(super) fn epochs(&self) -> watch::Receiver<u64> {
        self.epochs.subscribe()
    }

    /// The links to all masters.
    fn links(&self) -> Vec<Arc<MasterLink>> {
        match &self.route {
            LinkTopology::One { link, .. } => vec![Arc::clone(link)],
            LinkTopology::Cluster(cluster) => cluster.all_links(),
        }
    }

    /// Whether every known master is connected, and, if there are sentinels, one of them has answered.
    pub(super) fn is_connected(&self) -> bool {
        match &self.route {
            LinkTopology::One { link, finder } => {
                let is_announced = link.announced.borrow().is_some();
                link.live_now().is_some() && (is_announced || !finder.is_sentinel())
            }
            LinkTopology::Cluster(cluster) => cluster.is_complete(),
        }
    }

    /// Whether several masters share the keys.
    pub(super) fn is_cluster(&self) -> bool {
        matches!(self.route, LinkTopology::Cluster(_))
    }

    /// The master that has a key; `None` if it is unknown.
    pub(super) fn master_of(&self, key: &str) -> Option<RedisAddress> {
        match &self.route {
            LinkTopology::One { link, .. } => Some(link.live_now()?.address.clone()),
            LinkTopology::Cluster(cluster) => cluster.owner(slots::of_key(key.as_bytes())),
        }
    }

    /// Waits until a key is on a master other than `master`.
    pub(super) async fn wait_until_elsewhere(&self, key: &str, master: &RedisAddress) {
        let is_elsewhere = || self.master_of(key).is_some_and(|now| now != *master);
        match &self.route {
            LinkTopology::One { link, .. } => master::wait_until(link.state.subscribe(), is_elsewhere).await,
            LinkTopology::Cluster(cluster) => cluster.wait_until(is_elsewhere).await,
        }
    }

    /// Returns a client for a server that holds data. It does not connect yet.
    pub(super) fn client(&self, address: &RedisAddress) -> RedisResult<Client> {
        self.dialer.data_client(address)
    }
}

/// The meaning of a Redis error for the call that returned it.
#[derive(Debug, PartialEq, Eq)]
enum RedisErrorMeaning {
    /// The call did not run: the server with this address owns the hash slot permanently.
    Moved(String),
    /// The call did not run: the hash slot is being moved to the server with this address, to which the call must be sent with
    /// ASKING.
    Ask(String),
    /// The call did not run: the hash slot is being moved, and one of the call's keys is not on this server. The call must be
    /// repeated soon.
    Wait,
    /// The call did not run: the server is no longer a master.
    NotMaster,
    /// The connection is lost, so it is unknown whether the call ran.
    Broken,
    /// The call was refused because a right is missing. If a command in a script was refused, the commands before it may have
    /// run.
    Denied,
    /// The call was refused. If Redis refuses the writes of a script, it refuses the first of them, so nothing was written.
    Refused,
}

impl RedisErrorMeaning {
    fn of(error: &RedisError) -> Self {
        let redirect = || error.redirect_node().map(|(address, _)| address.to_owned());
        match error.kind() {
            ErrorKind::Server(ServerErrorKind::Moved) => redirect().map_or(Self::Refused, Self::Moved),
            ErrorKind::Server(ServerErrorKind::Ask) => redirect().map_or(Self::Refused, Self::Ask),
            ErrorKind::Server(ServerErrorKind::TryAgain) => Self::Wait,
            ErrorKind::Server(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown) => Self::NotMaster,
            // A script tried to use a key whose name it had derived. Scripts use such keys before they write anything.
            ErrorKind::Server(ServerErrorKind::ResponseError)
                if error
                    .detail()
                    .is_some_and(|detail| detail.contains("attempted to access a non local key")) =>
            {
                Self::Wait
            }
            // Before Redis 7, a script's error contains the real error in its text.
            ErrorKind::Server(ServerErrorKind::ResponseError)
                if error
                    .detail()
                    .is_some_and(|detail| detail.contains(": -READONLY ") || detail.contains(": -MASTERDOWN ")) =>
            {
                Self::NotMaster
            }
            _ if rights::is_refused(error) => Self::Denied,
            _ if error.is_unrecoverable_error() => Self::Broken,
            _ => Self::Refused,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::redis::{Value, parse_redis_value};

    fn verdict(code: &str, detail: &str) -> RedisErrorMeaning {
        let line = format!("-{code} {detail}\r\n");
        let error = parse_redis_value(line.as_bytes()).and_then(Value::extract_error);
        RedisErrorMeaning::of(&error.unwrap_err())
    }

    #[test]
    fn errors_have_one_meaning_each() {
        let moved = || "10.0.0.1:7000".to_owned();
        for (code, detail, meaning) in [
            ("MOVED", "3999 10.0.0.1:7000", RedisErrorMeaning::Moved(moved())),
            ("ASK", "3999 10.0.0.1:7000", RedisErrorMeaning::Ask(moved())),
            (
                "TRYAGAIN",
                "Multiple keys request during rehashing of slot",
                RedisErrorMeaning::Wait,
            ),
            (
                "ERR",
                "Script attempted to access a non local key in a cluster node script: f_1, on @user_script:1.",
                RedisErrorMeaning::Wait,
            ),
            (
                "ERR",
                "Error running script (call to f_1): @user_script:1: @user_script: 1: Lua script attempted to access a \
                 non local key in a cluster node",
                RedisErrorMeaning::Wait,
            ),
            (
                "READONLY",
                "You can't write against a read only replica.",
                RedisErrorMeaning::NotMaster,
            ),
            ("MASTERDOWN", "Link with MASTER is down", RedisErrorMeaning::NotMaster),
            (
                "ERR",
                "Error running script (call to f_1): @user_script:1: @user_script: 1: -READONLY You can't write",
                RedisErrorMeaning::NotMaster,
            ),
            ("CLUSTERDOWN", "The cluster is down", RedisErrorMeaning::Refused),
            (
                "NOREPLICAS",
                "Not enough good replicas to write.",
                RedisErrorMeaning::Refused,
            ),
            (
                "MISCONF",
                "Redis is configured to save RDB snapshots",
                RedisErrorMeaning::Refused,
            ),
            (
                "OOM",
                "command not allowed when used memory > 'maxmemory'.",
                RedisErrorMeaning::Refused,
            ),
            ("BUSY", "Redis is busy running a script.", RedisErrorMeaning::Refused),
            (
                "LOADING",
                "Redis is loading the dataset in memory",
                RedisErrorMeaning::Refused,
            ),
            ("NOAUTH", "Authentication required.", RedisErrorMeaning::Refused),
            ("NOPERM", "this user has no permissions", RedisErrorMeaning::Denied),
            (
                "ERR",
                "The user executing the script can't run this command or subcommand script: 4d, on @user_script:1.",
                RedisErrorMeaning::Denied,
            ),
            ("ERR", "unknown command", RedisErrorMeaning::Refused),
        ] {
            assert_eq!(verdict(code, detail), meaning, "{code} {detail}");
        }
    }

    #[test]
    fn a_broken_connection_leaves_it_open_what_happened() {
        let broken = RedisError::from(std::io::Error::from(std::io::ErrorKind::BrokenPipe));
        assert_eq!(RedisErrorMeaning::of(&broken), RedisErrorMeaning::Broken);
    }
}
