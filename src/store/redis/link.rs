//! The data connection: one multiplexed connection, made and made again in the background, behind a breaker.
//!
//! A call never makes a connection. While the link is up it is sent at once; while it is being made for the first time, or
//! again after a drop, it waits within its budget; while the server is known to be away it fails at once. So a dead server
//! costs a caller nothing, and the only probe of it is the background's next attempt, at most one per second.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::{AsyncConnectionConfig, Client, RedisError, RedisResult, ScriptInvocation};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::scripts::Scripts;
use crate::store::StoreError;

/// How long one attempt to connect may take, logging in and loading the scripts included.
pub(super) const CONNECT_WAIT_MAX: Duration = Duration::from_secs(1);
/// The pause after the first failed attempt; it doubles up to [`PAUSE_MAX`].
pub(super) const PAUSE_MIN: Duration = Duration::from_millis(50);
/// The longest pause between two attempts.
pub(super) const PAUSE_MAX: Duration = Duration::from_secs(1);
/// How many calls in a row may run into their budget before the link counts as down.
const TIMEOUTS_MAX: u32 = 3;
/// How many calls may be under way at once; more wait within their budget.
const CALLS_MAX: usize = 4096;

pub(super) struct Link {
    client: Client,
    state: watch::Sender<State>,
    timeouts: AtomicU32,
    /// How long the first attempt after a drop may keep calls waiting.
    patience: Duration,
}

#[derive(Clone)]
enum State {
    Connecting,
    Up {
        connection: MultiplexedConnection,
        number: u64,
    },
    Down {
        reason: String,
    },
}

/// How hard a call may try.
#[derive(Clone, Copy, Debug)]
pub(super) enum Effort {
    /// Within this time; sent again once if the connection broke under it. For calls that change nothing.
    Read(Duration),
    /// Within this time, sent once: after a broken connection it is not known whether it happened.
    Write(Duration),
}

impl Link {
    pub(super) fn new(client: Client, patience: Duration) -> Self {
        let (state, _) = watch::channel(State::Connecting);
        Self {
            client,
            state,
            timeouts: AtomicU32::new(0),
            patience,
        }
    }

    pub(super) async fn call(&self, call: &ScriptInvocation<'_>, effort: Effort) -> Result<Vec<String>, StoreError> {
        let (Effort::Read(budget) | Effort::Write(budget)) = effort;
        let mut asked = None;
        let answer = timeout(budget, self.attempt(call, effort, &mut asked)).await;
        answer.unwrap_or_else(|_| {
            if let Some(number) = asked {
                self.note_timeout(number);
            }
            Err(StoreError::Unavailable(format!(
                "redis gave no answer within {} ms",
                budget.as_millis()
            )))
        })
    }

    async fn attempt(
        &self,
        call: &ScriptInvocation<'_>,
        effort: Effort,
        asked: &mut Option<u64>,
    ) -> Result<Vec<String>, StoreError> {
        let mut again = matches!(effort, Effort::Read(_));
        loop {
            *asked = None;
            let (mut connection, number) = self.connection().await?;
            *asked = Some(number);
            match call.invoke_async(&mut connection).await {
                Ok(reply) => {
                    self.timeouts.store(0, Ordering::Relaxed);
                    return Ok(reply);
                }
                Err(error) if error.is_unrecoverable_error() => {
                    self.leave(number, State::Connecting);
                    if !again {
                        return Err(unavailable(&error));
                    }
                    again = false;
                }
                Err(error) => return Err(unavailable(&error)),
            }
        }
    }

    /// The live connection, waiting for one that is just being made.
    async fn connection(&self) -> Result<(MultiplexedConnection, u64), StoreError> {
        let mut states = self.state.subscribe();
        let gone = || StoreError::Unavailable("the store has been closed".to_owned());
        let state = states
            .wait_for(|state| !matches!(state, State::Connecting))
            .await
            .map_err(|_| gone())?;
        match &*state {
            State::Up { connection, number } => Ok((connection.clone(), *number)),
            State::Down { reason } => Err(StoreError::Unavailable(reason.clone())),
            State::Connecting => Err(gone()),
        }
    }

    fn note_timeout(&self, number: u64) {
        if self.timeouts.fetch_add(1, Ordering::Relaxed) + 1 >= TIMEOUTS_MAX {
            self.leave(
                number,
                State::Down {
                    reason: format!("redis left {TIMEOUTS_MAX} calls unanswered"),
                },
            );
        }
    }

    /// Gives a connection up, if it is still the one in use.
    fn leave(&self, number: u64, next: State) {
        self.state.send_if_modified(|state| {
            let current = matches!(state, State::Up { number: current, .. } if *current == number);
            if current {
                *state = next;
            }
            current
        });
    }

    /// Keeps a connection up. Cancel it to stop; what is connected then stays usable.
    pub(super) async fn keep_up(&self, scripts: &Scripts) {
        let mut pause = PAUSE_MIN;
        let mut away = false;
        for number in 0.. {
            match self.connect(scripts).await {
                Ok(connection) => {
                    tracing::info!(again = away, "redis connected");
                    (pause, away) = (PAUSE_MIN, false);
                    self.timeouts.store(0, Ordering::Relaxed);
                    self.state.send_replace(State::Up { connection, number });
                    let mut states = self.state.subscribe();
                    if states
                        .wait_for(|state| !matches!(state, State::Up { .. }))
                        .await
                        .is_err()
                    {
                        return;
                    }
                    tracing::warn!("redis connection lost");
                }
                Err(reason) => {
                    if !away {
                        tracing::error!(reason, "redis cannot be reached, trying on");
                    }
                    away = true;
                    self.state.send_replace(State::Down { reason });
                    sleep(pause).await;
                    pause = PAUSE_MAX.min(pause * 2);
                }
            }
        }
    }

    /// One attempt. When it outlasts the callers' patience they are told so, and it goes on without them.
    async fn connect(&self, scripts: &Scripts) -> Result<MultiplexedConnection, String> {
        let attempt = timeout(CONNECT_WAIT_MAX, self.open(scripts));
        tokio::pin!(attempt);
        let outcome = match timeout(self.patience, &mut attempt).await {
            Ok(outcome) => outcome,
            Err(_) => {
                self.state.send_replace(State::Down {
                    reason: "redis does not answer".to_owned(),
                });
                attempt.await
            }
        };
        match outcome {
            Ok(Ok(connection)) => Ok(connection),
            Ok(Err(error)) => Err(format!("redis cannot be reached: {error}")),
            Err(_) => Err(format!(
                "redis did not answer within {} ms",
                CONNECT_WAIT_MAX.as_millis()
            )),
        }
    }

    async fn open(&self, scripts: &Scripts) -> RedisResult<MultiplexedConnection> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_pipeline_buffer_size(CALLS_MAX)
            .set_concurrency_limit(CALLS_MAX);
        let mut connection = self
            .client
            .get_multiplexed_async_connection_with_config(&config)
            .await?;
        // With the scripts in place a call is one round trip, also the first one.
        scripts.load(&mut connection).await?;
        warn_of_eviction(&mut connection).await;
        Ok(connection)
    }
}

/// A Redis that evicts takes keys for cache entries and forgets customers. Not being allowed to ask is no fault.
async fn warn_of_eviction(connection: &mut MultiplexedConnection) {
    let memory: RedisResult<String> = ::redis::cmd("INFO").arg("memory").query_async(connection).await;
    let policy = memory.ok().and_then(|memory| {
        memory.lines().find_map(|line| {
            line.strip_prefix("maxmemory_policy:")
                .map(|policy| policy.trim().to_owned())
        })
    });
    if let Some(policy) = policy.filter(|policy| policy != "noeviction") {
        tracing::error!(policy, "redis may evict keys, set maxmemory-policy to noeviction");
    }
}

fn unavailable(error: &RedisError) -> StoreError {
    StoreError::Unavailable(format!("redis: {error}"))
}
