//! The facts that answers of all three protocols report.

use std::borrow::Cow;

use smol_str::SmolStr;

use crate::domain::wire::json_pick::replace_bytes;
use crate::domain::wire::protocol::InBandError;
use crate::domain::wire::protocol::made::CreatedState;
use crate::domain::wire::usage::UsageSource;
use crate::domain::wire::usage::fields::is_name;

/// The facts that an answer has reported so far, except for its usage.
#[derive(Clone, Debug, Default)]
pub(super) struct AnswerFacts {
    /// An event or element has arrived that is neither a ping nor an error.
    pub(super) has_begun: bool,
    pub(super) content_seen: bool,
    /// The event that ends the answer has arrived.
    pub(super) terminal: bool,
    pub(super) finish_reason: Option<SmolStr>,
    pub(super) error: Option<InBandError>,
    pub(super) model: Option<SmolStr>,
    /// The identifier under which the provider may keep the answer.
    pub(super) answer_id: Option<SmolStr>,
    pub(super) done_marker: bool,
    pub(super) created_state: CreatedState,
}

/// Keeps the newest text. A text that is the same in every event costs no allocation.
pub(super) fn update_text(kept: &mut Option<SmolStr>, text: Option<Cow<'_, str>>) {
    if let Some(text) = text
        && kept.as_deref() != Some(text.as_ref())
    {
        *kept = Some(text.into());
    }
}

/// Keeps the newest name of a tier; ignores a text that is not a name (see [`is_name`]).
pub(super) fn update_name(kept: &mut Option<SmolStr>, text: Option<Cow<'_, str>>) {
    update_text(kept, text.filter(|text| is_name(text)));
}

/// The source of a reported usage. `is_whole`: all counts that are billed were reported, and none can change any more.
pub(super) fn reported_source(is_whole: bool) -> UsageSource {
    if is_whole {
        UsageSource::Reported
    } else {
        UsageSource::Partial
    }
}

/// Keeps the newest JSON text in a reused buffer.
pub(super) fn update_json(kept: &mut Vec<u8>, json: Option<&[u8]>) {
    if let Some(json) = json {
        replace_bytes(kept, json);
    }
}

/// An error of this type, or of type `fallback` without one, and code.
pub(super) fn in_band_error(kind: Option<Cow<'_, str>>, fallback: &str, code: Option<Cow<'_, str>>) -> InBandError {
    InBandError {
        kind: kind.map_or_else(|| fallback.to_owned(), Cow::into_owned),
        code: code.map(Cow::into_owned),
    }
}
