//! Answers of the admin API that are sent in pieces.

use std::convert::Infallible;

use axum::{
    BoxError, Extension,
    body::{Body, Bytes},
    extract::{RawPathParams, RawQuery, State},
    http::header,
    response::{IntoResponse, Response},
};
use futures_util::stream;
use serde_json::Map;
use tokio::sync::mpsc::Receiver;

use crate::{
    admin::{Admin, ConnectionExtension, author::Author},
    api::{AdminQuestion, error::AdminError, log::ExportLog, node::Backup, wire},
};

/// Sends a backup.
pub(super) async fn backup(
    State(admin): State<Admin>,
    Extension(extension): Extension<ConnectionExtension>,
    author: Author,
    RawQuery(query): RawQuery,
) -> Result<Response, AdminError> {
    let backup: Backup = wire::read(Vec::new(), &query.unwrap_or_default(), Map::new())?;
    let pieces = admin.back_up(&author, backup)?;
    extension.extend();
    let kind = Backup::MEDIA.iter().map(|kind| (header::CONTENT_TYPE, *kind)).next();
    Ok((kind.map(|kind| [kind]), in_pieces(pieces, Ok::<_, Infallible>)).into_response())
}

/// Sends an export of the log. If it breaks off, the last chunk is missing, so the client sees that it is incomplete.
pub(super) async fn log_export(
    State(admin): State<Admin>,
    Extension(extension): Extension<ConnectionExtension>,
    author: Author,
    segments: RawPathParams,
    RawQuery(query): RawQuery,
) -> Result<Response, AdminError> {
    let segments = segments.iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
    let export: ExportLog = wire::read(segments.collect(), &query.unwrap_or_default(), Map::new())?;
    let kind = [(header::CONTENT_TYPE, export.form.media_type())];
    let pieces = admin.export_log(&author, export).await?;
    extension.extend();
    Ok((kind, in_pieces(pieces, |piece| piece)).into_response())
}

/// A body that is sent as its pieces arrive.
fn in_pieces<P, B, E>(pieces: Receiver<P>, sent: fn(P) -> Result<B, E>) -> Body
where
    P: Send + 'static,
    B: Into<Bytes> + 'static,
    E: Into<BoxError> + 'static,
{
    Body::from_stream(stream::unfold((pieces, sent), async |(mut pieces, sent)| {
        let piece = pieces.recv().await?;
        Some((sent(piece), (pieces, sent)))
    }))
}
