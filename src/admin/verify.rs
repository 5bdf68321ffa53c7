//! Compares the daily sums with the rows that they are the sums of, and makes them anew. Of days whose rows have left for the
//! log's home, the store's part of that is how many there were (`log_home.rs` has the other).

use axum::{Extension, Json, extract::State};
use jiff::civil::Date;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    accounts,
    connection_extension::ConnectionExtension,
    fields::{self, Body},
    peer::Peer,
    query::Query,
    reply::{AdminError, JsonResult},
    state::Admin,
};
use crate::{
    domain::ledger::{
        LogDay,
        daily_sums::{DailySum, DailySums, DayTags, Difference, Subject, Sums, SumsOf, differences},
        usage_report,
    },
    store::{
        StoreError,
        ledger::{LOG_ROWS_MAX, LedgerStore},
    },
};

/// How often a day is looked at again because rows came meanwhile.
const ATTEMPTS_MAX: usize = 16;
pub(super) const DAY_MS: i64 = 24 * 3_600_000;

/// One account and one day.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct VerifyQuery {
    pub(super) account: String,
    pub(super) day: String,
}

/// What a day's comparison finds.
struct Compared {
    rows: usize,
    /// How many have left the store for the log's home, which is compared with the same sums.
    trimmed: u64,
    /// Whether the keys' sums add up to the account's.
    sums_agree: bool,
    differences: Vec<Difference>,
}

pub(super) async fn verify(
    State(state): State<Admin>,
    Extension(extension): Extension<ConnectionExtension>,
    Query(query): Query<VerifyQuery>,
) -> JsonResult {
    extension.extend();
    let account = accounts::existing(&state, &query.account).await?.id;
    let compared = compare(&*state.ledger, &account, day(&query.day)?).await?;
    let differences: Vec<Value> = compared.differences.iter().map(difference_body).collect();
    Ok(Json(json!({
        "account": account,
        "day": query.day,
        "rows": compared.rows,
        "trimmed": compared.trimmed,
        "sums_agree": compared.sums_agree,
        "differences": differences,
    })))
}

/// `POST /v1/log/verified`: whoever compared these days of all accounts found no difference. It counts if yesterday is among them.
pub(super) async fn verified(State(state): State<Admin>, body: Body) -> JsonResult {
    let body = fields::object(body)?;
    if let Some(other) = body.keys().find(|name| !["from", "until"].contains(&name.as_str())) {
        return Err(fields::unknown(other, &["from", "until"]));
    }
    let named = |name: &str| day(body.get(name).and_then(Value::as_str).unwrap_or_default());
    let (from, until) = (named("from")?, named("until")?);
    let now_ms = state.ledger.now_ms().await?;
    let counts = (from..until).contains(&(now_ms.div_euclid(DAY_MS) - 1));
    if counts {
        state.log.note_verified(now_ms.div_euclid(1000));
    }
    Ok(Json(json!({ "counts": counts })))
}

pub(super) async fn mend(State(state): State<Admin>, Extension(peer): Extension<Peer>, body: Body) -> JsonResult {
    let body = fields::object(body)?;
    let text = |name: &str| body.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (account, date) = (text("account"), text("day"));
    if let Some(other) = body.keys().find(|name| !["account", "day"].contains(&name.as_str())) {
        return Err(fields::unknown(other, &["account", "day"]));
    }
    let account = accounts::existing(&state, &account).await?.id;
    let day = day(&date)?;
    let standing = log_day(&*state.ledger, &account, day).await?;
    if standing.trimmed > 0 {
        return Err(AdminError::invalid(format!(
            "{} rows of account `{account}` on {date} have left the store for the log's home, so the store cannot make their sums anew: \
             they stay as they were when the home was found to have the same",
            standing.trimmed
        )));
    }
    state.audit(peer, "log.mend", "", &Value::Object(body)).await?;
    state.ledger.resum(&account, day).await?;
    Ok(Json(json!({ "account": account, "day": date, "mended": true })))
}

/// The number of the day that a text names.
pub(super) fn day(text: &str) -> Result<i64, AdminError> {
    let date = text.parse::<Date>();
    let date = date.map_err(|_| AdminError::invalid("day: a date such as 2027-01-31"))?;
    Ok(usage_report::day(date))
}

/// Compares a day of an account, as of one moment: no row has come between the rows that were read and the sums.
async fn compare(ledger: &dyn LedgerStore, account: &str, day: i64) -> Result<Compared, StoreError> {
    let (mut of_rows, mut tags, mut rows) = (DailySums::default(), DayTags::default(), 0);
    let mut before = log_day(ledger, account, day).await?;
    for _ in 0..ATTEMPTS_MAX {
        let now = log_day(ledger, account, day).await?;
        if now.trimmed != before.trimmed {
            (before, of_rows, tags, rows) = (now, DailySums::default(), DayTags::default(), 0);
        }
        rows += loop {
            let page = ledger.rows(account, day, rows, LOG_ROWS_MAX).await?;
            page.iter().for_each(|row| of_rows.add(row, &mut tags));
            if page.len() < LOG_ROWS_MAX {
                break page.len();
            }
            rows += page.len();
        };
        let kept = kept(ledger, account, day).await?;
        let now = log_day(ledger, account, day).await?;
        if now.trimmed == before.trimmed && now.rows == rows as u64 {
            let sums_agree = agree(&kept);
            let kept: DailySums = kept.into_iter().collect();
            let differences = if now.trimmed == 0 {
                differences(&kept, &of_rows)
            } else {
                of_count(day, &kept, now).into_iter().collect()
            };
            return Ok(Compared {
                rows,
                trimmed: now.trimmed,
                sums_agree,
                differences,
            });
        }
    }
    Err(StoreError::Busy(format!(
        "rows of account `{account}` come faster than they are read; try again later"
    )))
}

/// What the store has of a day of an account.
async fn log_day(ledger: &dyn LedgerStore, account: &str, day: i64) -> Result<LogDay, StoreError> {
    let standing = ledger.log_days(account, day..=day).await?.pop();
    Ok(standing.unwrap_or(LogDay {
        day,
        ..LogDay::default()
    }))
}

/// Of a day with rows that have left, the store knows how many there are: whether its sums count as many.
fn of_count(day: i64, kept: &DailySums, standing: LogDay) -> Option<Difference> {
    let of_account = kept.iter().filter(|sum| sum.subject == Subject::Account);
    let kept = of_account.fold(Sums::default(), |all, sum| all.plus(&sum.sums));
    let requests = |requests| Sums {
        requests,
        ..Sums::default()
    };
    (kept.requests != standing.ever()).then(|| Difference {
        day,
        subject: Subject::Account,
        model: String::new(),
        kept: requests(kept.requests),
        of_rows: requests(standing.ever()),
    })
}

/// All daily sums of a day of an account.
pub(super) async fn kept(ledger: &dyn LedgerStore, account: &str, day: i64) -> Result<Vec<DailySum>, StoreError> {
    let mut kept = Vec::new();
    for of in [SumsOf::One(Subject::Account), SumsOf::Keys, SumsOf::Tags] {
        kept.extend(ledger.sums(account, day..=day, &of).await?);
    }
    Ok(kept)
}

/// Whether what the keys have adds up to what the account has.
fn agree(kept: &[DailySum]) -> bool {
    let together = |takes: fn(&Subject) -> bool| {
        let taken = kept.iter().filter(|sum| takes(&sum.subject));
        taken.fold(Sums::default(), |all, sum| all.plus(&sum.sums))
    };
    together(|subject| *subject == Subject::Account) == together(|subject| matches!(subject, Subject::Key(_)))
}

/// Which sums they are, and both, as far as they differ.
pub(super) fn difference_body(difference: &Difference) -> Value {
    let (what, name) = match &difference.subject {
        Subject::Account => ("account", None),
        Subject::Key(id) => ("key", Some(id.as_str())),
        Subject::OtherTags => ("other_tags", None),
        Subject::Tag(tag) => ("tag", Some(tag.as_str())),
    };
    let (kept, of_rows) = (
        usage_report::fields_of(&difference.kept),
        usage_report::fields_of(&difference.of_rows),
    );
    let differing = |fields: &Map<String, Value>, others: &Map<String, Value>| {
        let differing = fields.iter().filter(|(name, value)| others.get(*name) != Some(*value));
        let differing = differing.map(|(name, value)| (name.clone(), value.clone()));
        Value::Object(differing.collect())
    };
    json!({
        "of": what,
        "name": name,
        "model": difference.model,
        "kept": differing(&kept, &of_rows),
        "rows": differing(&of_rows, &kept),
    })
}
