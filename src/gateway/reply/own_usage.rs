//! `GET /web/v1/me`: reports a key's usage and limits to a client that presents the key. The report is available for a key
//! without funds and for an expired key, but not for a revoked one.

use std::{
    fmt,
    ops::RangeInclusive,
    str::FromStr,
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use serde_json::{Value, json};

use crate::{
    api::usage::{UsageLine, UsageSums},
    console::{Examples, Site, snippets_of_key},
    domain::{
        catalogue::{Catalogue, Model},
        faults::refusal::{Refusal, RefusalReply},
        keys::KeyRecord,
        ledger::{
            KeySpend, QuotaReset,
            consumption::RETENTION_DAYS,
            daily_sums::{DailySum, SumSelector, SumSubject},
            period::resets_at,
            reports::{self, SplitBy, UsageReport},
        },
        money::NanoUsd,
    },
    edges::limiter::{ClientAddress, Limiter, RateAllowance},
    store::{StoreError, ledger::LedgerStore},
};

/// The default of the query parameter `days`.
const DAYS_DEFAULT: i64 = 30;
const DAY_MS: i64 = 24 * 3600 * 1000;
/// The default of the query parameter `rows`.
const ROWS_DEFAULT: usize = 10;
/// The maximum of the query parameter `rows`.
const ROWS_MAX: usize = 100;

/// Reads the most recent consumption rows of keys.
#[async_trait]
pub(crate) trait LastRows: Send + Sync {
    /// Returns at most `limit` rows of a key, newest first, in the form of the consumption log; `None` if they cannot be read.
    async fn read(&self, key: &KeyRecord, limit: usize) -> Option<Value>;
}

/// Answers requests for the usage of the client's own key.
pub(crate) struct OwnUsage {
    ledger: Arc<dyn LedgerStore>,
    rows: Arc<dyn LastRows>,
    limiter: Limiter<ClientAddress>,
    /// The addresses at which clients reach the gateway.
    pub(crate) site: Site,
}

impl fmt::Debug for OwnUsage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("OwnUsage")
            .field("limiter", &self.limiter)
            .finish_non_exhaustive()
    }
}

impl OwnUsage {
    /// Creates the service, which reads `ledger` and `rows`. Clients reach the gateway at `site`; `start` is a time before the
    /// first request.
    pub(crate) fn new(
        ledger: Arc<dyn LedgerStore>,
        rows: Arc<dyn LastRows>,
        site: Site,
        allowance: RateAllowance,
        start: Instant,
    ) -> Self {
        Self {
            ledger,
            rows,
            limiter: Limiter::new(allowance, start),
            site,
        }
    }

    /// Counts a request toward the rate limit of its address, regardless of the key that it presents.
    ///
    /// # Errors
    /// The address has sent too many requests.
    pub(crate) fn admit(&self, asker: ClientAddress, now: Instant) -> Result<(), Refusal> {
        let admitted = self.limiter.try_acquire(asker, now);
        admitted.map_err(|wait: Duration| Refusal::OwnUsageLimited { wait })
    }

    /// Reads the key's spending from the ledger.
    ///
    /// # Errors
    /// The store does not answer.
    pub(crate) async fn spend(&self, key: &KeyRecord) -> Result<KeySpend, Refusal> {
        let spend = self.ledger.key_spend(&key.account, &key.id).await;
        spend.map_err(|error| unavailable(&error))
    }

    /// Builds the report for the client with this key. `is_off` says whether a provider is switched off, and `now_ms` is the
    /// store's time in Unix milliseconds. `base` is the address at which the client reaches the gateway, `None` if it is unknown.
    ///
    /// # Errors
    /// A parameter of the query is out of range, or the store does not answer.
    pub(crate) async fn reply(
        &self,
        key: &KeyRecord,
        catalogue: &Catalogue,
        is_off: impl Fn(&str) -> bool,
        (query, base): (Option<&str>, Option<&str>),
        now_ms: i64,
    ) -> Result<RefusalReply, Refusal> {
        let (days, most) = (days(query)?, rows(query)?);
        let today = now_ms.div_euclid(DAY_MS);
        let own = SumSelector::One(SumSubject::Key(key.id.clone()));
        let asked = today - (days - 1)..=today;
        let (sums, spend) = tokio::join!(
            self.ledger.sums(&key.account, asked, &own),
            self.ledger.key_spend(&key.account, &key.id)
        );
        let told = sums.and_then(|sums| Ok((sums, spend?)));
        let (sums, spend) = told.map_err(|error| unavailable(&error))?;
        let last_rows = match most {
            0 => None,
            most => Some(self.rows.read(key, most).await),
        };
        let mut data = key_state(key, &spend, now_ms);
        if let Value::Object(fields) = &mut data {
            fields.insert("models".to_owned(), json!(models(key, catalogue, &is_off)));
            fields.insert("usage".to_owned(), usage(&sums, today - (days - 1), today));
            let examples = Examples::new(catalogue, &is_off, key.models.as_deref());
            let snippets = base.map(|base| snippets_of_key(base, &examples));
            fields.insert("snippets".to_owned(), json!(snippets.unwrap_or_default()));
            fields.extend(last_rows.map(|rows| ("last_rows".to_owned(), json!(rows))));
        }
        Ok(RefusalReply {
            status: 200,
            headers: vec![
                ("content-type", "application/json".to_owned()),
                ("cache-control", "no-store".to_owned()),
            ],
            body: json!({ "success": true, "data": data }).to_string().into_bytes(),
        })
    }
}

/// Returns the refusal for a failed call to the store, and logs the error.
fn unavailable(error: &StoreError) -> Refusal {
    tracing::warn!(%error, "cannot read the usage of a key from the store; the request is refused with status 503");
    Refusal::StoreUnavailable
}

/// Reads the query parameter `days`.
fn days(query: Option<&str>) -> Result<i64, Refusal> {
    number(query, "days", DAYS_DEFAULT, 1..=i64::from(RETENTION_DAYS))
}

/// Reads the query parameter `rows`.
fn rows(query: Option<&str>) -> Result<usize, Refusal> {
    number(query, "rows", ROWS_DEFAULT, 0..=ROWS_MAX)
}

/// Reads the last query parameter with this name. Returns `default` if the query has none.
///
/// # Errors
/// The value is not a number in the range `of`.
fn number<N: FromStr + PartialOrd + fmt::Display>(
    query: Option<&str>,
    name: &str,
    default: N,
    of: RangeInclusive<N>,
) -> Result<N, Refusal> {
    let mut pairs = query
        .unwrap_or_default()
        .split('&')
        .filter_map(|pair| pair.split_once('='));
    let Some((_, text)) = pairs.rfind(|(known, _)| *known == name) else {
        return Ok(default);
    };
    let number = text.parse().ok().filter(|number| of.contains(number));
    number.ok_or_else(|| Refusal::QueryInvalid {
        reason: format!("`{name}` must be a whole number from {} to {}", of.start(), of.end()),
    })
}

/// Renders the key's terms, spending and remaining quota as JSON.
fn key_state(key: &KeyRecord, spend: &KeySpend, now_ms: i64) -> Value {
    let terms = &key.terms;
    let of_period = match terms.reset {
        QuotaReset::None => spend.all,
        QuotaReset::Daily => spend.day,
        QuotaReset::Weekly => spend.week,
        QuotaReset::Monthly => spend.month,
    };
    let left = terms.quota.map(|quota| {
        let left = quota.saturating_sub(of_period).saturating_sub(spend.held);
        left.max(NanoUsd::ZERO)
    });
    let has_expired = key.expires_at.is_some_and(|end| end <= now_ms.div_euclid(1000));
    let state = match terms.quota {
        _ if has_expired => "expired",
        Some(quota) if of_period >= quota => "used_up",
        _ => "active",
    };
    json!({
        "id": key.id.as_str(),
        "name": key.name,
        "state": state,
        "created_at": key.created_at,
        "expires_at": key.expires_at,
        "quota_usd": terms.quota.map(usd),
        "quota_nano_usd": terms.quota,
        "reset": terms.reset.as_str(),
        "resets_at": resets_at(terms.reset, now_ms),
        "left_usd": left.map(usd),
        "left_nano_usd": left,
        "held_usd": usd(spend.held),
        "held_nano_usd": spend.held,
        "running": spend.running,
        "spent": {
            "day_usd": usd(spend.day), "day_nano_usd": spend.day,
            "week_usd": usd(spend.week), "week_nano_usd": spend.week,
            "month_usd": usd(spend.month), "month_nano_usd": spend.month,
            "all_usd": usd(spend.all), "all_nano_usd": spend.all,
        },
        "rpm": terms.rates.rpm,
        "tpm": terms.rates.tpm,
        "concurrency": terms.rates.concurrency,
    })
}

fn usd(amount: NanoUsd) -> String {
    amount.to_string()
}

/// Returns the names of the models that the key can use now, in any protocol.
fn models(key: &KeyRecord, catalogue: &Catalogue, is_off: impl Fn(&str) -> bool) -> Vec<String> {
    let is_served = |model: &Model| {
        let mut on = model.providers.iter().filter(|provider| provider.is_on());
        on.any(|provider| !is_off(&provider.name))
    };
    let usable = catalogue
        .served_models()
        .filter(|model| is_served(model) && key.allows_model(&model.name));
    usable.map(|model| model.name.clone()).collect()
}

fn usage(sums: &[DailySum], first: i64, last: i64) -> Value {
    let (mut by_day, mut by_model) = (UsageReport::default(), UsageReport::default());
    by_day.add_lines(sums, SplitBy::Day);
    by_model.add_lines(sums, SplitBy::Model);
    by_day.add_total(sums);
    json!({
        "from": reports::date_of_day(first).to_string(),
        "until": reports::date_of_day(last + 1).to_string(),
        "by_day": UsageLine::from_report(SplitBy::Day, by_day.lines(SplitBy::Day, usize::MAX)),
        "by_model": UsageLine::from_report(SplitBy::Model, by_model.lines(SplitBy::Model, usize::MAX)),
        "total": UsageSums::from(by_day.total()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_days_can_be_asked_for() {
        for (query, expected) in [
            (None, Some(30)),
            (Some("x=1"), Some(30)),
            (Some("x=1&days=1"), Some(1)),
            (Some("days=180"), Some(180)),
            (Some("days=181"), None),
            (Some("days=0"), None),
            (Some("days="), None),
            (Some("days=x"), None),
        ] {
            assert_eq!(days(query).ok(), expected, "{query:?}");
        }
        for (query, expected) in [
            (None, Some(10)),
            (Some("days=2&rows=0"), Some(0)),
            (Some("rows=100"), Some(100)),
            (Some("rows=101"), None),
            (Some("rows=-1"), None),
        ] {
            assert_eq!(rows(query).ok(), expected, "{query:?}");
        }
    }
}
