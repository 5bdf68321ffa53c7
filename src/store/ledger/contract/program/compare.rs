//! Parts of a random program: sending steps again, comparing the engine with the model, and using leases.

use std::sync::Arc;

use rand::RngExt;

use crate::{
    domain::{
        keys::terms::{AccountTerms, ProviderState, Thresholds},
        ledger::{
            AccountRecord, AdmitCall,
            consumption::{RETENTION_DAYS, Row},
            daily_sums::{DailySums, SumSelector, SumSubject, differences},
            lease::{LeaseCall, LeaseChange, LeaseId, LeaseReply, RateUse},
            period::Period,
        },
        money::NanoUsd,
    },
    store::ledger::contract::{
        Failover, key_id, node,
        program::{ACCOUNTS, DAY_MS, IDS, KEYS, NODES, Program, Running, account_of, operation_id, upto},
    },
};

impl Program<'_> {
    /// Returns the engine to its last snapshot, but leaves the model unchanged. Holds are released on both sides, because the
    /// contract does not promise that they survive. Then all nodes send again what the engine has lost.
    pub(super) async fn fail_over(&mut self) {
        let Some(failover) = &self.fixture.failover else { return };
        let failover: &dyn Failover = &**failover;
        if self.chance(50) {
            return failover.remember().await;
        }
        if !failover.roll_back().await {
            return;
        }
        self.rolled_back = true;
        for number in 0..NODES + 2 {
            for account in ACCOUNTS {
                self.release(&node(number), account).await;
            }
        }
        self.running.clear();
        self.leases.clear();
        self.send_everything().await;
        self.tell_records_again().await;
        // The nodes' keys come back with the next admission of each.
        for key in 0..KEYS {
            let ask = AdmitCall {
                node: node(0),
                request: format!("again{key}-{}", self.requests).into(),
                key: Arc::new(self.keys[usize::from(key)].clone()),
                estimate: NanoUsd::ZERO,
                tokens: 0,
                ended_key: 0,
                ended_account: 0,
            };
            let expected = self.model.admit(&ask, self.now());
            assert_eq!(self.fixture.store.admit(&ask).await, Ok(expected), "after a failover");
        }
        self.same("after a failover").await;
    }

    pub(super) async fn send_everything(&mut self) {
        for number in 0..NODES {
            for (index, account) in ACCOUNTS.into_iter().enumerate() {
                let known = self.fixture.store.watermark(&node(number), account).await;
                let known = usize::try_from(known.unwrap()).unwrap();
                let missing = &self.journals[usize::from(number)][index][known..];
                for steps in missing.chunks(100) {
                    let expected = steps.last().unwrap().seq;
                    self.model.apply(&node(number), account, steps, upto(steps));
                    let given = self
                        .fixture
                        .store
                        .apply(&node(number), account, steps, upto(steps))
                        .await;
                    assert_eq!(given, Ok(expected), "a journal that is sent again");
                }
            }
        }
    }

    /// Replaces the sums of a day with the sums of half of its rows, and then with the sums of all its rows. Also tries both with
    /// a wrong number of requests, which must change nothing.
    pub(super) async fn mend(&mut self, what: &str) {
        let (store, account) = (&self.fixture.store, ACCOUNTS[usize::from(self.one_of(3))]);
        let day = self.now().div_euclid(DAY_MS) - i64::from(self.one_of(3));
        let rows = self.model.rows(account, day, 0, usize::MAX);
        let half = &rows[rows.len() / 2..];
        let (of_all, of_half) = (DailySums::of_day(&rows), DailySums::of_day(half));
        let (all, few) = (rows.len() as u64, half.len() as u64);
        for (sums, seen) in [(&of_half, all + 1), (&of_half, all), (&of_all, all), (&of_all, few)] {
            let expected = self.model.put_sums(account, day, sums, seen);
            let given = store.put_sums(account, day, sums, seen).await;
            assert_eq!(given, Ok(expected), "{what}: {account}, day {day}, {seen} seen");
        }
    }

    pub(super) async fn read(&mut self, what: &str) {
        let (store, now) = (&self.fixture.store, self.now());
        let account = ACCOUNTS[usize::from(self.one_of(3))];
        assert_eq!(
            store.account(account).await,
            Ok(self.model.account(account, now)),
            "{what}"
        );
        let after = [None, Some("acme"), Some("az"), Some("ghost")][usize::from(self.one_of(4))];
        let limit = usize::from(self.one_of(4));
        let expected = self.model.accounts(after, limit, now);
        assert_eq!(store.accounts(after, limit).await, Ok(expected), "{what}");
        let key = key_id(self.one_of(KEYS));
        let expected = self.model.key_spend(account, &key, now);
        assert_eq!(store.key_spend(account, &key).await, Ok(expected), "{what}: {key}");
        for period in Period::each_at(now) {
            let expected = self.model.spent(account, period);
            assert_eq!(store.spent(account, period).await, Ok(expected), "{what}: {period}");
        }
        let operation = operation_id("credit", self.rng.random_range(0..IDS));
        let expected = self.model.operation(account, &operation);
        assert_eq!(
            store.operation_amount(account, &operation).await,
            Ok(expected),
            "{what}: {operation}"
        );
        let by = node(self.one_of(NODES));
        let expected = self.model.watermark(&by, account);
        assert_eq!(store.watermark(&by, account).await, Ok(expected), "{what}");
        let expected = self.model.summed(account);
        assert_eq!(store.summed_up_to(account).await, Ok(expected), "{what}");
        if !self.rolled_back {
            let day = now.div_euclid(DAY_MS) - i64::from(self.one_of(3));
            let (skip, limit) = (usize::from(self.one_of(20)), usize::from(self.one_of(20)));
            if let Some(lists) = &self.fixture.lists {
                let expected = self.model.rows(account, day, skip, limit);
                assert_eq!(lists.rows(account, day, skip, limit).await, Ok(expected), "{what}");
            }
            let of = [
                SumSelector::One(SumSubject::Account),
                SumSelector::One(SumSubject::Key(key)),
                SumSelector::Keys,
                SumSelector::Tags,
            ];
            let of = &of[usize::from(self.one_of(4))];
            let expected = self.model.sums(account, &(day..=day + 1), of);
            assert_eq!(
                store.sums(account, day..=day + 1, of).await,
                Ok(expected),
                "{what}: {of:?}"
            );
        }
    }

    /// Compares everything that can be read: the engine and the model must agree. After a failover, the rows of a day may be in
    /// another order.
    pub(super) async fn same(&mut self, what: &str) {
        let (store, now) = (&self.fixture.store, self.now());
        assert_eq!(
            store.accounts(None, 9).await,
            Ok(self.model.accounts(None, 9, now)),
            "{what}"
        );
        let today = now.div_euclid(DAY_MS);
        for account in ACCOUNTS {
            for key in 0..KEYS {
                let expected = self.model.key_spend(account, &key_id(key), now);
                assert_eq!(store.key_spend(account, &key_id(key)).await, Ok(expected), "{what}");
            }
            let days = today - i64::from(RETENTION_DAYS) + 2..=today;
            for day in days.clone() {
                let mut expected = self.model.rows(account, day, 0, usize::MAX);
                if !expected.is_empty() {
                    self.same_sums(account, day, &expected, what).await;
                }
                let Some(mut given) = self.fixture.rows(account, day).await else {
                    continue;
                };
                if self.rolled_back {
                    expected.sort_by_key(|row| format!("{row:?}"));
                    given.sort_by_key(|row| format!("{row:?}"));
                }
                assert_eq!(given, expected, "{what}: rows of {account} on day {day}");
            }
            let whole = SumSelector::One(SumSubject::Account);
            let expected = self.model.sums(account, &days, &whole);
            assert_eq!(
                store.sums(account, days, &whole).await,
                Ok(expected),
                "{what}: {account}"
            );
        }
    }

    /// Checks that the stored sums of a day equal the sums of its rows, to the nano-dollar.
    async fn same_sums(&self, account: &str, day: i64, rows: &[Row], what: &str) {
        let mut kept = DailySums::default();
        for of in [
            SumSelector::One(SumSubject::Account),
            SumSelector::Keys,
            SumSelector::Tags,
        ] {
            let sums = self.fixture.store.sums(account, day..=day, &of).await.unwrap();
            let expected = self.model.sums(account, &(day..=day), &of);
            assert_eq!(sums, expected, "{what}: {account}, {of:?}");
            kept.extend(sums);
        }
        let found = differences(&kept, &DailySums::of_day(rows));
        assert_eq!(found, [], "{what}: sums of {account} on day {day}");
    }
}

impl Program<'_> {
    /// Sets a record with other terms or another state, based on one of the last records that an operator has read. If that
    /// record is outdated, nothing changes. Suspended accounts are mostly resumed, so that the program does not run out of active
    /// ones.
    pub(super) async fn set_terms(&mut self, what: &str) {
        let account = usize::from(self.one_of(3));
        let is_earlier = self.chance(20);
        let seen = &self.records[account];
        let from = seen[seen.len() - 1 - usize::from(is_earlier && seen.len() > 1)];
        let (terms, suspended) = if self.chance(25) {
            (from.terms, !from.suspended)
        } else {
            let any = self.chance(30);
            let terms = AccountTerms {
                low_balance: None,
                provider_state: if any { ProviderState::Any } else { ProviderState::Own },
                notify: Thresholds::of([50, 90]).ok().filter(|_| self.chance(30)),
                rates: self.rates(),
            };
            (terms, from.suspended && self.chance(30))
        };
        let to = from.with_terms(terms, suspended);
        let expected = self.model.set_terms(ACCOUNTS[account], &from, &to);
        let given = self.fixture.store.set_terms(ACCOUNTS[account], &from, &to).await;
        assert_eq!(given, Ok(expected), "{what}: {from:?}, {to:?}");
        self.see(account, expected.then_some(to)).await;
    }

    /// Notes that an operator has read a record of the account: `set`, or the current record if `set` is `None`.
    async fn see(&mut self, account: usize, set: Option<AccountRecord>) {
        let record = match set {
            Some(record) => record,
            None => {
                let view = self.fixture.store.account(ACCOUNTS[account]).await.unwrap();
                view.map(|view| view.record).unwrap_or_default()
            }
        };
        self.records[account].push(record);
    }

    /// Sends the store again all records that operators have read, in any order, as nodes do after a failover.
    pub(super) async fn tell_records_again(&mut self) {
        for (account, seen) in ACCOUNTS.into_iter().zip(&self.records) {
            let mut told = seen.clone();
            if self.rng.random() {
                told.reverse();
            }
            for record in told {
                self.fixture.store.heal_terms(account, &record).await.unwrap();
            }
        }
    }
}

/// Maximum number of leases in a program at one time.
const LEASES_MAX: usize = 12;

impl Program<'_> {
    /// Begins, grows, shrinks or ends a lease. Occasionally a call is repeated, concerns a missing lease, or has an old revision
    /// of the key. Also starts requests from the lease.
    pub(super) async fn lease(&mut self, what: &str) {
        let ask = self.ask_lease();
        let expected = self.model.lease(&ask, self.now());
        let mut given = self.fixture.store.lease(&ask).await;
        // The number of recalls is not sent again.
        if let (true, Ok(LeaseReply::Held(given)), LeaseReply::Held(expected)) =
            (self.rolled_back, &mut given, &expected)
        {
            given.recall = expected.recall;
        }
        assert_eq!(given.as_ref(), Ok(&expected), "{what}: {ask:?}");
        self.leases.retain(|known| known.lease != ask.lease);
        let LeaseReply::Held(leased) = expected else { return };
        if self.chance(40) {
            self.requests += 1;
            let running = Running {
                node: self.one_of(NODES),
                key: leased_key(&ask),
                request: format!("r{}", self.requests),
                at_ms: leased.grant.at_ms,
                tokens: 0,
                lease: Some(ask.lease.clone()),
            };
            self.running.push(running);
        }
        self.leases.push(ask);
        if self.leases.len() > LEASES_MAX {
            self.leases.remove(0);
        }
    }

    /// Settles several requests of one node in a row. The requests were admitted from leases of one account, or their settlements
    /// claim that they were.
    pub(super) fn settle_leased(&mut self) {
        let (node, first) = (self.one_of(NODES), self.one_of(KEYS));
        for _ in 0..self.one_of(9) {
            let is_one =
                |one: &Running| one.node == node && account_of(one.key) == account_of(first) && one.lease.is_some();
            let running = match self.running.iter().position(is_one) {
                Some(index) => self.running.swap_remove(index),
                None => {
                    self.requests += 1;
                    Running {
                        node,
                        key: first,
                        request: format!("r{}", self.requests),
                        at_ms: self.now() - self.rng.random_range(0..3_600_000),
                        tokens: self.rng.random_range(0..40),
                        lease: self.some_lease().map(|ask| ask.lease).or_else(|| Some(a_lease())),
                    }
                }
            };
            self.settle_one(&running);
        }
    }

    pub(super) fn some_lease(&mut self) -> Option<LeaseCall> {
        if self.leases.is_empty() || self.chance(40) {
            return None;
        }
        let index = self.rng.random_range(0..self.leases.len());
        Some(self.leases[index].clone())
    }

    fn ask_lease(&mut self) -> LeaseCall {
        let amount = self.amount(80);
        let change = match self.rng.random_range(0..10) {
            0..5 => LeaseChange::Grow(amount),
            5..8 => LeaseChange::Return(amount),
            8 => LeaseChange::Grow(self.amount(6)),
            _ => LeaseChange::End,
        };
        let known = self.some_lease();
        let turn = known
            .as_ref()
            .map_or(1, |known| known.turn + u64::from(!self.chance(10)));
        let key = match &known {
            Some(known) => leased_key(known),
            None => self.one_of(KEYS),
        };
        let used = known.as_ref().map(|known| known.used).unwrap_or_default();
        let used = used.saturating_add(RateUse {
            requests: self.rng.random_range(0..3),
            tokens: self.rng.random_range(0..40),
        });
        let revision = self.keys[usize::from(key)].revision;
        let lease = known.map(|known| known.lease).unwrap_or_else(|| {
            self.requests += 1;
            LeaseId {
                // Names of nodes that have requests, too.
                holder: node(self.one_of(NODES + 2)),
                number: self.requests,
            }
        });
        LeaseCall {
            lease,
            node: node(self.one_of(NODES)),
            account: ACCOUNTS[account_of(key)].into(),
            key: key_id(key),
            revision: revision.saturating_sub(u64::from(self.chance(10))),
            running: self.rng.random_range(0..4),
            used,
            free: RateUse {
                requests: self.rng.random_range(0..4),
                tokens: self.rng.random_range(0..50),
            },
            places: self.rng.random_range(0..8),
            turn,
            change,
        }
    }
}

fn a_lease() -> LeaseId {
    LeaseId {
        holder: node(0),
        number: 1,
    }
}

fn leased_key(ask: &LeaseCall) -> u8 {
    (0..KEYS).find(|key| key_id(*key) == ask.key).unwrap_or_default()
}
