//! A random program: an engine and the reference model get the same calls, and must give the same answers.

use std::sync::Arc;

use rand::{RngExt, SeedableRng, rngs::StdRng};

mod compare;

use super::{Fixture, key_id, node, row};
use crate::domain::{
    keys::{KeyRecord, KeyState},
    ledger::{
        AccountChange, AccountRecord, AdmitCall, AdmitReply, KeyTerms, NodeId, OperationId, QuotaReset, RateLimits,
        Settlement, Step, TopUp,
        consumption::Row,
        ids::Tag,
        lease::{LeaseCall, LeaseId},
    },
    money::NanoUsd,
};
use crate::store::ledger::contract::memory::Model;

/// The environment variable with the number of operations of one program; a complete run has 100000.
const OPERATIONS: &str = "WEIR_LEDGER_OPERATIONS";
const OPERATIONS_DEFAULT: u64 = 3_000;
/// The environment variable with the seed of the random numbers. If it is not set, the seed is 1.
const SEED: &str = "WEIR_LEDGER_SEED";

/// The accounts of a program. There are few, so that several operations concern the same account.
const ACCOUNTS: [&str; 3] = ["acme", "beta", "ghost"];
const NODES: u8 = 3;
const KEYS: u8 = 6;
const DAY_MS: i64 = 24 * 3600 * 1000;
/// The models of a program. There are few, so that each has several rows.
const MODELS: [&str; 3] = ["[]", "m-1.5", "n/2"];
const TAGS: [&str; 4] = ["team=a", "team=b", "project=x", "session=1"];
/// The number of different operation ids. It is small, so that ids are repeated.
const IDS: i64 = 40;
/// The time of all operations with an id, in seconds since the Unix epoch. It is fixed, so that every node sends the same
/// operation for an id.
const OF_AN_OPERATION_S: i64 = 1_790_000_000;

/// A request that the program assumes to be running.
#[derive(Clone)]
struct Running {
    node: u8,
    key: u8,
    request: String,
    at_ms: i64,
    tokens: u64,
    lease: Option<LeaseId>,
}

struct Program<'a> {
    fixture: &'a Fixture,
    model: Model,
    rng: StdRng,
    /// Whether the program uses rate limits. It does not if failovers are simulated, because nodes do not send the levels of
    /// token buckets again after a failover.
    with_rates: bool,
    rolled_back: bool,
    keys: Vec<KeyRecord>,
    running: Vec<Running>,
    leases: Vec<LeaseCall>,
    /// The steps of each node for each account, from step 1.
    journals: Vec<Vec<Vec<Step>>>,
    /// For each account, the records that operators have read, the latest last.
    records: Vec<Vec<AccountRecord>>,
    requests: u64,
    granted: u64,
}

/// Runs one program on an empty engine. Panics with the seed if the engine and the model differ.
pub(crate) async fn an_engine_answers_as_the_model_does(fixture: &Fixture) {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let operations = number(OPERATIONS).unwrap_or(OPERATIONS_DEFAULT);
    let seed = number(SEED).unwrap_or(1);
    let mut program = Program::new(fixture, seed);
    for operation in 0..operations {
        program.operate(&format!("{SEED}={seed}, operation {operation}")).await;
    }
    program.send_everything().await;
    program.same("at the end").await;
    assert!(
        program.granted * 25 > operations,
        "only {} were admitted",
        program.granted
    );
}

impl<'a> Program<'a> {
    fn new(fixture: &'a Fixture, seed: u64) -> Self {
        let keys = (0..KEYS).map(|number| KeyRecord {
            account: ACCOUNTS[account_of(number)].into(),
            ..super::record(number)
        });
        Self {
            fixture,
            model: Model::default(),
            rng: StdRng::seed_from_u64(seed),
            with_rates: fixture.failover.is_none(),
            rolled_back: false,
            keys: keys.collect(),
            running: Vec::new(),
            leases: Vec::new(),
            journals: vec![vec![Vec::new(); ACCOUNTS.len()]; usize::from(NODES)],
            records: vec![vec![AccountRecord::default()]; ACCOUNTS.len()],
            requests: 0,
            granted: 0,
        }
    }

    fn one_of(&mut self, many: u8) -> u8 {
        self.rng.random_range(0..many)
    }

    fn chance(&mut self, percent: u8) -> bool {
        self.rng.random_range(0..100) < percent
    }

    fn amount(&mut self, most: i64) -> NanoUsd {
        NanoUsd::from_nanos(self.rng.random_range(0..=most))
    }

    fn now(&self) -> i64 {
        self.fixture.clock.now_ms()
    }

    async fn operate(&mut self, what: &str) {
        match self.rng.random_range(0..100) {
            0..25 => self.admit(what).await,
            25..33 => self.top_up(what).await,
            33..45 => self.lease(what).await,
            45..56 => self.settle(),
            56..60 => self.settle_leased(),
            60..64 => self.administer(),
            64..66 => self.set_terms(what).await,
            66..82 => self.send(what).await,
            82..85 => self.change_key(),
            85..93 => self.move_clock(),
            93..95 => self.renew_or_release().await,
            95..96 => self.fail_over().await,
            96..97 => self.mend(what).await,
            _ => self.read(what).await,
        }
    }

    async fn admit(&mut self, what: &str) {
        let (number, key) = (self.one_of(NODES), self.one_of(KEYS));
        let mut record = self.keys[usize::from(key)].clone();
        if self.chance(5) {
            record.revision = record.revision.saturating_sub(1);
        }
        self.requests += 1;
        let again = self.chance(5) && !self.running.is_empty();
        let request = if again {
            let index = self.rng.random_range(0..self.running.len());
            self.running[index].request.clone()
        } else {
            format!("r{}", self.requests)
        };
        let ask = AdmitCall {
            node: node(number),
            request: request.into(),
            key: Arc::new(record),
            estimate: self.amount(60),
            tokens: self.rng.random_range(0..40),
            ended_key: u64::from(self.chance(20)),
            ended_account: self.rng.random_range(0..3),
        };
        let expected = self.model.admit(&ask, self.now());
        let at_once = self.rng.random();
        let given = self.fixture.admission(&ask, at_once).await;
        assert_eq!(given.as_ref(), Ok(&expected), "{what}: {ask:?}");
        if let AdmitReply::Granted(grant) = expected {
            self.granted += 1;
            self.running.push(Running {
                node: number,
                key,
                request: ask.request.to_string(),
                at_ms: grant.at_ms,
                tokens: ask.tokens,
                lease: None,
            });
        }
    }

    fn some_running(&mut self) -> Option<usize> {
        (!self.running.is_empty()).then(|| self.rng.random_range(0..self.running.len()))
    }

    async fn top_up(&mut self, what: &str) {
        let Some(index) = self.some_running() else { return };
        let running = self.running[index].clone();
        let (holder, hold) = match running.lease {
            Some(lease) => (lease.holder.clone(), lease.hold_name()),
            None => (node(running.node), running.request.into()),
        };
        let ask = TopUp {
            node: holder,
            request: hold,
            account: ACCOUNTS[account_of(running.key)].into(),
            key: key_id(running.key),
            at_ms: running.at_ms,
            more: self.amount(30),
        };
        let expected = self.model.top_up(&ask, self.now());
        assert_eq!(self.fixture.store.top_up(&ask).await, Ok(expected), "{what}: {ask:?}");
    }

    /// Ends a request, with or without a charge. Occasionally, the request was not admitted, or used more than its estimate.
    fn settle(&mut self) {
        let running = if self.chance(90) {
            let Some(index) = self.some_running() else { return };
            self.running.swap_remove(index)
        } else {
            self.requests += 1;
            Running {
                node: self.one_of(NODES),
                key: self.one_of(KEYS),
                request: format!("r{}", self.requests),
                at_ms: self.now() - self.rng.random_range(0..2 * DAY_MS),
                tokens: 7,
                lease: self.some_lease().map(|ask| ask.lease),
            }
        };
        self.settle_one(&running);
    }

    fn settle_one(&mut self, running: &Running) {
        let billed = self.chance(85);
        let cost = if billed { self.amount(70) } else { NanoUsd::ZERO };
        let account = account_of(running.key);
        let settlement = Settlement {
            lease: running.lease.clone(),
            request: running.request.clone().into(),
            key: key_id(running.key),
            at_ms: running.at_ms,
            tokens_estimated: running.tokens,
            tokens_used: self.rng.random_range(0..80),
            cost,
            row: billed.then(|| self.row(account, running, cost).into()),
        };
        self.record(running.node, account, AccountChange::Settle(Box::new(settlement)));
    }

    fn row(&mut self, account: usize, running: &Running, cost: NanoUsd) -> Row {
        let mut row = row(ACCOUNTS[account], running.key, &running.request, self.now(), cost);
        row.model = MODELS[usize::from(self.one_of(3))].into();
        row.status = if self.chance(20) { 502 } else { 200 };
        row.usage.input_uncached = self.rng.random_range(0..1_000);
        let tags = TAGS.iter().filter(|_| self.rng.random_range(0..4) == 0);
        row.tags = tags.filter_map(|tag| Tag::parse(tag)).collect();
        row
    }

    fn record(&mut self, node: u8, account: usize, change: AccountChange) {
        let journal = &mut self.journals[usize::from(node)][account];
        let seq = journal.len() as u64 + 1;
        journal.push(Step { seq, change });
    }

    fn rates(&mut self) -> RateLimits {
        // Occasionally enough that leases get some.
        let places = if self.chance(50) { 12 } else { 120 };
        let some = |this: &mut Self, percent: u8, most: u64| {
            let limit = this.rng.random_range(0..most);
            this.chance(percent).then_some(limit)
        };
        RateLimits {
            rpm: some(self, if self.with_rates { 30 } else { 0 }, 2 * places),
            tpm: some(self, if self.with_rates { 30 } else { 0 }, 20 * places),
            concurrency: some(self, 30, places),
        }
    }

    /// Makes an operator's change of a balance. If the change has no operation id, node 0 makes it. Otherwise, any node makes it.
    fn administer(&mut self) {
        let account = usize::from(self.one_of(3));
        // A change with an operation id may come from any node. Its amount follows from the id, because only the first one has an
        // effect.
        let operation = self.chance(40).then(|| self.rng.random_range(0..IDS));
        let by = operation.map_or(0, |_| self.one_of(NODES));
        let change = match self.rng.random_range(0..6) {
            0 => AccountChange::Open {
                balance: operation.map_or_else(|| self.amount(300), |number| NanoUsd::from_nanos(number * 7)),
                at: operation.map_or(self.now() / 1000, |_| OF_AN_OPERATION_S),
                operation: operation.map(|number| operation_id("open", number)),
            },
            1..5 => AccountChange::Credit {
                amount: operation.map_or_else(|| self.amount(1_500), |number| NanoUsd::from_nanos(number * 31)),
                at: operation.map_or(self.now() / 1000, |_| OF_AN_OPERATION_S),
                operation: operation.map(|number| operation_id("credit", number)),
            },
            _ => AccountChange::Adjust {
                amount: NanoUsd::from_nanos(
                    operation.map_or_else(|| self.rng.random_range(-200..200), |number| number * 5 - 100),
                ),
                at: operation.map_or(self.now() / 1000, |_| OF_AN_OPERATION_S),
                operation: operation.map(|number| operation_id("adjust", number)),
            },
        };
        let by = if change.operation().is_some() { by } else { 0 };
        self.record(by, account, change);
    }

    /// Sends a part of a journal. The part begins at the watermark, before it or after it.
    async fn send(&mut self, what: &str) {
        let (number, account) = (self.one_of(NODES), usize::from(self.one_of(3)));
        let applied = self.model.watermark(&node(number), ACCOUNTS[account]);
        let back = self.rng.random_range(0..4_usize);
        let ahead = usize::from(self.chance(10));
        let start = (usize::try_from(applied).unwrap().saturating_sub(back)) + ahead * (back + 1);
        let many = self.rng.random_range(0..12_usize);
        let journal = &self.journals[usize::from(number)][account];
        let end = journal.len().min(start + many);
        let steps = journal.get(start..end).unwrap_or_default().to_vec();
        self.send_steps(number, account, &steps, what).await;
    }

    async fn send_steps(&mut self, number: u8, account: usize, steps: &[Step], what: &str) -> u64 {
        let (id, account) = (node(number), ACCOUNTS[account]);
        let expected = self.model.apply(&id, account, steps, upto(steps));
        let given = self.fixture.store.apply(&id, account, steps, upto(steps)).await;
        assert_eq!(given, Ok(expected), "{what}: {account}, {steps:?}");
        expected
    }

    fn change_key(&mut self) {
        let rates = self.rates();
        let terms = KeyTerms {
            quota: self.chance(50).then(|| self.amount(400)),
            reset: [
                QuotaReset::None,
                QuotaReset::Daily,
                QuotaReset::Weekly,
                QuotaReset::Monthly,
            ][usize::from(self.one_of(4))],
            rates,
            ..KeyTerms::default()
        };
        let expires_at = self
            .chance(30)
            .then(|| self.now() / 1000 + self.rng.random_range(-5..100_000));
        // Removed keys come back here, so that the program does not run out of them.
        let state = if self.chance(10) {
            KeyState::Revoked { at: 1 }
        } else {
            KeyState::Active
        };
        let key = self.one_of(KEYS);
        let record = &mut self.keys[usize::from(key)];
        record.revision += 1;
        (record.terms, record.expires_at, record.state) = (terms, expires_at, state);
    }

    fn move_clock(&mut self) {
        let by = match self.rng.random_range(0..100) {
            0..80 => self.rng.random_range(0..3_000),
            80..85 => -self.rng.random_range(0..5_000),
            85..94 => self.rng.random_range(10_000..40_000),
            94..97 => DAY_MS - self.now().rem_euclid(DAY_MS) - self.rng.random_range(0..2),
            97..99 => DAY_MS,
            _ => 8 * DAY_MS,
        };
        self.fixture.clock.advance(by);
    }

    async fn renew_or_release(&mut self) {
        let (id, account) = (node(self.one_of(NODES)), ACCOUNTS[usize::from(self.one_of(3))]);
        if self.chance(80) {
            let accounts = ACCOUNTS.map(str::to_owned);
            self.model.renew(&id, &accounts, self.now());
            self.fixture.store.renew(&id, &accounts).await.unwrap();
        } else {
            self.release(&id, account).await;
        }
    }

    async fn release(&mut self, id: &NodeId, account: &str) {
        self.model.release(id, account);
        self.fixture.store.release(id, account).await.unwrap();
    }
}

fn operation_id(kind: &str, number: i64) -> OperationId {
    OperationId::parse(&format!("{kind}-{number}")).unwrap()
}

/// Returns the number of the last row in a journal. It increases with the number of the row's step.
fn upto(steps: &[Step]) -> u64 {
    let last = steps.iter().rev().find(|step| step.has_row());
    last.map_or(0, |last| 10 * last.seq + 1)
}

fn account_of(key: u8) -> usize {
    usize::from(key) % ACCOUNTS.len()
}
