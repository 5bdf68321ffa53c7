//! Sends calls to the store's Redis in any mode: one server, a master watched by sentinels, or a cluster.
//!
//! A call is one script whose keys share one slot. It is sent once. It is repeated only if it is known not to have run
//! (redirected, script unknown, server no longer the master), or if it changes nothing. All tries together stay within
//! its [`call_timeout`]: the budget limits Redis's silence, not the queue in front of it. Each master has its own
//! connection and breaker ([`lane`]).
//!
//! The crate's own clients for sentinels and clusters are not used: they split accounts, hang, and do not leave a silent
//! master (docs/redis.md, "Why weir has a link of its own").

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ::redis::{Client, Pipeline, RedisResult};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use self::call_timeout::{CallTimeout, TimeoutCheck};
use self::cluster::Cluster;
use self::finder::{Finder, Sentinel};
use self::lane::{Lane, LaneState, unavailable};
use self::live_connection::Wire;
use self::verdict::Verdict;
use super::address::Address;
use super::dialer::Dialer;
use super::script::ScriptCall;
use super::settings::{RedisMode, RedisSettings};
use crate::edges::clock;
use crate::store::{StoreError, StoreOpenError};

mod breaker;
mod call_timeout;
mod cluster;
mod connecting;
mod dial;
mod finder;
mod inspection;
mod lane;
mod live_connection;
mod misplaced_keys;
mod report;
mod runtime_connections;
mod slots;
mod supervisor;
mod verdict;

pub(super) use connecting::{CONNECT_WAIT_MAX, Pauses};
#[cfg(test)]
pub(super) use runtime_connections::CALLS_MIN as RUNTIME_CALLS_MIN;

/// The most redirects of one call.
const REDIRECTS_MAX: usize = 8;
/// The pause before a call is repeated whose slot is being moved.
const SLOT_PAUSE: Duration = Duration::from_millis(5);

/// Sends calls to Redis, in any of its modes.
pub(super) struct Link {
    route: Route,
    dialer: Arc<Dialer>,
    /// Moves at every reconnect and every change of a master, whoever notices it.
    epochs: watch::Sender<u64>,
    /// How long a call may take in total, including the queue in front of it.
    queue: Duration,
}

enum Route {
    /// All keys are with one master.
    One { lane: Arc<Lane>, finder: Finder },
    /// The first key says with whom.
    Cluster(Cluster),
}

/// How long a call may wait, and whether it may be repeated.
#[derive(Clone, Copy, Debug)]
pub(super) enum Effort {
    /// For calls that change nothing: at most this long without any answer; repeated once if the connection broke.
    Read(Duration),
    /// As for a read, but sent once: after a broken connection it is unknown whether the call ran.
    Write(Duration),
}

/// What a call says of the keys that its script touches. All are of one slot.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Keys {
    /// It names them all. While the slot is on its way Redis itself runs it only where all of them are.
    Named,
    /// It names the first, and the script makes the names of others. While a cluster moves the slot the call waits until all
    /// that the script touches is with one server again. To the server that the slot is on its way to it must not go: there
    /// the script would make anew what is still with the other one.
    Made,
}

/// Whom a call is waiting for, once it is sent.
#[derive(Default)]
struct CallProgress {
    awaited: Mutex<Option<AwaitedAnswer>>,
    /// Whether the last answer was that the slot is on its way.
    moving: AtomicBool,
}

/// Where an answer is awaited: on which of a lane's connections.
#[derive(Clone)]
struct AwaitedAnswer {
    lane: Arc<Lane>,
    number: u64,
    wire: Arc<Wire>,
}

impl Link {
    /// Checks the settings. It connects nowhere yet. `scripts` is what gives a server the scripts.
    pub(super) fn new(settings: &RedisSettings, scripts: Pipeline) -> Result<Self, StoreOpenError> {
        let nodes = settings.addresses()?;
        let dialer = Arc::new(Dialer::new(settings, scripts)?);
        let epochs = watch::Sender::new(0);
        let call_budget = settings.budget;
        let one = |finder| Route::One {
            lane: Arc::new(Lane::new(&dialer, &epochs, call_budget)),
            finder,
        };
        let route = match &settings.mode {
            RedisMode::Cluster => {
                Route::Cluster(Cluster::new(nodes, &settings.namespace, &dialer, &epochs, call_budget))
            }
            RedisMode::Sentinel {
                master_name, username, ..
            } => {
                let sentinel = Sentinel::new(nodes, master_name.clone(), username.as_deref());
                one(Finder::Sentinel(sentinel))
            }
            RedisMode::Standalone => match nodes.as_slice() {
                [node] => one(Finder::Standalone(node.clone())),
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

    /// Runs a script, within the call's time.
    pub(super) async fn call(
        &self,
        call: &ScriptCall<'_>,
        effort: Effort,
        keys: Keys,
    ) -> Result<Vec<String>, StoreError> {
        let (Effort::Read(silence) | Effort::Write(silence)) = effort;
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
                (TimeoutCheck::Silent(since), Some(AwaitedAnswer { lane, number, .. })) => lane.suspect(number, *since),
                (TimeoutCheck::Silent(_) | TimeoutCheck::TooLong, _) => {}
            }
            if progress.moving.load(Ordering::Relaxed) {
                return Err(StoreError::Unavailable(
                    "redis is moving the slot of the call's keys to another master, and has not come to the end"
                        .to_owned(),
                ));
            }
            return Err(call_timeout.ended(&check));
        }
    }

    /// Whom to ask, and whether with ASKING.
    async fn towards(
        &self,
        call: &ScriptCall<'_>,
        redirect: Option<(Address, bool)>,
    ) -> Result<(Arc<Lane>, bool), StoreError> {
        Ok(match (&self.route, redirect) {
            (Route::Cluster(cluster), Some((address, asking))) => (cluster.lane_to(&address), asking),
            (Route::Cluster(cluster), None) => {
                let slot = call.first_key().map(slots::of_key).unwrap_or_default();
                (cluster.lane(slot).await?, false)
            }
            (Route::One { lane, .. }, _) => (Arc::clone(lane), false),
        })
    }

    async fn attempt(
        &self,
        call: &ScriptCall<'_>,
        effort: Effort,
        keys: Keys,
        progress: &CallProgress,
    ) -> Result<Vec<String>, StoreError> {
        let command = call.command();
        let mut again = matches!(effort, Effort::Read(_));
        let mut redirect: Option<(Address, bool)> = None;
        let mut redirects = 0;
        while redirects < REDIRECTS_MAX {
            *progress.awaited.lock() = None;
            let (lane, asking) = self.towards(call, redirect.take()).await?;
            let live = lane.live().await?;
            let wire = lane.runtime_connections.wire(&live);
            *progress.awaited.lock() = Some(AwaitedAnswer {
                lane: Arc::clone(&lane),
                number: live.number,
                wire: Arc::clone(&wire),
            });
            let _permit = lane.permit()?;
            let error = match lane.send(&wire, call, &command, asking).await {
                Ok(reply) => return Ok(reply),
                Err(error) => error,
            };
            let verdict = match Verdict::of(&error) {
                Verdict::Ask(_) if keys == Keys::Made => Verdict::Wait,
                verdict => verdict,
            };
            progress.moving.store(verdict == Verdict::Wait, Ordering::Relaxed);
            match (&self.route, verdict) {
                (Route::Cluster(cluster), Verdict::Moved(target)) => {
                    cluster.note_stale();
                    redirects += 1;
                    redirect = Address::named_by(&target, &live.address).map(|address| (address, false));
                    if redirects > 1 {
                        // The servers do not agree yet.
                        sleep(SLOT_PAUSE).await;
                    }
                }
                (Route::Cluster(_), Verdict::Ask(target)) => {
                    redirects += 1;
                    redirect = Address::named_by(&target, &live.address).map(|address| (address, true));
                }
                (Route::One { .. }, Verdict::Moved(_) | Verdict::Ask(_)) => {
                    let text = "redis is a cluster, set store.redis.mode = \"cluster\"";
                    return Err(StoreError::Unavailable(text.to_owned()));
                }
                (_, Verdict::Wait) => {
                    // However often: the call's timeout ends it.
                    redirects = 0;
                    sleep(SLOT_PAUSE).await;
                }
                (_, Verdict::NotMaster) => {
                    redirects += 1;
                    lane.leave(live.number, LaneState::Connecting);
                }
                (_, Verdict::Broken) => {
                    lane.leave(live.number, LaneState::Connecting);
                    if !again {
                        return Err(unavailable(&error));
                    }
                    again = false;
                }
                (_, Verdict::Denied) => {
                    lane.denied.notify_one();
                    return Err(StoreError::Unavailable(self.dialer.rights.refused()));
                }
                (_, Verdict::Refused) => return Err(unavailable(&error)),
            }
        }
        Err(StoreError::Unavailable(format!(
            "redis sent a call elsewhere {REDIRECTS_MAX} times"
        )))
    }

    /// Keeps all connections up. Cancel it to stop; what is connected then stays usable.
    pub(super) async fn keep_up(&self) {
        match &self.route {
            Route::Cluster(cluster) => cluster.keep_up().await,
            Route::One { lane, finder } => tokio::select! {
                () = lane.keep_up(finder) => {}
                () = finder.follow(lane) => {}
            },
        }
    }

    /// Starts a new epoch: acknowledged changes may be lost for a reason that the link cannot see.
    pub(super) fn move_epoch(&self) {
        self.epochs.send_modify(|epoch| *epoch += 1);
    }

    /// How many runtimes have their own connection to the one master.
    #[cfg(test)]
    pub(super) fn runtime_connections(&self) -> usize {
        match &self.route {
            Route::One { lane, .. } => lane.runtime_connections.ready(),
            Route::Cluster(_) => 0,
        }
    }

    /// Changes at every reconnect and every change of a master, since acknowledged changes may be lost then.
    pub(super) fn epochs(&self) -> watch::Receiver<u64> {
        self.epochs.subscribe()
    }

    /// The lanes to all masters.
    fn lanes(&self) -> Vec<Arc<Lane>> {
        match &self.route {
            Route::One { lane, .. } => vec![Arc::clone(lane)],
            Route::Cluster(cluster) => cluster.all(),
        }
    }

    /// Whether every known master is connected, and the sentinels, if any, have answered.
    pub(super) fn is_connected(&self) -> bool {
        match &self.route {
            Route::One { lane, finder } => {
                let is_announced = lane.announced.borrow().is_some();
                lane.live_now().is_some() && (is_announced || !finder.is_sentinel())
            }
            Route::Cluster(cluster) => cluster.is_whole(),
        }
    }

    /// Whether several masters share the keys.
    pub(super) fn is_cluster(&self) -> bool {
        matches!(self.route, Route::Cluster(_))
    }

    /// The master of a key, as far as known.
    pub(super) fn master_of(&self, key: &str) -> Option<Address> {
        match &self.route {
            Route::One { lane, .. } => Some(lane.live_now()?.address.clone()),
            Route::Cluster(cluster) => cluster.owner(slots::of_key(key.as_bytes())),
        }
    }

    /// Waits until a key is with another master than this one.
    pub(super) async fn until_elsewhere(&self, key: &str, master: &Address) {
        let is_elsewhere = || self.master_of(key).is_some_and(|now| now != *master);
        match &self.route {
            Route::One { lane, .. } => lane::until(lane.state.subscribe(), is_elsewhere).await,
            Route::Cluster(cluster) => cluster.until(is_elsewhere).await,
        }
    }

    /// A client of a server that holds data.
    pub(super) fn client(&self, address: &Address) -> RedisResult<Client> {
        self.dialer.data(address)
    }
}
