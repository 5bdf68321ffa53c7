//! What accounts, keys, models and tags have used, from the daily sums.

use std::ops::RangeInclusive;

use axum::{Json, extract::State};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use jiff::civil::Date;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    accounts,
    query::Query,
    reply::{AdminError, JsonResult},
    state::Admin,
};
use crate::domain::{
    keys::key::KeyId,
    ledger::{
        consumption::RETENTION_DAYS,
        daily_costs::{self, DailyCosts},
        daily_sums::{DailySum, Subject, SumsOf},
        tag::Tag,
        usage_report::{self, SplitBy, UsageReport},
    },
};
use crate::store::StoreError;

/// How many days a report has, unless asked otherwise.
const DAYS_DEFAULT: i64 = 30;
/// Accounts in one answer where none is named, all asked about together. Others are for the next one.
const ACCOUNTS_AT_ONCE: usize = 32;
/// The names whose cost is told day by day; that of the others is told together.
pub(super) const DAILY_MAX: usize = 6;
const DAY_MS: i64 = 24 * 3_600_000;

/// What is asked for.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UsageQuery {
    account: Option<String>,
    key: Option<String>,
    model: Option<String>,
    tag: Option<String>,
    by: Option<String>,
    /// The first day, a date in UTC.
    from: Option<String>,
    /// The first day that is too late.
    until: Option<String>,
    /// Where no account is named: those behind this one.
    after: Option<String>,
    /// The most lines.
    most: Option<usize>,
}

pub(super) async fn report(State(state): State<Admin>, Query(query): Query<UsageQuery>) -> JsonResult {
    let days = query.days(state.ledger.now_ms().await?)?;
    let by = match query.by.as_deref() {
        None => SplitBy::Day,
        Some(text) => text
            .parse()
            .map_err(|()| AdminError::invalid("by: day, model, key or tag"))?,
    };
    let key = query.key.as_deref().map(KeyId::parse).transpose();
    let key = key.map_err(|error| AdminError::invalid(error.to_string()))?;
    let of = sums_of(key.as_ref(), query.tag.as_deref(), by)?;
    let (accounts, next) = accounts_asked(&state, &query, key.as_ref()).await?;
    let most = query.most.unwrap_or(usize::MAX);
    let mut report = UsageReport::default();
    let mut costs = DailyCosts::new(days.clone());
    // A picture of days shows their models.
    let split = if by == SplitBy::Day { SplitBy::Model } else { by };
    // A request with two tags is in the sums of both, one without any in none: what all of them come to, the account knows.
    let whole = (of == SumsOf::Tags).then_some(SumsOf::One(Subject::Account));
    let (ledger, asked, of, whole) = (&*state.ledger, &days, &of, &whole);
    let reads = accounts.iter().map(|account| async move {
        let sums = ledger.sums(account, asked.clone(), of).await?;
        let all = match whole {
            Some(whole) => Some(ledger.sums(account, asked.clone(), whole).await?),
            None => None,
        };
        Ok::<_, StoreError>((sums, all))
    });
    let mut reads = stream::iter(reads.collect::<Vec<_>>()).buffered(ACCOUNTS_AT_ONCE);
    let takes = |sum: &&DailySum| query.model.as_ref().is_none_or(|model| *model == sum.model);
    while let Some((sums, all)) = reads.try_next().await? {
        report.add_lines(sums.iter().filter(takes), by);
        report.add_total(all.as_ref().unwrap_or(&sums).iter().filter(takes));
        costs.add(sums.iter().filter(takes), split);
    }
    let mut answer = daily_costs::fields_of_costs(&costs, DAILY_MAX);
    answer.extend([
        ("by".to_owned(), json!(by.as_str())),
        ("usage".to_owned(), json!(report.lines(by, most))),
        ("left_out".to_owned(), json!(report.left_out(most))),
        ("total".to_owned(), report.total()),
        ("next".to_owned(), json!(next)),
    ]);
    Ok(Json(Value::Object(answer)))
}

/// Which sums answer the question.
fn sums_of(key: Option<&KeyId>, tag: Option<&str>, by: SplitBy) -> Result<SumsOf, AdminError> {
    let alone = || AdminError::invalid("tag: sums are kept of keys and of tags, not of the tags of a key");
    match (key, tag, by) {
        (Some(_), Some(_), _) | (Some(_), None, SplitBy::Tag) | (None, Some(_), SplitBy::Key) => Err(alone()),
        (Some(key), None, _) => Ok(SumsOf::One(Subject::Key(key.clone()))),
        (None, Some(tag), _) => match Tag::parse(tag) {
            Some(tag) if tag.is_summed() => Ok(SumsOf::One(Subject::Tag(tag))),
            Some(_) => Err(AdminError::invalid(
                "tag: no sums are kept of sessions; `weir log query --tag` finds their rows",
            )),
            None => Err(AdminError::invalid(format!("tag: {}", Tag::RULE))),
        },
        (None, None, SplitBy::Key) => Ok(SumsOf::Keys),
        (None, None, SplitBy::Tag) => Ok(SumsOf::Tags),
        (None, None, SplitBy::Day | SplitBy::Model) => Ok(SumsOf::One(Subject::Account)),
    }
}

/// The account that is named, or the key's; else some, and where to go on.
async fn accounts_asked(
    state: &Admin,
    query: &UsageQuery,
    key: Option<&KeyId>,
) -> Result<(Vec<String>, Option<String>), AdminError> {
    if let Some(account) = &query.account {
        return Ok((vec![accounts::existing(state, account).await?.id], None));
    }
    if let Some(key) = key {
        let view = state.store.by_id(key).await?;
        let view = view.ok_or_else(|| {
            AdminError::not_found(format!(
                "there is no key {key}; what a deleted one has used is told with its account"
            ))
        })?;
        return Ok((vec![view.record.account.into()], None));
    }
    let page = state.ledger.accounts(query.after.as_deref(), ACCOUNTS_AT_ONCE).await?;
    let names: Vec<String> = page.into_iter().map(|account| account.id).collect();
    let next = names.last().filter(|_| names.len() == ACCOUNTS_AT_ONCE).cloned();
    Ok((names, next))
}

impl UsageQuery {
    /// The days, as far as they are kept.
    fn days(&self, now_ms: i64) -> Result<RangeInclusive<i64>, AdminError> {
        let today = now_ms.div_euclid(DAY_MS);
        let oldest = today - i64::from(RETENTION_DAYS);
        let day = |field: &str, text: &Option<String>| {
            let wrong = || AdminError::invalid(format!("{field}: a date such as 2027-01-31"));
            let read = |text: &String| text.parse::<Date>().map(usage_report::day).map_err(|_| wrong());
            text.as_ref().map(read).transpose()
        };
        let (from, until) = (day("from", &self.from)?, day("until", &self.until)?);
        if from.zip(until).is_some_and(|(from, until)| from >= until) {
            return Err(AdminError::invalid("until: it is not after --from, so no day is left"));
        }
        let last = until.map_or(today, |until| until - 1).min(today);
        let first = from.unwrap_or(last + 1 - DAYS_DEFAULT).max(oldest);
        Ok(first..=last)
    }
}
