//! What all accounts come to: balances now, what was used today and this month. For the console's first page.

use std::ops::RangeInclusive;

use axum::{Json, extract::State};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use serde_json::{Map, Value, json};

use super::{
    reply::{JsonResult, account_body},
    state::AdminState,
};
use crate::{
    domain::{
        ledger::{
            AccountView,
            daily_sums::{Subject, Sums, SumsOf},
            usage_report::{date, day, fields_of},
        },
        money::NanoUsd,
    },
    store::{StoreError, ledger::LIST_ACCOUNTS_MAX},
};

/// Accounts whose sums are read at one time.
const AT_ONCE: usize = 16;
/// Accounts whose balance is low that are named.
const LOW_MAX: usize = 20;
const DAY_MS: i64 = 24 * 3_600_000;

/// `GET /v1/overview`. Of the first [`LIST_ACCOUNTS_MAX`] accounts: `is_whole` says whether there are no others.
pub(super) async fn page(State(state): State<AdminState>) -> JsonResult {
    let today = state.ledger.now_ms().await?.div_euclid(DAY_MS);
    let month = day(date(today).first_of_month());
    let accounts = state.ledger.accounts(None, LIST_ACCOUNTS_MAX).await?;
    let (of_today, of_month) = used(&state, &accounts, month..=today).await?;
    let sum = |of: fn(&AccountView) -> NanoUsd| accounts.iter().map(of).fold(NanoUsd::ZERO, NanoUsd::saturating_add);
    let (balance, spent) = (sum(|account| account.balance), sum(|account| account.spent));
    let low: Vec<Map<String, Value>> = accounts
        .iter()
        .filter(|account| is_low(account))
        .map(account_body)
        .collect();
    Ok(Json(json!({
        "accounts": accounts.len(),
        "is_whole": accounts.len() < LIST_ACCOUNTS_MAX,
        "suspended": accounts.iter().filter(|account| account.suspended).count(),
        // Each charge has lowered the balance by what it has added here.
        "paid_in_nano_usd": balance.saturating_add(spent),
        "paid_today_nano_usd": sum(|account| account.paid_today),
        "paid_month_nano_usd": sum(|account| account.paid_this_month),
        "balance_nano_usd": balance,
        "held_nano_usd": sum(|account| account.held),
        "spent_nano_usd": spent,
        "today": fields_of(&of_today),
        "month": fields_of(&of_month),
        "low_count": low.len(),
        "low": low.into_iter().take(LOW_MAX).collect::<Vec<_>>(),
    })))
}

fn is_low(account: &AccountView) -> bool {
    account.terms.low_balance.is_some_and(|low| account.balance <= low)
}

/// What the accounts have used on the last of these days, and on all of them.
async fn used(
    state: &AdminState,
    accounts: &[AccountView],
    days: RangeInclusive<i64>,
) -> Result<(Sums, Sums), StoreError> {
    let whole = SumsOf::One(Subject::Account);
    let last = *days.end();
    let reads = accounts
        .iter()
        .map(|account| state.ledger.sums(&account.id, days.clone(), &whole));
    stream::iter(reads.collect::<Vec<_>>())
        .buffer_unordered(AT_ONCE)
        .try_fold((Sums::default(), Sums::default()), |(today, all), sums| async move {
            let of = |only_last: bool| {
                let those = sums.iter().filter(|sum| !only_last || sum.day == last);
                those.fold(Sums::default(), |sum, one| sum.plus(&one.sums))
            };
            Ok((today.plus(&of(true)), all.plus(&of(false))))
        })
        .await
}
