//! Several nodes and one account, with questions that are on their way between them.

use std::time::{Duration, Instant};

use crate::{
    domain::{
        keys::{
            KeyId, KeyRecord, KeyState,
            terms::{KeyTerms, QuotaReset, RateLimits},
        },
        ledger::{
            Account, AccountChange, AdmitCall, AdmitReply, LEASE_MS, NodeId, Settlement, Step,
            lease::{
                LeaseCall, LeaseId, RateUse,
                node::{LeaseTarget, NodeLease},
            },
        },
        money::NanoUsd,
    },
    edges::clock,
};

/// Saturday 2026-11-21, 12:00 UTC.
pub(super) const NOON: i64 = 1_795_262_400_000;
pub(super) const NODES: usize = 3;
pub(super) const BALANCE: i64 = 20_000;
/// A question that is later than its holder's lease may begin one that has ended.
const LATEST: Duration = Duration::from_millis(LEASE_MS.unsigned_abs());
pub(super) const TARGET: LeaseTarget = LeaseTarget {
    amount: NanoUsd::from_nanos(300),
    rated: RateUse {
        requests: 12,
        tokens: 120,
    },
};

pub(super) fn nanos(amount: i64) -> NanoUsd {
    NanoUsd::from_nanos(amount)
}
pub(super) fn named(number: usize) -> NodeId {
    NodeId::parse(&format!("node_{number:016}")).unwrap()
}

pub(super) fn key(quota: Option<i64>, rates: RateLimits) -> KeyRecord {
    KeyRecord {
        id: KeyId::parse("key_0123456789abcdef").unwrap(),
        name: "desk".to_owned(),
        account: "acme".into(),
        created_at: 1,
        expires_at: None,
        models: None,
        state: KeyState::Active,
        hint: "wxyz".to_owned(),
        revision: 1,
        former: None,
        text_since: None,
        terms: KeyTerms {
            quota: quota.map(nanos),
            reset: QuotaReset::Daily,
            rates,
            ..KeyTerms::default()
        },
    }
}

/// A running request: in a lease, by its index and its cut, or with a hold of its own.
#[derive(Clone, Debug)]
pub(super) struct Running {
    pub(super) request: String,
    pub(super) hold: i64,
    pub(super) at_ms: i64,
    pub(super) cut: Option<(usize, u64)>,
}

/// A question that is on its way.
#[derive(Clone, Debug)]
pub(super) struct Question {
    pub(super) ask: LeaseCall,
    pub(super) asked: Instant,
}

pub(super) struct Node {
    pub(super) name: NodeId,
    /// All that it has ever had; the last one is used.
    pub(super) leases: Vec<(LeaseId, NodeLease)>,
    pub(super) questions: Vec<Question>,
    pub(super) running: Vec<Running>,
    pub(super) steps: Vec<Step>,
    pub(super) sent: usize,
}

pub(super) struct World {
    pub(super) account: Account,
    pub(super) key: KeyRecord,
    pub(super) nodes: Vec<Node>,
    pub(super) began: Instant,
    pub(super) ms: i64,
    pub(super) requests: u64,
    pub(super) costs: i64,
    pub(super) credits: i64,
    pub(super) leased: u64,
    /// When each request was admitted, and its tokens.
    pub(super) admitted: Vec<(i64, u64)>,
}

impl World {
    pub(super) fn new(quota: Option<i64>) -> Self {
        Self::of(key(quota, RateLimits::default()), BALANCE)
    }

    /// With a key that has rates, and more money than it needs.
    pub(super) fn paced(rates: RateLimits) -> Self {
        Self::of(key(None, rates), 100 * BALANCE)
    }

    fn of(key: KeyRecord, balance: i64) -> Self {
        let mut account = Account::default();
        let open = AccountChange::Open {
            balance: nanos(balance),
            at: 1,
            operation: None,
        };
        account.apply(&named(9), &[Step { seq: 1, change: open }], 0);
        let node = |number| Node {
            name: named(number),
            leases: Vec::new(),
            questions: Vec::new(),
            running: Vec::new(),
            steps: Vec::new(),
            sent: 0,
        };
        Self {
            account,
            key,
            nodes: (0..NODES).map(node).collect(),
            began: clock::instant(),
            ms: 0,
            requests: 0,
            costs: 0,
            credits: balance,
            leased: 0,
            admitted: Vec::new(),
        }
    }

    pub(super) fn now(&self) -> Instant {
        self.began + Duration::from_millis(self.ms.unsigned_abs())
    }

    pub(super) fn now_ms(&self) -> i64 {
        NOON + self.ms
    }

    /// A request comes. It is expected to take as many tokens as it costs.
    pub(super) fn admit(&mut self, by: usize, estimate: i64) -> bool {
        let is_admitted = self.is_admitted(by, estimate);
        if is_admitted {
            self.admitted.push((self.ms, estimate.unsigned_abs()));
        }
        is_admitted
    }

    fn is_admitted(&mut self, by: usize, estimate: i64) -> bool {
        let (now, request) = (self.now(), format!("r{}", self.requests));
        self.requests += 1;
        let node = &mut self.nodes[by];
        let index = node.leases.len();
        if let Some((_, lease)) = node.leases.last_mut()
            && let Some(cut) = lease.allocate(nanos(estimate), estimate.unsigned_abs(), None, now)
        {
            self.leased += 1;
            node.running.push(Running {
                request,
                hold: estimate,
                at_ms: cut.at_ms,
                cut: Some((index - 1, cut.number)),
            });
            return true;
        }
        let AdmitReply::Granted(grant) = self.ask(by, &request, estimate) else {
            return false;
        };
        self.nodes[by].running.push(Running {
            request,
            hold: grant.hold.nanos(),
            at_ms: grant.at_ms,
            cut: None,
        });
        true
    }

    pub(super) fn ask(&mut self, by: usize, request: &str, estimate: i64) -> AdmitReply {
        let ask = AdmitCall {
            node: self.nodes[by].name.clone(),
            request: request.into(),
            key: self.key.clone().into(),
            estimate: nanos(estimate),
            tokens: estimate.unsigned_abs(),
            ended_key: 0,
            ended_account: 0,
        };
        let now_ms = self.now_ms();
        self.account.admit(&ask, now_ms)
    }

    /// A request ends, for a part of what it holds.
    pub(super) fn end(&mut self, by: usize, which: usize, percent: i64) {
        let node = &mut self.nodes[by];
        if node.running.is_empty() {
            return;
        }
        let which = which % node.running.len();
        let running = node.running.swap_remove(which);
        let (cost, seq) = (running.hold * percent / 100, node.steps.len() as u64 + 1);
        self.costs += cost;
        let lease = running.cut.map(|(lease, cut)| {
            let (id, lease) = &mut node.leases[lease];
            lease.on_request_ended(cut, nanos(cost), Some(seq));
            id.clone()
        });
        let settlement = Settlement {
            request: running.request.into(),
            key: self.key.id.clone(),
            at_ms: running.at_ms,
            tokens_estimated: 0,
            tokens_used: 0,
            cost: nanos(cost),
            lease,
            row: None,
        };
        let change = AccountChange::Settle(Box::new(settlement));
        node.steps.push(Step { seq, change });
    }

    /// A running request in a lease wants more of it.
    pub(super) fn enlarge(&mut self, by: usize, which: usize, more: i64) {
        let now = self.now();
        let node = &mut self.nodes[by];
        if node.running.is_empty() {
            return;
        }
        let which = which % node.running.len();
        let running = &mut node.running[which];
        if let Some((lease, cut)) = running.cut {
            let got = node.leases[lease].1.enlarge(cut, nanos(more), now);
            running.hold += got.nanos();
        }
    }

    pub(super) fn send(&mut self, by: usize, many: usize) {
        let node = &mut self.nodes[by];
        let end = node.steps.len().min(node.sent + many);
        self.account.apply(&node.name, &node.steps[node.sent..end], 0);
        node.sent = end;
    }

    pub(super) fn question(&mut self, by: usize) {
        let (now, account, key) = (self.now(), self.key.account.clone(), self.key.id.clone());
        let node = &mut self.nodes[by];
        if node.leases.last().is_none_or(|(_, lease)| lease.is_over()) {
            let lease = LeaseId {
                holder: named(100 + by),
                number: node.leases.len() as u64 + 1,
            };
            node.leases.push((lease, NodeLease::default()));
        }
        for (id, lease) in &mut node.leases {
            let Some(question) = lease.next_request(TARGET, now) else {
                continue;
            };
            let ask = LeaseCall {
                lease: id.clone(),
                node: node.name.clone(),
                account: account.clone(),
                key: key.clone(),
                revision: 1,
                running: lease.running(),
                used: question.used,
                free: question.free,
                places: question.places,
                turn: question.turn,
                change: question.change,
            };
            node.questions.push(Question { ask, asked: now });
        }
    }

    /// A question comes to the store. Its answer is lost, or it comes again later, too.
    pub(super) fn deliver(&mut self, by: usize, which: usize, fate: u8) {
        let (now, now_ms) = (self.now(), self.now_ms());
        let node = &mut self.nodes[by];
        if node.questions.is_empty() {
            return;
        }
        let which = which % node.questions.len();
        let Question { ask, asked } = node.questions.remove(which);
        let number = usize::try_from(ask.lease.number).unwrap();
        let lease = &mut node.leases[number - 1].1;
        let is_last = lease.turn == ask.turn && lease.is_asking;
        match fate {
            // Nothing is on its way for so long.
            _ if now.saturating_duration_since(asked) >= LATEST => {
                if is_last {
                    lease.on_store_reply(None, asked, now);
                }
            }
            // The node has given up waiting; the question is still on its way.
            0 if is_last => {
                lease.on_store_reply(None, asked, now);
                node.questions.push(Question { ask, asked });
            }
            // The answer is lost.
            1 => {
                self.account.lease(&ask, now_ms);
                if is_last {
                    lease.on_store_reply(None, asked, now);
                }
            }
            _ => {
                let answer = self.account.lease(&ask, now_ms);
                if is_last {
                    lease.on_store_reply(Some(&answer), asked, now);
                }
            }
        }
    }

    /// Everything that is on its way arrives, and every node looks once.
    pub(super) fn round(&mut self) {
        self.ms += 260;
        for by in 0..NODES {
            self.send(by, usize::MAX / 2);
            self.question(by);
            while !self.nodes[by].questions.is_empty() {
                self.deliver(by, 0, 9);
            }
        }
    }

    /// What runs and what is not applied yet, of the whole account.
    pub(super) fn committed(&self) -> i64 {
        let holds = self.nodes.iter().flat_map(|node| &node.running).map(|one| one.hold);
        let unsent = self.nodes.iter().flat_map(|node| &node.steps[node.sent..]);
        let costs = unsent.map(|step| match &step.change {
            AccountChange::Settle(settlement) => settlement.cost.nanos(),
            _ => 0,
        });
        holds.sum::<i64>() + costs.sum::<i64>()
    }

    pub(super) fn check(&self) {
        let view = self.account.view("acme", self.now_ms()).unwrap();
        // All that is admitted is held, so nobody else gets it.
        assert!(
            view.held.nanos() >= self.committed(),
            "{} < {}",
            view.held,
            self.committed()
        );
        assert!(view.balance.nanos() >= view.held.nanos(), "{view:?}");
        let spend = self.account.key_spend(&self.key.id, self.now_ms());
        assert!(
            self.key
                .terms
                .quota
                .is_none_or(|quota| spend.day.saturating_add(spend.held) <= quota)
        );
    }

    /// What runs, of the whole account.
    pub(super) fn committed_by_running(&self) -> i64 {
        self.nodes
            .iter()
            .flat_map(|node| &node.running)
            .map(|one| one.hold)
            .sum()
    }

    /// No minute has more than its limit and what a full bucket has, and no more run at one time than may.
    pub(super) fn check_pace(&self) {
        let rates = self.key.terms.rates;
        let running: usize = self.nodes.iter().map(|node| node.running.len()).sum();
        assert!(
            rates.concurrency.is_none_or(|limit| running as u64 <= limit),
            "{running}"
        );
        for (first, (from, _)) in self.admitted.iter().enumerate() {
            let since = &self.admitted[first..];
            let passed = (self.ms - from).unsigned_abs();
            let most = |limit: u64| limit + (limit * passed).div_ceil(60_000);
            let tokens: u64 = since.iter().map(|(_, tokens)| tokens).sum();
            assert!(
                rates.rpm.is_none_or(|rpm| since.len() as u64 <= most(rpm)),
                "{}",
                since.len()
            );
            assert!(rates.tpm.is_none_or(|tpm| tokens <= most(tpm)), "{tokens}");
        }
    }
}
