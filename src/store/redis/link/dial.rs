//! Connects a lane to a server and looks at what that says of itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ::redis::aio::MultiplexedConnection;
use ::redis::{ErrorKind, PushInfo, PushKind, RedisError, RedisResult, ServerErrorKind};
use tokio::runtime::Handle;

use super::connecting::connection_config;
use super::lane::{Lane, LaneState, leave};
use super::last_answer::LastAnswer;
use super::live_connection::{LiveConnection, Origin};
use super::report::Report;
use crate::edges::clock;
use crate::store::StoreWarning;
use crate::store::redis::address::Address;
use crate::store::redis::rights::Missing;
use crate::store::redis::scripts::Scripts;

/// A connection, what its server says of itself (nothing where the user may not ask), and whether it has been closed since.
pub(super) struct DialedConnection {
    pub(super) live: LiveConnection,
    pub(super) report: Option<Report>,
    pub(super) closed: Arc<AtomicBool>,
}

impl Lane {
    /// Connects to a server and looks at it. A master, or any server that may be a replica, is given the scripts: with them
    /// in place a call is one round trip, also the first one.
    pub(super) async fn dial(&self, address: &Address, scripts: &Scripts) -> Result<DialedConnection, String> {
        let fault = |error: RedisError| format!("redis at {address} cannot be used: {error}");
        let number = self.dialed.fetch_add(1, Ordering::Relaxed);
        let closed = Arc::new(AtomicBool::new(false));
        let (state, flag) = (Arc::downgrade(&self.state), Arc::clone(&closed));
        let on_push = move |push: PushInfo| {
            if push.kind == PushKind::Disconnection {
                flag.store(true, Ordering::Release);
                if let Some(state) = state.upgrade() {
                    leave(&state, number, LaneState::Connecting);
                }
            }
            Ok::<(), RedisError>(())
        };
        let config = connection_config().set_push_sender(on_push);
        let client = self.dialer.data(address).map_err(fault)?;
        let (missing, connected) = tokio::join!(
            self.dialer.missing_rights(address),
            client.get_multiplexed_async_connection_with_config(&config)
        );
        if let Some(refusal) = missing.and_then(|missing| self.note_rights(missing)) {
            return Err(refusal);
        }
        let mut connection = connected.map_err(fault)?;
        let report = look(&mut connection).await.map_err(fault)?;
        if let Some(reason) = report.as_ref().and_then(Report::refusal) {
            self.note_report(report.as_ref());
            return Err(self.refuse(format!("redis at {address} {reason}")));
        }
        scripts.load(&mut connection).await.map_err(fault)?;
        Ok(DialedConnection {
            live: LiveConnection {
                connection,
                last_answer: LastAnswer::new(clock::instant()),
                number,
                address: address.clone(),
                origin: Arc::new(Origin {
                    client,
                    runtime: Handle::current().id(),
                }),
            },
            report,
            closed,
        })
    }

    /// A server that answers is not used for this reason.
    pub(super) fn refuse(&self, reason: String) -> String {
        self.status.lock().refusal = Some(reason.clone());
        reason
    }

    /// Takes down what the user may not do. Why the server is not used, if it is not.
    pub(super) fn note_rights(&self, missing: Missing) -> Option<String> {
        let Missing { refusal, complaint } = missing;
        {
            let mut status = self.status.lock();
            if let Some(complaint) = complaint.as_ref().filter(|_| status.complaint != complaint) {
                tracing::warn!(kind = StoreWarning::MissingRights.kind(), "{complaint}");
            }
            if status.complaint.is_some() && complaint.is_none() {
                tracing::info!("the redis user has the rights that it lacked");
            }
            status.complaint = complaint;
            status.denied = refusal.is_some();
        }
        refusal.map(|refusal| self.refuse(refusal))
    }

    pub(super) fn note_report(&self, report: Option<&Report>) {
        let Some(report) = report else { return };
        let before = {
            let mut status = self.status.lock();
            status.memory = report.memory;
            status.evicted = report.evicted;
            std::mem::replace(&mut status.warnings, report.warnings.clone())
        };
        for warning in report.warnings.difference(&before) {
            tracing::warn!(kind = warning.kind(), "{}", warning.advice());
        }
        for warning in before.difference(&report.warnings) {
            tracing::info!(kind = warning.kind(), "a warning about the store's settings has ended");
        }
    }
}

/// Asks a server about itself. Not being allowed to ask is no fault.
pub(super) async fn look(connection: &mut MultiplexedConnection) -> RedisResult<Option<Report>> {
    let info: RedisResult<String> = ::redis::cmd("INFO").query_async(connection).await;
    match info {
        Ok(info) => Ok(Some(Report::read(&info))),
        Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoPerm) => {
            ::redis::cmd("PING").exec_async(connection).await.map(|()| None)
        }
        Err(error) => Err(error),
    }
}
