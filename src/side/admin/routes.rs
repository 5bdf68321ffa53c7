//! The questions of the admin API by HTTP.

use std::{collections::HashMap, sync::Arc};

use axum::{
    Extension, Json, Router,
    body::Bytes,
    extract::{DefaultBodyLimit, MatchedPath, RawPathParams, RawQuery, State, rejection::BytesRejection},
    http::{HeaderMap, Method, StatusCode, header},
    response::{IntoResponse, Response},
    routing::{MethodFilter, MethodRouter, get, on},
};
use serde_json::{Map, Value};

use super::{openapi::Description, streams};
use crate::{
    admin::{Admin, ConnectionExtension, ask::Answered, author::Author},
    api::{
        Question,
        accounts::{
            AdjustAccount, CreateAccount, CreditAccount, ListAccounts, ResumeAccount, ShowAccount, SuspendAccount,
            UpdateAccount,
        },
        error::{AdminError, Code},
        keys::{CreateKey, DeleteKey, EndOverlap, ListKeys, LowerKey, RevokeKey, RotateKey, ShowKey, UpdateKey},
        log::{
            ExportLog, ListLatestRows, ListNewestRows, QueryLog,
            checks::{
                FillFromJournal, FillLogHome, MendLog, NoteVerifiedLog, RemoveFormerRows, ShowLogHome, VerifyCounters,
                VerifyJournal, VerifyLog,
            },
        },
        node::{Backup, ListAuditedChanges, Upgrade},
        providers::{DisableProvider, EnableProvider, ListModels, ListProviders},
        sessions::{
            CreateConsoleLink, DecideSignIn, EndAllSessions, EndSession, EndSignIns, ListSessions, ListSignIns,
        },
        usage::{ShowOverview, ShowUsage},
        wire,
    },
};

/// The largest request body.
const BODY_BYTES_MAX: usize = 64 * 1024;

/// The API as a service of HTTP: the questions, each at its path, and their description at one of its own.
pub(super) fn router(admin: Admin) -> Router {
    let Routes {
        router,
        describing,
        mut methods,
    } = all();
    methods.insert(DESCRIPTION, vec![Method::GET]);
    let methods = Arc::new(methods);
    router
        .route(DESCRIPTION, get(async move || Json(description(&describing))))
        .fallback(async || AdminError::not_found("no such path in the admin API"))
        .method_not_allowed_fallback(async move |method: Method, path: MatchedPath| {
            method_not_allowed(&method, path.as_str(), &methods)
        })
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(admin)
}

/// Where the description is.
const DESCRIPTION: &str = "/v1/openapi.json";

/// The questions so far.
#[derive(Default)]
pub(super) struct Routes {
    router: Router<Admin>,
    /// Each adds one of them to the description.
    pub(super) describing: Vec<fn(&mut Description)>,
    /// The methods of each path.
    methods: HashMap<&'static str, Vec<Method>>,
}

/// All questions.
pub(super) fn all() -> Routes {
    let routes = Routes::default();
    let routes = route::<CreateAccount>(routes);
    let routes = route::<ListAccounts>(routes);
    let routes = route::<ShowAccount>(routes);
    let routes = route::<UpdateAccount>(routes);
    let routes = route::<CreditAccount>(routes);
    let routes = route::<AdjustAccount>(routes);
    let routes = route::<SuspendAccount>(routes);
    let routes = route::<ResumeAccount>(routes);
    let routes = route::<CreateKey>(routes);
    let routes = route::<ListKeys>(routes);
    let routes = route::<ShowKey>(routes);
    let routes = route::<UpdateKey>(routes);
    let routes = route::<LowerKey>(routes);
    let routes = route::<RotateKey>(routes);
    let routes = route::<EndOverlap>(routes);
    let routes = route::<RevokeKey>(routes);
    let routes = route::<DeleteKey>(routes);
    let routes = route::<QueryLog>(routes);
    let routes = route::<ListNewestRows>(routes);
    let routes = route::<ListLatestRows>(routes);
    let routes = route::<VerifyLog>(routes);
    let routes = route::<MendLog>(routes);
    let routes = route::<NoteVerifiedLog>(routes);
    let routes = route::<ShowLogHome>(routes);
    let routes = route::<FillLogHome>(routes);
    let routes = route::<RemoveFormerRows>(routes);
    let routes = route::<VerifyJournal>(routes);
    let routes = route::<FillFromJournal>(routes);
    let routes = route::<VerifyCounters>(routes);
    let routes = route::<ShowUsage>(routes);
    let routes = route::<ShowOverview>(routes);
    let routes = stream::<ExportLog>(routes, get(streams::log_export));
    let routes = route::<ListModels>(routes);
    let routes = route::<ListProviders>(routes);
    let routes = route::<EnableProvider>(routes);
    let routes = route::<DisableProvider>(routes);
    let routes = route::<ListSignIns>(routes);
    let routes = route::<DecideSignIn>(routes);
    let routes = route::<EndSignIns>(routes);
    let routes = route::<CreateConsoleLink>(routes);
    let routes = route::<ListSessions>(routes);
    let routes = route::<EndSession>(routes);
    let routes = route::<EndAllSessions>(routes);
    let routes = route::<ListAuditedChanges>(routes);
    let routes = route::<Upgrade>(routes);
    stream::<Backup>(routes, get(streams::backup))
}

/// The description of some questions.
pub(super) fn description(describing: &[fn(&mut Description)]) -> Value {
    let mut description = Description::new();
    for describe in describing {
        describe(&mut description);
    }
    description.document()
}

/// The same with one question more.
fn route<Q: Answered>(routes: Routes) -> Routes {
    let method = match Q::METHOD {
        Method::GET => MethodFilter::GET,
        Method::DELETE => MethodFilter::DELETE,
        Method::PATCH => MethodFilter::PATCH,
        _ => MethodFilter::POST,
    };
    stream::<Q>(routes, on(method, answer::<Q>))
}

/// The same with one more that this answers.
fn stream<Q: Question>(mut routes: Routes, answering: MethodRouter<Admin>) -> Routes {
    routes.describing.push(Description::add::<Q>);
    routes.methods.entry(Q::PATH).or_default().push(Q::METHOD);
    Routes {
        router: routes.router.route(Q::PATH, answering),
        ..routes
    }
}

/// The error of a method that a path does not have. The path is told with the names of its segments: one may be a secret.
fn method_not_allowed(method: &Method, path: &str, methods: &HashMap<&'static str, Vec<Method>>) -> AdminError {
    let allowed = methods.get(path).into_iter().flatten();
    let allowed: Vec<&str> = allowed.map(Method::as_str).collect();
    let message = format!("{method} is not a method of {path}: use {}", allowed.join(" or "));
    AdminError::new(Code::MethodNotAllowed, message)
}

async fn answer<Q: Answered>(
    State(admin): State<Admin>,
    Extension(extension): Extension<ConnectionExtension>,
    author: Author,
    segments: RawPathParams,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, AdminError> {
    if Q::IS_LONG {
        extension.extend();
    }
    let segments = segments.iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
    let takes_query = matches!(Q::METHOD, Method::GET | Method::DELETE);
    let (query, fields) = if takes_query {
        (query.unwrap_or_default(), Map::new())
    } else {
        (String::new(), fields(&headers, &body.map_err(unread)?)?)
    };
    let question: Q = wire::read(segments.collect(), &query, fields)?;
    let answer = admin.ask(author, question).await?;
    let status = StatusCode::from_u16(Q::STATUS).unwrap_or_default();
    let tag = Q::version(&answer).map(|version| [(header::ETAG, format!("\"{version}\""))]);
    Ok((status, tag, Json(answer)).into_response())
}

/// Why a body could not be read.
#[expect(clippy::needless_pass_by_value, reason = "map_err hands it over")]
fn unread(why: BytesRejection) -> AdminError {
    match why.status() {
        StatusCode::PAYLOAD_TOO_LARGE => AdminError::new(
            Code::TooLarge,
            format!("the body has more than {BODY_BYTES_MAX} bytes: no question needs that much"),
        ),
        _ => AdminError::invalid(why.body_text()),
    }
}

/// The fields of a body that is a JSON object, or of none. A page of another site can send a form, and no JSON.
fn fields(headers: &HeaderMap, body: &Bytes) -> Result<Map<String, Value>, AdminError> {
    if body.is_empty() {
        return Ok(Map::new());
    }
    let kind = headers
        .get(header::CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok())
        .unwrap_or_default();
    let kind = kind.split_once(';').map_or(kind, |(kind, _)| kind).trim();
    if !kind.eq_ignore_ascii_case("application/json") {
        return Err(AdminError::invalid(
            "the body: JSON, with the header `content-type: application/json`",
        ));
    }
    serde_json::from_slice(body).map_err(|error| AdminError::invalid(format!("the body is no JSON object: {error}")))
}
