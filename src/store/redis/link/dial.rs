//! Connects a master lane to a server, and reads the server's report about itself.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ::redis::aio::MultiplexedConnection;
use ::redis::{ErrorKind, RedisError, RedisResult, ServerErrorKind};
use tokio::runtime::Handle;

use crate::store::StoreWarning;
use crate::store::redis::link::connection::ServerReport;
use crate::store::redis::link::connection::{LiveConnection, Wire};
use crate::store::redis::link::master::{LaneState, MasterLane};
use crate::store::redis::rights::MissingUserRights;
use crate::store::redis::settings::RedisAddress;

/// A new connection, with the server's report; `None` if the user may not read it.
pub(super) struct DialedConnection {
    pub(super) live: Arc<LiveConnection>,
    pub(super) report: Option<ServerReport>,
}

impl MasterLane {
    /// Connects to a server, inspects it, and loads the scripts into it.
    pub(super) async fn dial(self: &Arc<Self>, address: &RedisAddress) -> Result<DialedConnection, String> {
        let fault = |error: RedisError| format!("cannot use redis at {address}: {error}");
        let number = self.dialed.fetch_add(1, Ordering::Relaxed);
        let lane = Arc::downgrade(self);
        let at_end = move || {
            if let Some(lane) = lane.upgrade() {
                lane.give_up(number, LaneState::Connecting);
            }
        };
        let client = self.dialer.data_client(address).map_err(fault)?;
        let (missing, connected) = tokio::join!(self.dialer.missing_rights(address), Wire::connect(&client, at_end));
        if let Some(refusal) = missing.and_then(|missing| self.record_rights(missing)) {
            return Err(refusal);
        }
        let wire = connected.map_err(fault)?;
        let mut connection = wire.connection.clone();
        let report = fetch_report(&mut connection).await.map_err(fault)?;
        if let Some(reason) = report.as_ref().and_then(ServerReport::refusal) {
            self.record_report(report.as_ref());
            return Err(self.refuse(format!("redis at {address} {reason}")));
        }
        let loaded = self.dialer.scripts.exec_async(&mut connection).await;
        loaded.map_err(fault)?;
        let live = LiveConnection {
            wire: Arc::new(wire),
            number,
            address: address.clone(),
            client,
            runtime: Handle::current().id(),
        };
        Ok(DialedConnection {
            live: Arc::new(live),
            report,
        })
    }

    /// Records why a server that answers is not used, and returns that reason.
    pub(super) fn refuse(&self, reason: String) -> String {
        self.status.lock().refusal = Some(reason.clone());
        reason
    }

    /// Records the rights that the user lacks. Returns why the server is not used; `None` if it can be used.
    pub(super) fn record_rights(&self, missing: MissingUserRights) -> Option<String> {
        let MissingUserRights { refusal, complaint } = missing;
        {
            let mut status = self.status.lock();
            if let Some(complaint) = complaint.as_ref().filter(|_| status.complaint != complaint) {
                tracing::warn!(kind = StoreWarning::MissingRights.kind(), "{complaint}");
            }
            if status.complaint.is_some() && complaint.is_none() {
                tracing::info!("the redis user now has the rights that it lacked");
            }
            status.complaint = complaint;
            status.denied = refusal.is_some();
        }
        refusal.map(|refusal| self.refuse(refusal))
    }

    pub(super) fn record_report(&self, report: Option<&ServerReport>) {
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
            tracing::info!(
                kind = warning.kind(),
                "a warning about the redis settings no longer applies"
            );
        }
    }
}

/// Reads a server's report. If the user lacks the right for it, that is not an error, and the result is `None`.
pub(super) async fn fetch_report(connection: &mut MultiplexedConnection) -> RedisResult<Option<ServerReport>> {
    let info: RedisResult<String> = ::redis::cmd("INFO").query_async(connection).await;
    match info {
        Ok(info) => Ok(Some(ServerReport::parse(&info))),
        Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoPerm) => {
            ::redis::cmd("PING").exec_async(connection).await.map(|()| None)
        }
        Err(error) => Err(error),
    }
}
