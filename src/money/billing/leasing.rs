//! Calls the store about the leases of this node, and admits requests from them.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures_util::{StreamExt, stream};
use tokio::sync::watch;

use crate::{
    domain::{
        keys::key::KeyRecord,
        ledger::lease::{LeaseCall, LeaseReply},
        money::NanoUsd,
    },
    edges::clock,
    money::billing::{engine::BillingEngine, running::GrantedHold},
};

/// How often due calls are looked for; and without any leases, keys that can be forgotten.
const LOOK_EVERY: Duration = Duration::from_millis(50);
const LOOK_EVERY_WITHOUT: Duration = Duration::from_secs(2);
/// Maximum number of concurrent calls when the process ends, and the timeout for all of them.
const AT_ONCE: usize = 16;
const GIVEN_BACK_WITHIN: Duration = Duration::from_millis(500);

impl BillingEngine {
    /// Admits a request from its key's lease; `None` if the store must be asked.
    pub(super) fn allocate(&self, key: &KeyRecord, estimate: NanoUsd, tokens: u64) -> Option<GrantedHold> {
        if !self.leases.is_enabled() {
            return None;
        }
        let now = clock::instant();
        let (part, cut) = self.leases.allocate(key, estimate, tokens, now)?;
        self.counters.lease_admissions.fetch_add(1, Ordering::Relaxed);
        Some(GrantedHold {
            seat: self.grace.on_lease_admission(key, estimate, tokens),
            at_ms: cut.at_ms,
            at: now,
            watermark: cut.grant.watermark,
            balance: Some(cut.grant.balance),
            quota: cut.grant.quota,
            provider_state: cut.grant.provider_state,
            allocation: Some(part),
        })
    }

    /// Requests and renews leases until `shutdown` turns true, then gives them back.
    pub(super) async fn keep_leases(self: Arc<Self>, mut shutdown: watch::Receiver<bool>) {
        if !self.leases.is_enabled() {
            return;
        }
        loop {
            let pause = if self.leases.has_leases() {
                LOOK_EVERY
            } else {
                LOOK_EVERY_WITHOUT
            };
            tokio::select! {
                () = self.leases.wake.notified() => {}
                () = tokio::time::sleep(pause) => {}
                _ = shutdown.wait_for(|stop| *stop) => break,
            }
            for ask in self.leases.due_calls(&self.node, clock::instant()) {
                let engine = Arc::clone(&self);
                tokio::spawn(async move { engine.call_lease(ask).await });
            }
        }
        self.leases.recall(|_| true);
        let questions = self.leases.due_calls(&self.node, clock::instant());
        let given_back = stream::iter(questions).for_each_concurrent(AT_ONCE, |ask| self.call_lease(ask));
        if tokio::time::timeout(GIVEN_BACK_WITHIN, given_back).await.is_err() {
            tracing::debug!("leases could not be given back in time; they expire by themselves");
        }
    }

    async fn call_lease(&self, ask: LeaseCall) {
        let asked = clock::instant();
        let answer = self.ledger.lease(&ask).await;
        let answered = clock::instant();
        if let Err(error) = &answer {
            tracing::debug!(lease = %ask.lease, %error, "the ledger did not answer a lease call");
        }
        let answer = answer.ok();
        let key = self.leases.on_reply(&ask, answer.as_ref(), (asked, answered));
        if let (Some((key, goes_on)), Some(LeaseReply::Held(leased))) = (key, &answer) {
            self.time.record(leased.grant.at_ms, asked, answered);
            self.grace.record_grant(&key, &leased.grant, goes_on);
        }
    }
}
