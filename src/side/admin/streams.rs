//! Answers of the admin API that are sent in pieces.

use std::convert::Infallible;

use axum::{
    Extension,
    body::{Body, Bytes},
    extract::{RawQuery, State},
    http::header,
    response::{IntoResponse, Response},
};
use futures_util::stream;
use serde_json::Map;
use tokio::sync::mpsc::Receiver;

use crate::{
    admin::{Admin, ConnectionExtension, author::Author},
    api::{Question, error::AdminError, node::Backup, wire},
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
    Ok((kind.map(|kind| [kind]), in_pieces(pieces)).into_response())
}

fn in_pieces(pieces: Receiver<Vec<u8>>) -> Body {
    Body::from_stream(stream::unfold(pieces, async |mut pieces| {
        let piece = pieces.recv().await?;
        Some((Ok::<_, Infallible>(Bytes::from(piece)), pieces))
    }))
}
