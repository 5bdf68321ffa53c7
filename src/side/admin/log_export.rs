//! Sends an export of the log.

use axum::{
    Extension,
    body::Body,
    extract::{RawPathParams, RawQuery, State},
    http::header,
    response::{IntoResponse, Response},
};
use futures_util::stream;
use serde_json::Map;

use crate::{
    admin::{Admin, ConnectionExtension, author::Author},
    api::{error::AdminError, log::ExportLog, wire},
};

/// `GET /v1/log/export/FORM`. An answer that breaks off is not whole, and shows it: its last chunk is missing.
pub(super) async fn send(
    State(admin): State<Admin>,
    Extension(extension): Extension<ConnectionExtension>,
    author: Author,
    segments: RawPathParams,
    RawQuery(query): RawQuery,
) -> Result<Response, AdminError> {
    let segments = segments.iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
    let export: ExportLog = wire::read(segments.collect(), &query.unwrap_or_default(), Map::new())?;
    let kind = [(header::CONTENT_TYPE, export.form.media())];
    let pieces = admin.export_log(&author, export).await?;
    extension.extend();
    let pieces = stream::unfold(pieces, async |mut pieces| {
        let piece = pieces.recv().await?;
        Some((piece, pieces))
    });
    Ok((kind, Body::from_stream(pieces)).into_response())
}
