//! Keys in the admin API: found by what people know of them, page by page.

use axum::{Json, extract::State};
use futures_util::{StreamExt, stream};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{body_of, id};
use crate::{
    admin::{
        accounts, fields,
        query::Query,
        reply::{AdminError, JsonResult},
        state::Admin,
    },
    domain::{keys::key::KeyId, money::NanoUsd},
    store::KeyView,
};

/// Keys in one answer, unless asked otherwise.
const LIST_DEFAULT: usize = 100;
/// Keys in one answer, at the most.
const LIST_MAX: usize = 1000;
/// Questions to the store at one time while a list is made.
const SPENDS_AT_ONCE: usize = 16;
/// Keys whose spending one request may ask the store for. What is left is for the next one, from where this one ends.
const SPENDS_MAX: usize = 2000;

/// Which keys to list.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::admin) struct ListQuery {
    account: Option<String>,
    after: Option<String>,
    limit: Option<usize>,
    /// A part of the name, the id, the account or the hint, in any case.
    search: Option<String>,
    /// A time: only keys used at it or later.
    used_since: Option<String>,
    /// A time: only keys that are older and were not used from it on.
    unused_since: Option<String>,
    /// A time: only keys that have expired by then.
    expires_before: Option<String>,
    /// In USD: only keys that have spent as much in the period of their quota.
    spent_usd: Option<String>,
}

/// The same, checked. Times are in seconds since the Unix epoch.
struct Wanted {
    account: Option<String>,
    search: Option<String>,
    used_since: Option<i64>,
    unused_since: Option<i64>,
    expires_before: Option<i64>,
    spent: Option<NanoUsd>,
}

impl Wanted {
    fn of(query: &ListQuery) -> Result<Self, AdminError> {
        let time = |field, text: &Option<String>| {
            let moment = text.as_deref().map(|text| fields::moment(field, text)).transpose();
            moment.map(|moment| moment.map(|ms| ms.div_euclid(1000)))
        };
        let spent = query.spent_usd.as_ref();
        Ok(Self {
            account: query.account.clone(),
            search: query.search.as_ref().map(|search| search.to_lowercase()),
            used_since: time("used_since", &query.used_since)?,
            unused_since: time("unused_since", &query.unused_since)?,
            expires_before: time("expires_before", &query.expires_before)?,
            spent: spent.map(|text| fields::usd("spent_usd", &json!(text))).transpose()?,
        })
    }

    /// Whether it takes any key.
    fn is_all(&self) -> bool {
        let Self {
            account,
            search,
            used_since,
            unused_since,
            expires_before,
            spent,
        } = self;
        let times = [used_since, unused_since, expires_before];
        account.is_none() && search.is_none() && spent.is_none() && times.into_iter().all(Option::is_none)
    }

    fn takes(&self, view: &KeyView) -> bool {
        let (record, used) = (&view.record, view.last_used);
        let has = |search: &String| {
            let texts = [record.name.as_str(), record.account.as_str(), record.hint.as_str()];
            record.id.as_str().to_lowercase() == *search
                || texts.iter().any(|text| text.to_lowercase().contains(search))
        };
        let has_expired = |end: i64| record.expires_at.is_some_and(|at| at < end);
        // A key made after that time had no chance before it.
        let is_unused = |since: i64| record.created_at < since && used.is_none_or(|at| at < since);
        self.account.as_ref().is_none_or(|account| *account == record.account)
            && self.search.as_ref().is_none_or(has)
            && self.used_since.is_none_or(|since| used.is_some_and(|at| at >= since))
            && self.unused_since.is_none_or(is_unused)
            && self.expires_before.is_none_or(has_expired)
    }

    /// Of a key as it is shown: whether it has spent enough. One whose spending the store does not tell has not.
    fn takes_spending(&self, key: &Value) -> bool {
        let spent = key.get("spent_nano_usd").and_then(Value::as_i64);
        self.spent
            .is_none_or(|least| spent.is_some_and(|spent| spent >= least.nanos()))
    }
}

/// `GET /v1/keys`
pub(in crate::admin) async fn list(State(state): State<Admin>, Query(query): Query<ListQuery>) -> JsonResult {
    let limit = query.limit.unwrap_or(LIST_DEFAULT).clamp(1, LIST_MAX);
    let wanted = Wanted::of(&query)?;
    if let Some(account) = &wanted.account {
        accounts::existing(&state, account).await?;
    }
    // Few of many keys may be wanted: look through them in large steps.
    let asked = if wanted.is_all() { limit } else { LIST_MAX };
    let mut after = query.after.as_deref().map(id).transpose()?;
    let (mut shown, mut looked_at) = (Vec::new(), 0);
    loop {
        let page = state.store.list(after.as_ref(), asked).await?;
        let more = page.len() == asked;
        after = page.last().map(|view| view.record.id.clone()).filter(|_| more);
        let candidates = page.into_iter().filter(|view| wanted.takes(view));
        let bodies = stream::iter(candidates).map(|view| {
            let state = &state;
            async move {
                let body = body_of(state, &view, None).await;
                (view.record.id, body)
            }
        });
        let mut bodies = bodies.buffered(SPENDS_AT_ONCE);
        while let Some((id, body)) = bodies.next().await {
            looked_at += 1;
            if wanted.takes_spending(&body) {
                shown.push(body);
            }
            if shown.len() == limit || looked_at == SPENDS_MAX {
                return Ok(answer(&shown, Some(&id)));
            }
        }
        if after.is_none() {
            return Ok(answer(&shown, None));
        }
    }
}

fn answer(keys: &[Value], next: Option<&KeyId>) -> Json<Value> {
    Json(json!({ "keys": keys, "next": next.map(KeyId::as_str) }))
}
