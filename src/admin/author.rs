//! Who makes a change, and the state of the thing that it was decided on.

use axum::{
    Extension, RequestPartsExt,
    extract::FromRequestParts,
    http::{HeaderMap, request::Parts},
};

use super::{fields, peer::Peer, reply::AdminError};
use crate::domain::keys::change::MadeFrom;

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
    let version = fields::condition(headers)?;
    Ok(version.map_or(MadeFrom::Anything, MadeFrom::Version))
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, header};

    use super::*;
    use crate::domain::version::Version;

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
