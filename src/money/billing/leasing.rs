//! Asks the store about the leases of this node, and takes requests into them.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures_util::{StreamExt, stream};
use tokio::sync::watch;

use crate::{
    domain::{
        keys::key::KeyRecord,
        ledger::lease::{AskLease, LeaseAnswer},
        money::NanoUsd,
    },
    edges::clock,
    money::billing::{engine::BillingEngine, running::GrantedHold},
};

/// How often it is looked whether there is something to ask; and without any leases, which keys can be forgotten.
const LOOK_EVERY: Duration = Duration::from_millis(50);
const LOOK_EVERY_WITHOUT: Duration = Duration::from_secs(2);
/// How many questions run at once when the process ends, and how long all of them may take.
const AT_ONCE: usize = 16;
const GIVEN_BACK_WITHIN: Duration = Duration::from_millis(500);

impl BillingEngine {
    /// Admits a request out of its key's lease. `None`: the store is to be asked.
    pub(super) fn cut(&self, key: &KeyRecord, estimate: NanoUsd, tokens: u64) -> Option<GrantedHold> {
        if !self.leases.are_used() {
            return None;
        }
        let now = clock::instant();
        let (part, cut) = self.leases.cut(key, estimate, tokens, now)?;
        self.counters.leased.fetch_add(1, Ordering::Relaxed);
        Some(GrantedHold {
            seat: self.grace.leased(key, estimate, tokens),
            at_ms: cut.at_ms,
            at: now,
            watermark: cut.grant.watermark,
            balance: Some(cut.grant.balance),
            quota: cut.grant.quota,
            provider_state: cut.grant.provider_state,
            part: Some(part),
        })
    }

    /// Asks about leases until `shutdown` turns true, then gives them back.
    pub(super) async fn keep_leases(self: Arc<Self>, mut shutdown: watch::Receiver<bool>) {
        if !self.leases.are_used() {
            return;
        }
        loop {
            let pause = if self.leases.are_there() {
                LOOK_EVERY
            } else {
                LOOK_EVERY_WITHOUT
            };
            tokio::select! {
                () = self.leases.wake.notified() => {}
                () = tokio::time::sleep(pause) => {}
                _ = shutdown.wait_for(|stop| *stop) => break,
            }
            for ask in self.leases.questions(&self.node, clock::instant()) {
                let engine = Arc::clone(&self);
                tokio::spawn(async move { engine.ask(ask).await });
            }
        }
        self.leases.recall(|_| true);
        let questions = self.leases.questions(&self.node, clock::instant());
        let given_back = stream::iter(questions).for_each_concurrent(AT_ONCE, |ask| self.ask(ask));
        if tokio::time::timeout(GIVEN_BACK_WITHIN, given_back).await.is_err() {
            tracing::debug!("leases could not be given back in time, they end by themselves");
        }
    }

    async fn ask(&self, ask: AskLease) {
        let asked = clock::instant();
        let answer = self.ledger.lease(&ask).await;
        let answered = clock::instant();
        if let Err(error) = &answer {
            tracing::debug!(lease = %ask.lease, %error, "the ledger did not answer about a lease");
        }
        let answer = answer.ok();
        let key = self.leases.answered(&ask, answer.as_ref(), (asked, answered));
        if let (Some((key, goes_on)), Some(LeaseAnswer::Held(leased))) = (key, &answer) {
            self.time.told(leased.grant.at_ms, asked, answered);
            self.grace.note_grant(&key, &leased.grant, goes_on);
        }
    }
}
