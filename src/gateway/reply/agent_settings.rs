//! `GET /managed/settings`: what the operator has set for all agents that are signed in.

use http::{HeaderMap, header};

use crate::domain::{faults::refusal::Reply, sign_in::managed_settings::ManagedSettings};

/// What agents that are signed in are told.
#[derive(Clone, Debug)]
pub(crate) struct Agents {
    /// The operator's settings for them; `None`: there are none.
    pub settings: Option<ManagedSettings>,
}

/// The settings, or that the client has them.
pub(crate) fn reply(settings: &ManagedSettings, headers: &HeaderMap) -> Reply {
    let tags = headers.get(header::IF_NONE_MATCH).and_then(|tags| tags.to_str().ok());
    let is_known = tags.is_some_and(|tags| settings.is_known(tags));
    let mut fields = vec![
        ("etag", settings.etag.clone()),
        ("cache-control", "private, no-cache".to_owned()),
    ];
    if is_known {
        return Reply {
            status: 304,
            headers: fields,
            body: Vec::new(),
        };
    }
    fields.push(("content-type", "application/json".to_owned()));
    Reply {
        status: 200,
        headers: fields,
        body: settings.body.clone().into_bytes(),
    }
}
