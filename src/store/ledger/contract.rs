//! The tests that every ledger must pass, and a random program. Each engine runs them with the macro `ledger_suite!`.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use async_trait::async_trait;

use super::{LOG_ROWS_MAX, LedgerStore, LogLists};
use crate::domain::{
    keys::{KeyId, KeyRecord, KeyState},
    ledger::{
        AccountRecord, AccountTerms, AdmitCall, AdmitReply, KeyTerms, NodeId,
        consumption::{CostShare, PriceModifiers, RequestTransport, Row, UsageSource},
    },
    money::NanoUsd,
    wire::usage::{RunKind, Usage},
};
use crate::store::StoreError;

mod cases;
mod leases;
mod lists;
pub(crate) mod memory;
mod midnight;
mod operations;
mod program;
mod sums;

pub(crate) use crate::store::ledger::contract::cases::*;
pub(crate) use crate::store::ledger::contract::leases::{
    a_lease_has_its_part_of_the_rates_and_gives_it_back, a_lease_has_places_that_others_do_not_get,
    a_lease_is_held_charged_and_given_back, a_used_up_quota_is_not_put_off_by_leases_of_other_keys,
    leases_stay_far_from_limits_and_come_back_near_one, what_a_lease_has_of_a_rate_is_not_filled_up,
};
pub(crate) use crate::store::ledger::contract::lists::{
    a_record_is_replaced_by_one_that_was_made_from_it, of_two_records_from_one_only_one_holds,
    what_a_store_forgot_of_an_account_is_told_again,
};
pub(crate) use crate::store::ledger::contract::lists::{
    rows_are_paged_by_account_and_day, rows_that_were_lost_are_put_back,
    the_rows_of_a_day_are_removed_as_they_were_seen,
};
pub(crate) use crate::store::ledger::contract::midnight::a_request_counts_in_the_periods_of_its_admission;
pub(crate) use crate::store::ledger::contract::operations::{
    an_operation_counts_once_whoever_brings_it, so_many_operations_are_remembered,
};
pub(crate) use crate::store::ledger::contract::operations::{
    notices_that_find_no_room_are_counted, what_is_reached_is_noted_once_and_waits_until_it_is_told,
};
pub(crate) use crate::store::ledger::contract::program::an_engine_answers_as_the_model_does;
pub(crate) use crate::store::ledger::contract::sums::{
    how_far_the_sums_come_is_known_of_each_node, so_many_tags_a_day_are_summed_one_by_one,
    sums_of_more_keys_than_a_script_unpacks_are_put, sums_of_the_requests_that_were_seen_are_replaced,
    what_was_used_is_summed_by_day_model_key_and_tag,
};

/// The time at which tests start: Saturday 2026-11-21, 12:00 UTC, in milliseconds since the Unix epoch.
pub(crate) const START_MS: i64 = 1_795_262_400_000;

/// A test clock that changes only when a test moves it.
#[derive(Clone, Debug)]
pub(crate) struct TestClock(Arc<AtomicI64>);

impl TestClock {
    pub(crate) fn new() -> Self {
        Self(Arc::new(AtomicI64::new(START_MS)))
    }

    pub(crate) fn now_ms(&self) -> i64 {
        self.0.load(Ordering::SeqCst)
    }

    pub(crate) fn advance(&self, by_ms: i64) {
        self.0.fetch_add(by_ms, Ordering::SeqCst);
    }

    /// Returns the clock as a function, for an engine that accepts one.
    pub(crate) fn source(&self) -> Arc<dyn Fn() -> i64 + Send + Sync> {
        let clock = self.clone();
        Arc::new(move || clock.now_ms())
    }
}

/// Makes an engine lose acknowledged writes, like a failover.
#[async_trait]
pub(crate) trait Failover: Send + Sync {
    /// Takes a snapshot of the engine's complete state. The snapshot replaces the previous snapshot.
    async fn remember(&self);

    /// Returns the engine to the last snapshot. Returns `false` if there is none.
    async fn roll_back(&self) -> bool;
}

/// A new, empty, connected ledger that uses `clock`, and everything that must not be dropped before the ledger.
pub(crate) struct Fixture {
    pub(crate) store: Arc<dyn LedgerStore>,
    /// The ledger's lists of rows; `None` for an engine that keeps no rows.
    pub(crate) lists: Option<Arc<dyn LogLists>>,
    pub(crate) clock: TestClock,
    /// Simulates failovers; `None` for an engine that loses nothing while it runs.
    pub(crate) failover: Option<Box<dyn Failover>>,
    pub(crate) kept: Box<dyn Any + Send>,
}

impl Fixture {
    /// Returns the reply to a request for admission. If `at_once` is true, `admit_now` is tried first.
    async fn admission(&self, ask: &AdmitCall, at_once: bool) -> Result<AdmitReply, StoreError> {
        if at_once && let Some(answer) = self.store.admit_now(ask) {
            return Ok(answer);
        }
        self.store.admit(ask).await
    }

    /// Returns all rows of an account and day; `None` if the engine keeps no rows.
    async fn rows(&self, account: &str, day: i64) -> Option<Vec<Row>> {
        let lists = self.lists.as_ref()?;
        let mut rows = Vec::new();
        loop {
            let page = lists.rows(account, day, rows.len(), LOG_ROWS_MAX).await.unwrap();
            if page.is_empty() {
                return Some(rows);
            }
            rows.extend(page);
        }
    }
}

/// Declares the tests for one engine. `$open` is an async function that returns a [`Fixture`], or `None` to skip the tests with a
/// message. With `in_turn $join`, a single test checks all behaviours in turn. For each behaviour, the async closure `$join` gets
/// the behaviour's name and returns a fixture.
macro_rules! ledger_suite {
    ($open:path) => {
        $crate::store::ledger::contract::ledger_suite! { @all tests $open }
    };
    (in_turn $join:expr) => {
        $crate::store::ledger::contract::ledger_suite! { @all in_turn $join }
    };
    (@all $how:ident $with:expr) => {
        $crate::store::ledger::contract::ledger_suite! { @$how $with =>
            an_account_comes_into_being_with_its_first_step
            what_was_paid_in_is_told_by_day_and_month
            a_step_is_applied_once_and_in_order
            what_was_settled_is_charged_logged_and_no_longer_held
            a_settlement_that_is_sent_five_times_has_one_effect
            a_request_counts_in_the_periods_of_its_admission
            a_record_is_replaced_by_one_that_was_made_from_it
            of_two_records_from_one_only_one_holds
            what_a_store_forgot_of_an_account_is_told_again
            an_operation_counts_once_whoever_brings_it
            so_many_operations_are_remembered
            what_is_reached_is_noted_once_and_waits_until_it_is_told
            notices_that_find_no_room_are_counted
            a_lease_is_held_charged_and_given_back
            leases_stay_far_from_limits_and_come_back_near_one
            a_lease_has_its_part_of_the_rates_and_gives_it_back
            what_a_lease_has_of_a_rate_is_not_filled_up
            a_lease_has_places_that_others_do_not_get
            a_used_up_quota_is_not_put_off_by_leases_of_other_keys
            what_was_used_is_summed_by_day_model_key_and_tag
            how_far_the_sums_come_is_known_of_each_node
            so_many_tags_a_day_are_summed_one_by_one
            sums_of_the_requests_that_were_seen_are_replaced
            sums_of_more_keys_than_a_script_unpacks_are_put
            accounts_are_listed_by_name
            admissions_at_once_never_hold_more_than_is_left
            an_engine_answers_as_the_model_does
        }
    };
    (@tests $open:expr => $($behaviour:ident)*) => {
        $(#[tokio::test]
        async fn $behaviour() {
            if let Some(fixture) = $open().await {
                $crate::store::ledger::contract::$behaviour(&fixture).await;
                drop(fixture.kept);
            }
        })*
    };
    (@in_turn $join:expr => $($behaviour:ident)*) => {
        $({
            let fixture = $join(stringify!($behaviour)).await;
            $crate::store::ledger::contract::$behaviour(&fixture).await;
            drop(fixture.kept);
        })*
    };
}
pub(crate) use ledger_suite;

/// Declares the additional tests for an engine that keeps rows. The macro has the same forms as `ledger_suite!`.
macro_rules! lists_suite {
    ($open:path) => {
        $crate::store::ledger::contract::lists_suite! { @all tests $open }
    };
    (in_turn $join:expr) => {
        $crate::store::ledger::contract::lists_suite! { @all in_turn $join }
    };
    (@all $how:ident $with:expr) => {
        $crate::store::ledger::contract::ledger_suite! { @$how $with =>
            rows_are_paged_by_account_and_day
            rows_that_were_lost_are_put_back
            the_rows_of_a_day_are_removed_as_they_were_seen
        }
    };
}
pub(crate) use lists_suite;

pub(crate) fn node(number: u8) -> NodeId {
    NodeId::parse(&format!("node_{number:016}")).unwrap()
}

pub(crate) fn key_id(number: u8) -> KeyId {
    KeyId::parse(&format!("key_{number:016}")).unwrap()
}

/// Returns an active key of `acme` without limits.
pub(crate) fn record(number: u8) -> KeyRecord {
    KeyRecord {
        id: key_id(number),
        name: format!("key {number}"),
        account: "acme".into(),
        created_at: 1,
        expires_at: None,
        models: None,
        state: KeyState::Active,
        hint: "wxyz".to_owned(),
        revision: 1,
        terms: KeyTerms::default(),
        former: None,
        text_since: None,
    }
}

/// Changes an account's record with the function `decide`.
pub(crate) async fn change_record(
    store: &dyn LedgerStore,
    account: &str,
    decide: impl FnOnce(&AccountRecord) -> AccountRecord,
) {
    let from = store.account(account).await.unwrap().map(|view| view.record);
    let from = from.unwrap_or_default();
    assert_eq!(store.set_terms(account, &from, &decide(&from)).await, Ok(true));
}

/// Sets the limits of an account.
pub(crate) async fn limit(store: &dyn LedgerStore, account: &str, terms: AccountTerms) {
    change_record(store, account, |record| record.with_terms(terms, record.suspended)).await;
}

/// Suspends an account, or resumes it.
pub(crate) async fn suspend(store: &dyn LedgerStore, account: &str, suspended: bool) {
    change_record(store, account, |record| record.with_terms(record.terms, suspended)).await;
}

/// Returns a row in which every text could be confused with something else by a careless engine.
pub(crate) fn row(account: &str, key: u8, request: &str, time_ms: i64, cost: NanoUsd) -> Row {
    Row {
        time_ms,
        admitted_ms: time_ms - 5,
        request_id: request.into(),
        account: account.into(),
        key_id: key_id(key),
        protocol: "messages".into(),
        model_asked: "a \"model\", é\n".into(),
        model: "[]".into(),
        provider: "anthropic".into(),
        status: 200,
        outcome: "complete".into(),
        stream: true,
        tags: Vec::new(),
        usage: Usage {
            input_uncached: 9_007_199_254_740_993,
            output_text: 3,
            ..Usage::default()
        },
        usage_source: UsageSource::Reported,
        parts: vec![CostShare {
            run: RunKind::Advisor,
            model: "\"[{".to_owned(),
            usage: Usage {
                output_text: 1,
                ..Usage::default()
            },
            priced_as: None,
            price_version: None,
            above_input_tokens: 0,
            cost_nano_usd: NanoUsd::from_nanos(1),
        }],
        modifiers: PriceModifiers::default(),
        price_version: "1".into(),
        cost_nano_usd: cost,
        latency_ms: 12,
        ttft_ms: None,
        hold_nano_usd: Some(NanoUsd::from_nanos(9_007_199_254_740_993)),
        attempts: Some(3),
        transport: RequestTransport::WebSocket,
        translated: Some("responses->chat".into()),
        losses: vec!["dropped \"[{".into(), "[]".into()],
    }
}
