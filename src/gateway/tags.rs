//! What a client attributes its request to: the tags of `x-weir-tag`, and the session that an agent names.

use http::HeaderName;
use pingora::http::RequestHeader;

use crate::{
    config::GatewayConfig,
    domain::{
        faults::refusal::Refusal,
        ledger::tag::{self, TAGS_MAX, Tag, TagsFault},
        wire::session_hint,
    },
};

/// The header that lists tags (docs/interface.md, Tags).
static TAG_HEADER: HeaderName = HeaderName::from_static("x-weir-tag");

/// The tags of a request: those of `x-weir-tag`, and the session that an agent names. An invalid tag is refused, because without
/// it the cost would silently be attributed to nothing. An agent's session name is not written for weir, so it is ignored if it
/// is not a valid tag or the request has the maximum number of tags.
pub(super) fn read_tags(head: &RequestHeader, config: &GatewayConfig) -> Result<Vec<Tag>, Refusal> {
    let values = head.headers.get_all(&TAG_HEADER).iter();
    let texts: Result<Vec<&str>, _> = values.map(|value| value.to_str()).collect();
    let texts = texts.map_err(|_| Refusal::TagsInvalid(TagsFault::Malformed { place: 1 }))?;
    let mut tags = tag::read(texts).map_err(Refusal::TagsInvalid)?;
    if config.session_tag
        && let Some(session) = session_hint::session_name(&head.headers).and_then(Tag::of_session)
        && tags.len() < TAGS_MAX
        && !tags.contains(&session)
    {
        tags.push(session);
    }
    Ok(tags)
}
