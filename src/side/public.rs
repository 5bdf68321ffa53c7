//! The public stability service on a listener of its own.

use std::sync::Arc;

use axum::{
    Extension, Router,
    body::Body,
    extract::{Request, State},
    http::{Method, header},
    response::Response,
};

use crate::{
    edges::clock,
    side::service::Peer,
    stability::public::{Public, PublicRequest, PublicResponse},
    store::time::StoreTime,
};

/// Every path: what is not the service's is 404 in its shape.
pub fn router(public: Arc<Public>, time: Arc<StoreTime>) -> Router {
    Router::new().fallback(answer).with_state((public, time))
}

async fn answer(
    State((public, time)): State<(Arc<Public>, Arc<StoreTime>)>,
    Extension(peer): Extension<Peer>,
    request: Request,
) -> Response {
    let now = clock::instant();
    let ask = PublicRequest {
        method: request.method(),
        path: request.uri().path(),
        query: request.uri().query(),
        headers: request.headers(),
        peer: peer.0,
        now_ms: time.now_ms(now),
        now,
    };
    let answer = public.answer(&ask).unwrap_or_else(Public::not_found);
    written(answer, request.method())
}

/// With the length that GET would have; without the body for HEAD.
fn written(answer: PublicResponse, method: &Method) -> Response {
    let (length, has_body) = (answer.body.len(), answer.has_body());
    let body = match has_body && *method != Method::HEAD {
        true => Body::from(answer.body),
        false => Body::empty(),
    };
    let mut response = Response::new(body);
    *response.status_mut() = answer.status;
    *response.headers_mut() = answer.headers;
    if has_body {
        response.headers_mut().insert(header::CONTENT_LENGTH, length.into());
    }
    response
}
