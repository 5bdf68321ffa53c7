//! Sends calls to the store's Redis in any mode: one server, a master watched by sentinels, or a cluster.
//!
//! A call is one script whose keys share one slot. It is sent once. It is repeated only if it is known not to have run
//! (redirected, script unknown, server no longer the master), or if it changes nothing. All tries together stay within its
//! [`CallTimeout`]: the budget limits Redis's silence, not the queue in front of it. Each master has its own connection and
//! breaker ([`Lane`]).
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
use self::finder::{MasterFinder, Sentinels};
use self::lane::{LaneState, MasterLane, unavailable};
use self::live_connection::Wire;
use self::verdict::RedisErrorMeaning;
use super::address::RedisAddress;
use super::dialer::RedisDialer;
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

pub(super) use connecting::{CONNECT_WAIT_MAX, RetryPauses};
#[cfg(test)]
pub(super) use runtime_connections::CALLS_MIN as RUNTIME_CALLS_MIN;

/// The maximum number of redirects of one call.
const REDIRECTS_MAX: usize = 8;
/// The pause before a call is repeated whose slot is being moved.
const SLOT_PAUSE: Duration = Duration::from_millis(5);

/// Sends calls to Redis, in any of its modes.
pub(super) struct Link {
    route: LinkTopology,
    dialer: Arc<RedisDialer>,
    /// Changes at every reconnect and every change of a master, whichever task notices it.
    epochs: watch::Sender<u64>,
    /// The timeout of a call in total, including the queue in front of it.
    queue: Duration,
}

enum LinkTopology {
    /// All keys are at one master.
    One {
        lane: Arc<MasterLane>,
        finder: MasterFinder,
    },
    /// The first key determines the master.
    Cluster(Cluster),
}

/// How long a call may wait, and whether it may be repeated.
#[derive(Clone, Copy, Debug)]
pub(super) enum CallPolicy {
    /// For calls that change nothing: at most this long without any answer; repeated once if the connection broke.
    Read(Duration),
    /// As for a read, but sent once: after a broken connection it is unknown whether the call ran.
    Write(Duration),
}

/// Which keys that its script touches a call names. All are in one slot.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyNaming {
    /// All of them. While the slot is being moved, Redis itself runs the script only where all of them are.
    Named,
    /// Only the first one; the script derives the names of the others. While a cluster moves the slot, the call waits until
    /// all keys that the script touches are at one server again. It must not go to the server that the slot is being moved
    /// to: there the script would create again what is still at the other one.
    Made,
}

/// The answer that a call is waiting for, once it is sent.
#[derive(Default)]
struct CallProgress {
    awaited: Mutex<Option<AwaitedAnswer>>,
    /// Whether the last answer was that the slot is being moved.
    moving: AtomicBool,
}

/// Where an answer is awaited: on which of a lane's connections.
#[derive(Clone)]
struct AwaitedAnswer {
    lane: Arc<MasterLane>,
    number: u64,
    wire: Arc<Wire>,
}

impl Link {
    /// Checks the settings. Does not connect yet. `scripts` loads the scripts into a server.
    pub(super) fn new(settings: &RedisSettings, scripts: Pipeline) -> Result<Self, StoreOpenError> {
        let nodes = settings.addresses()?;
        let dialer = Arc::new(RedisDialer::new(settings, scripts)?);
        let epochs = watch::Sender::new(0);
        let call_budget = settings.budget;
        let one = |finder| LinkTopology::One {
            lane: Arc::new(MasterLane::new(&dialer, &epochs, call_budget)),
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

    /// Runs a script within the call's timeout.
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
                (TimeoutCheck::Silent(since), Some(AwaitedAnswer { lane, number, .. })) => lane.suspect(number, *since),
                (TimeoutCheck::Silent(_) | TimeoutCheck::TooLong, _) => {}
            }
            if progress.moving.load(Ordering::Relaxed) {
                return Err(StoreError::Unavailable(
                    "redis is still moving the slot of the call's keys to another master".to_owned(),
                ));
            }
            return Err(call_timeout.error(&check));
        }
    }

    /// The lane of a call, and whether to send it with ASKING.
    async fn lane_for(
        &self,
        call: &ScriptCall<'_>,
        redirect: Option<(RedisAddress, bool)>,
    ) -> Result<(Arc<MasterLane>, bool), StoreError> {
        Ok(match (&self.route, redirect) {
            (LinkTopology::Cluster(cluster), Some((address, asking))) => (cluster.lane_to(&address), asking),
            (LinkTopology::Cluster(cluster), None) => {
                let slot = call.first_key().map(slots::of_key).unwrap_or_default();
                (cluster.lane(slot).await?, false)
            }
            (LinkTopology::One { lane, .. }, _) => (Arc::clone(lane), false),
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
            let (lane, asking) = self.lane_for(call, redirect.take()).await?;
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
                        // The servers do not agree yet.
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
                    // Without a limit: the call's timeout ends it.
                    redirects = 0;
                    sleep(SLOT_PAUSE).await;
                }
                (_, RedisErrorMeaning::NotMaster) => {
                    redirects += 1;
                    lane.give_up(live.number, LaneState::Connecting);
                }
                (_, RedisErrorMeaning::Broken) => {
                    lane.give_up(live.number, LaneState::Connecting);
                    if !again {
                        return Err(unavailable(&error));
                    }
                    again = false;
                }
                (_, RedisErrorMeaning::Denied) => {
                    lane.denied.notify_one();
                    return Err(StoreError::Unavailable(self.dialer.rights.refusal_text()));
                }
                (_, RedisErrorMeaning::Refused) => return Err(unavailable(&error)),
            }
        }
        Err(StoreError::Unavailable(format!(
            "redis redirected a call {REDIRECTS_MAX} times"
        )))
    }

    /// Keeps all connections up. Cancel this to stop; established connections then stay usable.
    pub(super) async fn maintain(&self) {
        match &self.route {
            LinkTopology::Cluster(cluster) => cluster.maintain().await,
            LinkTopology::One { lane, finder } => tokio::select! {
                () = lane.maintain(finder) => {}
                () = finder.follow(lane) => {}
            },
        }
    }

    /// Starts a new epoch: acknowledged changes may be lost for a reason that the link cannot see.
    pub(super) fn advance_epoch(&self) {
        self.epochs.send_modify(|epoch| *epoch += 1);
    }

    /// The number of runtimes that have their own connection to the one master.
    #[cfg(test)]
    pub(super) fn runtime_connections(&self) -> usize {
        match &self.route {
            LinkTopology::One { lane, .. } => lane.runtime_connections.ready(),
            LinkTopology::Cluster(_) => 0,
        }
    }

    /// Changes at every reconnect and every change of a master, since acknowledged changes may be lost then.
    pub(super) fn epochs(&self) -> watch::Receiver<u64> {
        self.epochs.subscribe()
    }

    /// The lanes to all masters.
    fn lanes(&self) -> Vec<Arc<MasterLane>> {
        match &self.route {
            LinkTopology::One { lane, .. } => vec![Arc::clone(lane)],
            LinkTopology::Cluster(cluster) => cluster.all_lanes(),
        }
    }

    /// Whether every known master is connected, and the sentinels, if any, have answered.
    pub(super) fn is_connected(&self) -> bool {
        match &self.route {
            LinkTopology::One { lane, finder } => {
                let is_announced = lane.announced.borrow().is_some();
                lane.live_now().is_some() && (is_announced || !finder.is_sentinel())
            }
            LinkTopology::Cluster(cluster) => cluster.is_complete(),
        }
    }

    /// Whether several masters share the keys.
    pub(super) fn is_cluster(&self) -> bool {
        matches!(self.route, LinkTopology::Cluster(_))
    }

    /// The master of a key, as far as known.
    pub(super) fn master_of(&self, key: &str) -> Option<RedisAddress> {
        match &self.route {
            LinkTopology::One { lane, .. } => Some(lane.live_now()?.address.clone()),
            LinkTopology::Cluster(cluster) => cluster.owner(slots::of_key(key.as_bytes())),
        }
    }

    /// Waits until a key is at another master than `master`.
    pub(super) async fn wait_until_elsewhere(&self, key: &str, master: &RedisAddress) {
        let is_elsewhere = || self.master_of(key).is_some_and(|now| now != *master);
        match &self.route {
            LinkTopology::One { lane, .. } => lane::wait_until(lane.state.subscribe(), is_elsewhere).await,
            LinkTopology::Cluster(cluster) => cluster.wait_until(is_elsewhere).await,
        }
    }

    /// A client for a server that holds data.
    pub(super) fn client(&self, address: &RedisAddress) -> RedisResult<Client> {
        self.dialer.data_client(address)
    }
}
