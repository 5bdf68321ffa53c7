//! `GET /managed/settings`: the operator's settings for all agents that are signed in.

use http::{HeaderMap, header};

use crate::domain::{faults::refusal::RefusalReply, sign_in::managed_settings::ManagedSettings};

/// The answers for agents that are signed in.
#[derive(Clone, Debug)]
pub(crate) struct SignedInAgents {
    /// The operator's settings for them, if any.
    pub settings: Option<ManagedSettings>,
}

/// The answer to `GET /managed/settings`: the operator's settings for agents that are signed in, or 304 if the agent has them.
pub(crate) fn managed_settings_reply(settings: &ManagedSettings, headers: &HeaderMap) -> RefusalReply {
    let tags = headers.get(header::IF_NONE_MATCH).and_then(|tags| tags.to_str().ok());
    let is_known = tags.is_some_and(|tags| settings.is_known(tags));
    let mut fields = vec![
        ("etag", settings.etag.clone()),
        ("cache-control", "private, no-cache".to_owned()),
    ];
    if is_known {
        return RefusalReply {
            status: 304,
            headers: fields,
            body: Vec::new(),
        };
    }
    fields.push(("content-type", "application/json".to_owned()));
    RefusalReply {
        status: 200,
        headers: fields,
        body: settings.body.clone().into_bytes(),
    }
}
