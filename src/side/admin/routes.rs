//! Serves the calls of the admin API over HTTP.

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

use crate::side::admin;
use crate::side::admin::Description;
use crate::{
    admin::{Admin, AdminHandler, ConnectionExtension, audit::Author},
    api::{
        AdminError, AdminErrorCode, AdminQuestion,
        accounts::{
            AdjustAccount, CreateAccount, CreditAccount, ListAccounts, ResumeAccount, ShowAccount, SuspendAccount,
            UpdateAccount,
        },
        keys::{CreateKey, DeleteKey, EndOverlap, ListKeys, LowerKey, RevokeKey, RotateKey, ShowKey, UpdateKey},
        log::{
            ExportLog, ListLatestRows, ListNewestRows, QueryLog,
            checks::{
                FillFromJournal, FillLogHome, MendLog, NoteVerifiedLog, RemoveFormerRows, ShowLogHome, VerifyCounters,
                VerifyJournal, VerifyLog,
            },
        },
        node::{Backup, DisableProvider, EnableProvider, ListAuditedChanges, ListModels, ListProviders, Upgrade},
        sessions::{
            CreateConsoleLink, DecideSignIn, EndAllSessions, EndSession, EndSignIns, ListSessions, ListSignIns,
        },
        usage::{ShowOverview, ShowUsage},
        wire,
    },
};

/// The maximum size of a request body, in bytes.
const BODY_BYTES_MAX: usize = 64 * 1024;

/// Creates the HTTP service of all calls and of the OpenAPI description.
pub(super) fn router(admin: Admin) -> Router {
    let AdminRoutes {
        router,
        describing,
        mut methods,
    } = all_routes();
    methods.insert(DESCRIPTION, vec![Method::GET]);
    let methods = Arc::new(methods);
    router
        .route(DESCRIPTION, get(async move || Json(description(&describing))))
        .fallback(async || AdminError::not_found("this path does not exist in the admin API"))
        .method_not_allowed_fallback(async move |method: Method, path: MatchedPath| {
            method_not_allowed(&method, path.as_str(), &methods)
        })
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(admin)
}

/// The path of the OpenAPI description.
const DESCRIPTION: &str = "/v1/openapi.json";

/// The routes of the calls that were added.
#[derive(Default)]
pub(super) struct AdminRoutes {
    router: Router<Admin>,
    /// Functions that each add one call to the description.
    pub(super) describing: Vec<fn(&mut Description)>,
    /// The supported methods of each path.
    methods: HashMap<&'static str, Vec<Method>>,
}

/// Returns the routes of all calls.
pub(super) fn all_routes() -> AdminRoutes {
    let routes = AdminRoutes::default();
    let routes = with_question::<CreateAccount>(routes);
    let routes = with_question::<ListAccounts>(routes);
    let routes = with_question::<ShowAccount>(routes);
    let routes = with_question::<UpdateAccount>(routes);
    let routes = with_question::<CreditAccount>(routes);
    let routes = with_question::<AdjustAccount>(routes);
    let routes = with_question::<SuspendAccount>(routes);
    let routes = with_question::<ResumeAccount>(routes);
    let routes = with_question::<CreateKey>(routes);
    let routes = with_question::<ListKeys>(routes);
    let routes = with_question::<ShowKey>(routes);
    let routes = with_question::<UpdateKey>(routes);
    let routes = with_question::<LowerKey>(routes);
    let routes = with_question::<RotateKey>(routes);
    let routes = with_question::<EndOverlap>(routes);
    let routes = with_question::<RevokeKey>(routes);
    let routes = with_question::<DeleteKey>(routes);
    let routes = with_question::<QueryLog>(routes);
    let routes = with_question::<ListNewestRows>(routes);
    let routes = with_question::<ListLatestRows>(routes);
    let routes = with_question::<VerifyLog>(routes);
    let routes = with_question::<MendLog>(routes);
    let routes = with_question::<NoteVerifiedLog>(routes);
    let routes = with_question::<ShowLogHome>(routes);
    let routes = with_question::<FillLogHome>(routes);
    let routes = with_question::<RemoveFormerRows>(routes);
    let routes = with_question::<VerifyJournal>(routes);
    let routes = with_question::<FillFromJournal>(routes);
    let routes = with_question::<VerifyCounters>(routes);
    let routes = with_question::<ShowUsage>(routes);
    let routes = with_question::<ShowOverview>(routes);
    let routes = with_route::<ExportLog>(routes, get(admin::log_export));
    let routes = with_question::<ListModels>(routes);
    let routes = with_question::<ListProviders>(routes);
    let routes = with_question::<EnableProvider>(routes);
    let routes = with_question::<DisableProvider>(routes);
    let routes = with_question::<ListSignIns>(routes);
    let routes = with_question::<DecideSignIn>(routes);
    let routes = with_question::<EndSignIns>(routes);
    let routes = with_question::<CreateConsoleLink>(routes);
    let routes = with_question::<ListSessions>(routes);
    let routes = with_question::<EndSession>(routes);
    let routes = with_question::<EndAllSessions>(routes);
    let routes = with_question::<ListAuditedChanges>(routes);
    let routes = with_question::<Upgrade>(routes);
    with_route::<Backup>(routes, get(admin::backup))
}

/// Returns the OpenAPI description of the given calls.
pub(super) fn description(describing: &[fn(&mut Description)]) -> Value {
    let mut description = Description::new();
    for describe in describing {
        describe(&mut description);
    }
    description.document()
}

/// Adds the route of the call `Q`, which its [`AdminHandler`] answers.
fn with_question<Q: AdminHandler>(routes: AdminRoutes) -> AdminRoutes {
    let method = match Q::METHOD {
        Method::GET => MethodFilter::GET,
        Method::DELETE => MethodFilter::DELETE,
        Method::PATCH => MethodFilter::PATCH,
        _ => MethodFilter::POST,
    };
    with_route::<Q>(routes, on(method, answer::<Q>))
}

/// Adds the route of the call `Q`, which `answering` answers.
fn with_route<Q: AdminQuestion>(mut routes: AdminRoutes, answering: MethodRouter<Admin>) -> AdminRoutes {
    routes.describing.push(Description::add::<Q>);
    routes.methods.entry(Q::PATH).or_default().push(Q::METHOD);
    AdminRoutes {
        router: routes.router.route(Q::PATH, answering),
        ..routes
    }
}

/// Returns the error for a method that a path does not support. The error contains the pattern of the path instead of the
/// request's path, which may contain a secret.
fn method_not_allowed(method: &Method, path: &str, methods: &HashMap<&'static str, Vec<Method>>) -> AdminError {
    let allowed = methods.get(path).into_iter().flatten();
    let allowed: Vec<&str> = allowed.map(Method::as_str).collect();
    let message = format!("{path} does not support {method}: use {}", allowed.join(" or "));
    AdminError::new(AdminErrorCode::MethodNotAllowed, message)
}

async fn answer<Q: AdminHandler>(
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
        (String::new(), body_fields(&headers, &body.map_err(body_error)?)?)
    };
    let question: Q = wire::read(segments.collect(), &query, fields)?;
    let answer = admin.call(author, question).await?;
    let status = StatusCode::from_u16(Q::STATUS).unwrap_or_default();
    let tag = Q::version(&answer).map(|version| [(header::ETAG, format!("\"{version}\""))]);
    Ok((status, tag, Json(answer)).into_response())
}

/// Creates the API's error for a request body that could not be read. `why` is the reason.
#[expect(clippy::needless_pass_by_value, reason = "map_err hands it over")]
fn body_error(why: BytesRejection) -> AdminError {
    match why.status() {
        StatusCode::PAYLOAD_TOO_LARGE => AdminError::new(
            AdminErrorCode::TooLarge,
            format!("the body is larger than the maximum of {BODY_BYTES_MAX} bytes"),
        ),
        _ => AdminError::invalid(why.body_text()),
    }
}

/// Parses a request body that is a JSON object or empty. The media type must be JSON. This protects against pages of other sites,
/// which can make a browser send a form but not JSON.
fn body_fields(headers: &HeaderMap, body: &Bytes) -> Result<Map<String, Value>, AdminError> {
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
            "the body must be JSON, with the header `content-type: application/json`",
        ));
    }
    serde_json::from_slice(body).map_err(|error| AdminError::invalid(format!("the body is not a JSON object: {error}")))
}
