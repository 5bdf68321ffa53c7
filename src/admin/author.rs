//! The author of a change, and the state of the object that the change is based on.

use axum::{
    Extension, RequestPartsExt,
    extract::FromRequestParts,
    http::{HeaderMap, header, request::Parts},
};

use super::peer::AdminPeer;
use crate::{
    api::error::AdminError,
    domain::{keys::change::ChangePrecondition, version::Version},
};

/// The author of a question.
#[derive(Clone, Debug)]
pub(crate) struct Author {
    pub(crate) peer: AdminPeer,
    /// The condition of the change: set by pages of this process, or the request's `If-Match`.
    pub(crate) from: ChangePrecondition,
}

impl From<AdminPeer> for Author {
    /// The peer, without a condition.
    fn from(peer: AdminPeer) -> Self {
        Self {
            peer,
            from: ChangePrecondition::Anything,
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Author {
    type Rejection = AdminError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, AdminError> {
        let peer = parts.extract::<Extension<AdminPeer>>().await;
        let Extension(peer) = peer.map_err(|error| AdminError::failed(error.to_string()))?;
        let from = match parts.extensions.get() {
            Some(from) => *from,
            None => if_match(&parts.headers)?,
        };
        Ok(Self { peer, from })
    }
}

/// The condition of `If-Match`. Neither `*` nor a missing header is a condition.
fn if_match(headers: &HeaderMap) -> Result<ChangePrecondition, AdminError> {
    let version = condition(headers)?;
    Ok(version.map_or(ChangePrecondition::Anything, ChangePrecondition::Version))
}

/// The version in `If-Match`; `None` if the change is unconditional.
fn condition(headers: &HeaderMap) -> Result<Option<Version>, AdminError> {
    let wanted = || AdminError::invalid("If-Match must be one version in quotes, such as \"17-5f3a9c21\", or `*`");
    let mut named = headers.get_all(header::IF_MATCH).iter();
    let tag = match (named.next(), named.next()) {
        (None, _) => return Ok(None),
        (Some(one), None) => one.to_str().map_err(|_| wanted())?.trim(),
        (Some(_), Some(_)) => return Err(wanted()),
    };
    if tag == "*" {
        return Ok(None);
    }
    let version = tag.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    let version = version.and_then(|text| text.parse().ok());
    version.map(Some).ok_or_else(wanted)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn a_condition_is_one_version_in_quotes_any_or_none() {
        let read = |values: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::IF_MATCH, HeaderValue::from_static(value));
            }
            if_match(&headers).ok()
        };
        let version = Version::new(17, 0xcbf4_3926);
        assert_eq!(read(&["\"17-cbf43926\""]), Some(ChangePrecondition::Version(version)));
        assert_eq!(
            (read(&[]), read(&["*"])),
            (Some(ChangePrecondition::Anything), Some(ChangePrecondition::Anything))
        );
        for wrong in [
            "",
            "17-cbf43926",
            "W/\"17-cbf43926\"",
            "\"17-cbf43926\", \"18-cbf43926\"",
            "\"\"",
            "\"other\"",
        ] {
            assert_eq!(read(&[wrong]), None, "{wrong}");
        }
        assert_eq!(read(&["\"17-cbf43926\"", "\"17-cbf43926\""]), None);
    }
}
