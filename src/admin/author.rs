//! Who makes a change, and the state of the thing that it was decided on.

use axum::{
    Extension, RequestPartsExt,
    extract::FromRequestParts,
    http::{HeaderMap, header, request::Parts},
};

use super::peer::Peer;
use crate::{
    api::error::AdminError,
    domain::{keys::change::MadeFrom, version::Version},
};

/// The author of a question.
#[derive(Clone, Debug)]
pub(crate) struct Author {
    pub(crate) peer: Peer,
    /// What pages of this process say, or else the request's `If-Match`.
    pub(crate) from: MadeFrom,
}

impl From<Peer> for Author {
    /// Whoever asks, with no condition.
    fn from(peer: Peer) -> Self {
        Self {
            peer,
            from: MadeFrom::Anything,
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Author {
    type Rejection = AdminError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, AdminError> {
        let peer = parts.extract::<Extension<Peer>>().await;
        let Extension(peer) = peer.map_err(|error| AdminError::failed(error.to_string()))?;
        let from = match parts.extensions.get() {
            Some(from) => *from,
            None => if_match(&parts.headers)?,
        };
        Ok(Self { peer, from })
    }
}

/// What `If-Match` asks for: `*` and none are no condition.
fn if_match(headers: &HeaderMap) -> Result<MadeFrom, AdminError> {
    let version = condition(headers)?;
    Ok(version.map_or(MadeFrom::Anything, MadeFrom::Version))
}

/// The version that a change was made from, as `If-Match` names it; `None`: it holds whatever is there.
fn condition(headers: &HeaderMap) -> Result<Option<Version>, AdminError> {
    let wanted = || AdminError::invalid("If-Match: one version in quotes, such as \"17-5f3a9c21\", or `*`");
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
        assert_eq!(read(&["\"17-cbf43926\""]), Some(MadeFrom::Version(version)));
        assert_eq!(
            (read(&[]), read(&["*"])),
            (Some(MadeFrom::Anything), Some(MadeFrom::Anything))
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
