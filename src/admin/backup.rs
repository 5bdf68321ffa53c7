//! Streams a backup of a store that this process owns.

use axum::{
    Extension,
    body::{Body, Bytes},
    extract::State,
    http::header,
    response::{IntoResponse, Response},
};
use futures_util::stream;
use jiff::Timestamp;
use tokio::sync::mpsc;

use super::{connection_extension::ConnectionExtension, reply::AdminError, state::Admin};
use crate::{
    edges::clock,
    store::archive::file::{self, FORMAT, Header},
};

/// Pieces that wait for the client.
const PIECES_WAITING: usize = 4;

pub(super) async fn send(
    State(state): State<Admin>,
    Extension(extension): Extension<ConnectionExtension>,
) -> Result<Response, AdminError> {
    let archive = state.archive.ok_or_else(|| {
        AdminError::not_found("this store is shared: `weir store backup` reads it itself, with the configuration")
    })?;
    let time =
        Timestamp::from_millisecond(clock::unix_millis()).map_or_else(|_| String::new(), |time| time.to_string());
    let header = Header {
        weir_backup: FORMAT,
        time,
        engine: "embedded".to_owned(),
        generation: None,
    };
    extension.extend();
    let (to, pieces) = mpsc::channel::<Vec<u8>>(PIECES_WAITING);
    tokio::spawn(async move {
        // The client sees that the last line is missing.
        if let Err(error) = file::encode(&*archive, &header, to).await {
            tracing::error!(%error, "a backup was broken off");
        }
    });
    let pieces = stream::unfold(pieces, async |mut pieces| {
        let piece = pieces.recv().await?;
        Some((Ok::<_, std::convert::Infallible>(Bytes::from(piece)), pieces))
    });
    let kind = [(header::CONTENT_TYPE, "application/x-ndjson")];
    Ok((kind, Body::from_stream(pieces)).into_response())
}
