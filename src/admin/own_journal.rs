//! The rows that this process's journals still have, beside those of the log.

use axum::{Extension, Json, extract::State};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    connection_extension::ConnectionExtension,
    fields::{self, Body},
    peer::Peer,
    query::Query,
    reply::{AdminError, JsonResult},
    state::Admin,
    verify,
};
use crate::{
    domain::ledger::usage_report,
    sinks::own_journal::{self, JournalPlace, Log, Portion, ROWS_AT_ONCE, Wanted},
};

/// Days, of one account or of all, from a place in the journals on.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct JournalQuery {
    from: String,
    until: String,
    account: Option<String>,
    after: Option<String>,
}

/// `GET /v1/log/journal`: a portion of them.
pub(super) async fn verify(
    State(state): State<Admin>,
    Extension(extension): Extension<ConnectionExtension>,
    Query(query): Query<JournalQuery>,
) -> JsonResult {
    extension.extend();
    let (wanted, from) = query.read()?;
    let homes = &state.homes;
    let log = match &homes.home {
        Some(home) => Log::Home {
            home: &*home.home,
            fills: false,
        },
        None => Log::Store {
            ledger: &*state.ledger,
            former: homes.former.as_deref(),
            fills: false,
        },
    };
    let portion = own_journal::compare(log, &homes.lanes, &wanted, from.as_ref(), ROWS_AT_ONCE).await;
    answer(portion.map_err(|error| AdminError::failed(error.to_string()))?)
}

/// `POST /v1/log/journal/fill`: the same, and what the log lacks is brought: to its home, or to the store that is the home.
pub(super) async fn fill(
    State(state): State<Admin>,
    Extension(peer): Extension<Peer>,
    Extension(extension): Extension<ConnectionExtension>,
    body: Body,
) -> JsonResult {
    extension.extend();
    let body = fields::object(body)?;
    let query = serde_json::from_value::<JournalQuery>(Value::Object(body.clone()));
    let (wanted, from) = query.map_err(|error| AdminError::invalid(error.to_string()))?.read()?;
    state.audit(peer, "log.fill", "", &Value::Object(body)).await?;
    let homes = &state.homes;
    let (log, filling) = match &homes.home {
        Some(home) => {
            let log = Log::Home {
                home: &*home.home,
                fills: true,
            };
            (log, &home.filling)
        }
        None => {
            let log = Log::Store {
                ledger: &*state.ledger,
                former: homes.former.as_deref(),
                fills: true,
            };
            (log, &homes.filling_store)
        }
    };
    let _turn = filling.lock().await;
    let portion = own_journal::compare(log, &homes.lanes, &wanted, from.as_ref(), ROWS_AT_ONCE).await;
    answer(portion.map_err(|error| AdminError::failed(error.to_string()))?)
}

impl JournalQuery {
    fn read(self) -> Result<(Wanted, Option<JournalPlace>), AdminError> {
        let place = self.after.map(|text| text.parse());
        let from = place
            .transpose()
            .map_err(|()| AdminError::invalid("after: what an answer has as `next`"))?;
        let wanted = Wanted {
            days: verify::day(&self.from)?..verify::day(&self.until)?,
            account: self.account,
        };
        Ok((wanted, from))
    }
}

fn answer(portion: Portion) -> JsonResult {
    let days = portion.days.into_iter().map(|((account, day), found)| {
        json!({
            "account": account,
            "day": usage_report::date(day).to_string(),
            "rows": found.rows,
            "missing": found.missing,
            "differing": found.differing,
            "brought": found.brought,
            "requests": found.named,
        })
    });
    let days: Vec<Value> = days.collect();
    Ok(Json(
        json!({ "days": days, "next": portion.next.map(|next| next.to_string()) }),
    ))
}
