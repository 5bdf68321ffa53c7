//! What answers of all three protocols have in common.

use std::borrow::Cow;

use smol_str::SmolStr;

use crate::domain::wire::json_pick::replace;
use crate::domain::wire::protocol::InBandError;
use crate::domain::wire::protocol::made::Made;
use crate::domain::wire::usage::UsageSource;
use crate::domain::wire::usage::fields::is_name;

/// What an answer has said so far, but for its usage.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    /// An event or element has arrived that is neither a ping nor an error.
    pub(super) begun: bool,
    pub(super) content_seen: bool,
    /// The event that ends the answer was seen.
    pub(super) terminal: bool,
    pub(super) finish_reason: Option<SmolStr>,
    pub(super) error: Option<InBandError>,
    pub(super) model: Option<SmolStr>,
    /// The identifier under which the provider may keep the answer.
    pub(super) answer_id: Option<SmolStr>,
    pub(super) done_marker: bool,
    pub(super) made: Made,
}

/// Keeps the newest text. What repeats itself in every event costs no allocation.
pub(super) fn note(kept: &mut Option<SmolStr>, text: Option<Cow<'_, str>>) {
    if let Some(text) = text
        && kept.as_deref() != Some(text.as_ref())
    {
        *kept = Some(text.into());
    }
}

/// Keeps the newest name of a tier; a text that is none says nothing (see [`is_name`]).
pub(super) fn note_name(kept: &mut Option<SmolStr>, text: Option<Cow<'_, str>>) {
    note(kept, text.filter(|text| is_name(text)));
}

/// Whether reported numbers are the last word: all that are billed are there, and nothing can come behind them.
pub(super) fn source(is_whole: bool) -> UsageSource {
    if is_whole {
        UsageSource::Reported
    } else {
        UsageSource::Partial
    }
}

/// Keeps the newest JSON text in a buffer that is used again.
pub(super) fn keep(kept: &mut Vec<u8>, json: Option<&[u8]>) {
    if let Some(json) = json {
        replace(kept, json);
    }
}

/// The error under these names: its type, and its code if it has one.
pub(super) fn in_band_error(kind: Option<Cow<'_, str>>, fallback: &str, code: Option<Cow<'_, str>>) -> InBandError {
    InBandError {
        kind: kind.map_or_else(|| fallback.to_owned(), Cow::into_owned),
        code: code.map(Cow::into_owned),
    }
}
