//! The arguments of the ledger's scripts. All are strings; `None` is an empty string. Amounts and numbers of tokens are
//! limited to values that a double represents exactly.

use crate::{
    domain::{
        keys::{KeyId, KeyState, terms::Thresholds},
        ledger::{
            AccountChange, AccountRecord, AdmitCall, ProviderState, RateLimits, Settlement, Step, TopUp,
            account::{
                AccountSummary,
                key::AccountKey,
                operations::{PaidIn, RecordedOperation},
            },
            consumption::Row,
            daily_sums::day_of,
            lease::{LeaseCall, LeaseChange},
        },
        money::NanoUsd,
    },
    store::{
        StoreError,
        redis::{
            ledger::{ADMIN_BUDGET, CallPolicy, RedisLedger, answer, daily_sums},
            scripts::ScriptCall,
        },
    },
};

/// The first and the last moment that have a date, in milliseconds since the Unix epoch: the years -9999 to 9999. A moment
/// outside this range is replaced with the nearest one in it.
const DATED_MS: (i64, i64) = (-377_705_023_201_000, 253_402_207_200_999);
/// Maximum number of tokens in an argument. A larger number makes no difference to any bucket.
const TOKENS_MAX: u64 = 3 * RateLimits::MAX;

/// Adds the arguments of `admit.lua`.
pub(super) fn admit(call: &mut ScriptCall<'_>, ask: &AdmitCall) {
    let key = &ask.key;
    call.arg(ask.node.as_str())
        .arg(ask.request.as_str())
        .arg(key.id.as_str())
        .arg(key.revision)
        .arg(state(matches!(key.state, KeyState::Revoked { .. })))
        .arg(optional(key.expires_at))
        .arg(optional(key.terms.quota.map(bounded)))
        .arg(key.terms.reset.as_str());
    rates(call, &key.terms.rates);
    call.arg(bounded(ask.estimate))
        .arg(tokens(ask.tokens))
        .arg(ask.ended_key)
        .arg(ask.ended_account);
}

/// Adds the arguments of `top_up.lua`.
pub(super) fn top_up(call: &mut ScriptCall<'_>, ask: &TopUp) {
    call.arg(ask.node.as_str())
        .arg(ask.request.as_str())
        .arg(bounded(ask.more));
}

/// Adds the arguments of `lease.lua`.
pub(super) fn lease(call: &mut ScriptCall<'_>, ask: &LeaseCall) {
    call.arg(ask.node.as_str())
        .arg(ask.lease.holder.as_str())
        .arg(ask.lease.hold_name().as_str())
        .arg(ask.key.as_str())
        .arg(ask.revision)
        .arg(ask.running)
        .arg(ask.turn);
    match ask.change {
        LeaseChange::Grow(wanted) => call.arg("grow").arg(bounded(wanted)),
        LeaseChange::Return(amount) => call.arg("return").arg(bounded(amount)),
        LeaseChange::End => call.arg("end").arg(0),
    };
    let most = NanoUsd::MAX.nanos().unsigned_abs();
    for figure in [
        ask.used.requests,
        ask.used.tokens,
        ask.free.requests,
        ask.free.tokens,
        ask.places,
    ] {
        call.arg(figure.min(most));
    }
}

/// Adds the arguments of `apply.lua` for one step: the step's number, its kind, and the details. A row is added only if rows are
/// kept.
pub(super) fn step(call: &mut ScriptCall<'_>, step: &Step, keeps_rows: bool) -> Result<(), StoreError> {
    call.arg(step.seq);
    match &step.change {
        AccountChange::Settle(settlement) => settle(call, settlement, keeps_rows)?,
        AccountChange::Open { balance, at, operation } => {
            call.arg("open").arg(bounded(*balance)).arg(*at);
            call.arg(optional(operation.as_ref()));
        }
        AccountChange::Credit { amount, at, operation } | AccountChange::Adjust { amount, at, operation } => {
            call.arg("add").arg(bounded(*amount)).arg(*at);
            call.arg(optional(operation.as_ref()));
        }
    }
    Ok(())
}

fn settle(call: &mut ScriptCall<'_>, settlement: &Settlement, keeps_rows: bool) -> Result<(), StoreError> {
    call.arg("settle")
        .arg(settlement.request.as_str())
        .arg(settlement.key.as_str())
        .arg(dated(settlement.at_ms))
        .arg(tokens(settlement.tokens_estimated))
        .arg(tokens(settlement.tokens_used))
        .arg(charge(settlement.cost).nanos());
    match &settlement.lease {
        None => call.arg("").arg(""),
        Some(lease) => call.arg(lease.holder.as_str()).arg(lease.hold_name().as_str()),
    };
    match &settlement.row {
        None => call.arg("").arg("").arg("").arg("").arg(""),
        Some(row) => {
            let [model, counts, tags] = daily_sums::row_arguments(row);
            let text = if keeps_rows { self::row(row)? } else { Vec::new() };
            call.arg(day_of(row)).arg(model).arg(counts).arg(tags).arg(text)
        }
    };
    Ok(())
}

/// Returns a moment in milliseconds since the Unix epoch, or the nearest one that has a date.
pub(super) fn dated(ms: i64) -> i64 {
    ms.clamp(DATED_MS.0, DATED_MS.1)
}

/// Returns the number of tokens, limited to [`TOKENS_MAX`].
pub(super) fn tokens(tokens: u64) -> u64 {
    tokens.min(TOKENS_MAX)
}

/// Returns the amount that a settlement charges, which is never negative.
pub(super) fn charge(cost: NanoUsd) -> NanoUsd {
    NanoUsd::from_nanos(bounded(cost).max(0))
}

/// Returns a row as it is stored in the lists.
pub(super) fn row(row: &Row) -> Result<Vec<u8>, StoreError> {
    let mut text = Vec::new();
    row.write_json(&mut text)
        .map_err(|_| StoreError::Corrupt(format!("cannot encode the row of request {}", row.request_id)))?;
    Ok(text)
}

/// Returns the arguments of `put_back.lua` for an account.
pub(super) fn standing(standing: &AccountSummary) -> Vec<[String; 3]> {
    let field = |name: &str, value: String| [String::new(), name.to_owned(), value];
    let fields = [
        ("balance", bounded(standing.balance).to_string()),
        ("spent", bounded(standing.spent).to_string()),
        ("created", standing.created_at.to_string()),
        ("paid", paid(&standing.paid)),
    ];
    let fields = fields.into_iter().chain(record(&standing.record));
    let fields = fields.filter(|(_, value)| !value.is_empty());
    let own = fields.map(|(name, value)| field(name, value));
    let watermarks = standing.watermarks.iter();
    let watermarks = watermarks.map(|(node, seq)| field(&format!("wm:{}", node.as_str()), seq.to_string()));
    let summed = standing.summed.iter();
    let summed = summed.map(|(node, number)| field(&format!("sum:{}", node.as_str()), number.to_string()));
    own.chain(watermarks).chain(summed).collect()
}

/// Returns the fields of an account's record, in the order of `set_terms.lua`. Unset fields are empty.
pub(super) fn record(record: &AccountRecord) -> [(&'static str, String); 8] {
    let AccountRecord {
        revision,
        suspended,
        terms,
    } = record;
    let RateLimits { rpm, tpm, concurrency } = terms.rates;
    [
        ("revision", optional(Some(*revision).filter(|revision| *revision > 0))),
        ("suspended", optional(suspended.then_some(1))),
        ("low_balance", optional(terms.low_balance.map(NanoUsd::nanos))),
        ("rpm", optional(rpm)),
        ("tpm", optional(tpm)),
        ("concurrency", optional(concurrency)),
        ("provider_state", provider_state(terms.provider_state).to_owned()),
        ("notify", notify(terms.notify)),
    ]
}

/// Returns the recent payments as `apply.lua` encodes them; empty before the first payment.
fn paid(paid: &PaidIn) -> String {
    let PaidIn {
        day,
        of_day,
        month,
        of_month,
    } = *paid;
    if *paid == PaidIn::default() {
        return String::new();
    }
    format!("{day}|{}|{month}|{}", bounded(of_day), bounded(of_month))
}

/// Returns the arguments of `put_back.lua` for a stored operation.
pub(super) fn operation(recorded: &RecordedOperation) -> [String; 3] {
    let RecordedOperation { id, amount } = recorded;
    ["operation".to_owned(), id.to_string(), bounded(*amount).to_string()]
}

/// Returns the arguments of `put_back.lua` for a key.
pub(super) fn account_key(id: &KeyId, key: &AccountKey) -> Vec<[String; 3]> {
    let mirror = key.mirror.iter().map(|mirror| {
        let RateLimits { rpm, tpm, concurrency } = mirror.terms.rates;
        let parts = [
            mirror.revision.to_string(),
            state(mirror.revoked).to_owned(),
            optional(mirror.expires_at),
            optional(mirror.terms.quota.map(bounded)),
            mirror.terms.reset.as_str().to_owned(),
            optional(rpm),
            optional(tpm),
            optional(concurrency),
        ];
        [String::new(), format!("k:{}", id.as_str()), parts.join("|")]
    });
    let spent = key.spent.iter();
    let spent =
        spent.map(|(period, amount)| [period.to_string(), id.as_str().to_owned(), bounded(*amount).to_string()]);
    mirror.chain(spent).collect()
}

/// Returns the provider state as text; empty for the default.
fn provider_state(state: ProviderState) -> &'static str {
    match state {
        ProviderState::Own => "",
        ProviderState::Any => state.as_str(),
    }
}

/// Returns the thresholds as a JSON list; empty if none are set.
fn notify(thresholds: Option<Thresholds>) -> String {
    thresholds.map_or_else(String::new, |thresholds| {
        serde_json::to_string(&thresholds).unwrap_or_default()
    })
}

fn state(revoked: bool) -> &'static str {
    if revoked { "revoked" } else { "active" }
}

fn rates(call: &mut ScriptCall<'_>, rates: &RateLimits) {
    call.arg(optional(rates.rpm))
        .arg(optional(rates.tpm))
        .arg(optional(rates.concurrency));
}

/// Returns an amount in nano-USD, limited to ±[`NanoUsd::MAX`].
fn bounded(amount: NanoUsd) -> i64 {
    let most = NanoUsd::MAX.nanos();
    amount.nanos().clamp(-most, most)
}

fn optional<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

impl RedisLedger {
    /// Implements [`crate::store::ledger::LedgerStore::set_terms`].
    pub(super) async fn replace_record(
        &self,
        account: &str,
        from: &AccountRecord,
        to: &AccountRecord,
    ) -> Result<bool, StoreError> {
        let mut status = self.call_set_terms(account, from, to, false).await?;
        let is_new = status == "missing" && *from == AccountRecord::default();
        if is_new {
            // The account may be created, because this is the Redis that the node knows.
            status = self.call_set_terms(account, from, to, true).await?;
        }
        match status.as_str() {
            "ok" => self.enter(account, is_new).await.map(|()| true),
            "changed" | "missing" => Ok(false),
            _ => Err(answer::unknown_answer()),
        }
    }

    async fn call_set_terms(
        &self,
        account: &str,
        from: &AccountRecord,
        to: &AccountRecord,
        may_create: bool,
    ) -> Result<String, StoreError> {
        let mut call = self.prepare(&self.scripts().set_terms, account);
        call.arg(u8::from(may_create));
        for (_, value) in [from, to].into_iter().flat_map(record) {
            call.arg(value);
        }
        // If a record is replaced twice, that has only one effect.
        let (status, _) = self.call(&call, CallPolicy::Read(ADMIN_BUDGET)).await?;
        Ok(status)
    }
}
