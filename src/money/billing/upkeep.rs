//! Background work of billing: checkpoints in the journal, renewal of holds at the ledger, the end of unconfirmed holds, and the
//! calls about leases.

use std::{
    collections::HashMap,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures_util::{StreamExt, stream};
use tokio::sync::watch;

use crate::{
    domain::{
        keys::KeyRecord,
        ledger::lease::{LeaseCall, LeaseReply},
        money::NanoUsd,
    },
    edges::clock,
    money::billing::engine::{BillingEngine, GrantedHold},
};

impl BillingEngine {
    /// Writes a checkpoint whenever one is due because requests have consumed something. Never returns.
    pub(super) async fn keep_checkpoints(&self) {
        loop {
            let due = self.running.next_checkpoint().await;
            tokio::time::sleep_until(due.into()).await;
            self.checkpoint();
        }
    }

    /// Writes a checkpoint of all requests that have consumed something since the last one.
    pub(super) fn checkpoint(&self) {
        self.running.on_checkpoint(clock::instant());
        for _ in 0..self.journal.record_checkpoints(&self.running.take_changed()) {
            self.counters.record_failure();
        }
    }

    /// Renews the holds, then ends the unconfirmed holds wherever the ledger is reachable. The others stay unconfirmed.
    pub(super) async fn renew(&self) {
        let accounts: Vec<String> = self.running.by_account().into_keys().map(String::from).collect();
        let unconfirmed = self.unconfirmed.take_all();
        let renewed = self.ledger.renew(&self.node, &accounts).await;
        if let Err(error) = &renewed {
            tracing::debug!(%error, "cannot renew the holds of all running requests; trying again at the next renewal");
        }
        let mut there = HashMap::new();
        let mut open = Vec::new();
        for hold in unconfirmed {
            let is_there = match there.get(hold.account()) {
                Some(is_there) => *is_there,
                None => {
                    // One part of the ledger may be unreachable while another is not.
                    let account = [hold.account().to_owned()];
                    let is_there = renewed.is_ok() || self.ledger.renew(&self.node, &account).await.is_ok();
                    let [account] = account;
                    there.insert(account, is_there);
                    is_there
                }
            };
            if is_there && hold.end(&self.journal).is_ok() {
                continue;
            }
            if is_there {
                self.counters.record_failure();
            }
            open.push(hold);
        }
        self.unconfirmed.put_back(open);
    }
}

/// How often the node looks for due calls if it has leases. Without leases, it only looks for keys that can be removed.
const LOOK_EVERY: Duration = Duration::from_millis(50);
const LOOK_EVERY_WITHOUT: Duration = Duration::from_secs(2);
/// Maximum number of concurrent calls when the process ends, and the timeout for all of them.
const AT_ONCE: usize = 16;
const GIVEN_BACK_WITHIN: Duration = Duration::from_millis(500);

impl BillingEngine {
    /// Admits a request from its key's lease; returns `None` if the store must be called.
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

    /// Requests and renews leases until `shutdown` becomes true, then gives them back.
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
            tracing::debug!("cannot give all leases back in time; they expire by themselves");
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
