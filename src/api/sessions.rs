//! Requests of the admin API about sessions in browsers (console and portal), and about agents that are signed in with a key.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{question, values::Moment};
use crate::domain::{
    keys::KeyId,
    sign_in::{Role, device_request::UserCode},
};

/// Creates a link that opens one session of the console. The link expires after a minute.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CreateConsoleLink {
    /// The role of the session; owner if null or left out.
    #[serde(default)]
    pub(crate) role: Option<Role>,
}

question!(CreateConsoleLink => ConsoleLink: POST "/v1/console/links", Owner);

/// A link that opens a session of the console.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ConsoleLink {
    /// The URL to open in a browser.
    pub(crate) url: String,
    /// The number of seconds until the link expires.
    pub(crate) good_for_seconds: u64,
}

/// Lists the browser sessions of the console and the portal: at most 1000, the most recently used.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListSessions {}

question!(ListSessions => SessionList: GET "/v1/console/sessions", Viewer);

/// The browser sessions of the console and the portal.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct SessionList {
    /// The sessions, at most 1000.
    pub(crate) sessions: Vec<SessionView>,
}

/// A browser session of the console or the portal.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct SessionView {
    /// The id of the session, by which it can be ended.
    pub(crate) id: String,
    /// The site at which the user is signed in: console or portal.
    pub(crate) door: Door,
    /// The caller that opened the session, for a session of the console; null for the portal.
    pub(crate) opened_by: Option<String>,
    /// The session's role, for a session of the console; null for the portal.
    pub(crate) role: Option<Role>,
    /// The id of the key whose owner is signed in, for a session of the portal; null for the console.
    pub(crate) key: Option<KeyId>,
    /// The time at which the session ends if it is not used before then.
    pub(crate) idle_ends_at: Option<Moment>,
    /// The time at which the session ends even if it is used.
    pub(crate) ends_at: Option<Moment>,
}

/// The site at which users sign in with a browser.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Door {
    /// The operators' console.
    Console,
    /// The portal for owners of keys.
    Portal,
}

impl Door {
    /// Returns the site's name, as it is written in JSON.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Console => "console",
            Self::Portal => "portal",
        }
    }
}

/// Ends a browser session, at all nodes.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EndSession {
    /// The id of the session, as in the list of sessions.
    pub(crate) id: String,
}

question!(EndSession => EndedSessions: DELETE "/v1/console/sessions/{id}", Owner);

/// Ends all browser sessions, at all nodes.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EndAllSessions {}

question!(EndAllSessions => EndedSessions: DELETE "/v1/console/sessions", Owner);

/// The answer to the ending of sessions.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct EndedSessions {
    /// The number of ended sessions.
    pub(crate) ended: u64,
}

/// Lists the agents (command-line programs) that are signed in with a key.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListSignIns {
    /// The key's id.
    pub(crate) id: KeyId,
}

question!(ListSignIns => SignInList: GET "/v1/keys/{id}/sign-ins", Viewer);

/// The agents (command-line programs) that are signed in with a key.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct SignInList {
    /// The key's id.
    pub(crate) id: KeyId,
    /// The number of agents that are signed in.
    pub(crate) signed_in: usize,
    /// The agents that are signed in.
    pub(crate) sign_ins: Vec<SignInView>,
}

/// An agent that is signed in with a key.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct SignInView {
    /// The time at which the agent last received tokens.
    pub(crate) used_at: Option<Moment>,
    /// The time at which the agent's sign-in expires.
    pub(crate) ends_at: Option<Moment>,
}

/// Decides whether the agent that displays the code is allowed to use the key.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DecideSignIn {
    /// The key's id.
    pub(crate) id: KeyId,
    /// The code that the agent displays.
    pub(crate) user_code: UserCode,
    /// Whether the agent is allowed to use the key.
    pub(crate) approve: bool,
}

question!(DecideSignIn => DecidedSignIn: POST "/v1/keys/{id}/sign-ins", Operator);

/// The decision whether an agent is allowed to use a key.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct DecidedSignIn {
    /// The key's id.
    pub(crate) id: KeyId,
    /// Whether the agent is allowed to use the key.
    pub(crate) approved: bool,
}

/// Signs out all agents that are signed in with a key. The key itself does not change.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EndSignIns {
    /// The key's id.
    pub(crate) id: KeyId,
}

question!(EndSignIns => EndedSignIns: DELETE "/v1/keys/{id}/sign-ins", Operator);

/// The answer to the sign-out of all agents of a key.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct EndedSignIns {
    /// The key's id.
    pub(crate) id: KeyId,
    /// The number of agents that are still signed in: always 0.
    pub(crate) signed_in: usize,
}
