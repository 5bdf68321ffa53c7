//! Questions about who is signed in: people in browsers, and agents with a key.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{question, values::Moment};
use crate::domain::{
    keys::key::KeyId,
    sign_in::{Role, device_request::UserCode},
};

/// Makes a link that opens one session of the console, within a minute.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CreateConsoleLink {
    /// The role of the session; null: owner.
    #[serde(default)]
    pub(crate) role: Option<Role>,
}

question!(CreateConsoleLink => ConsoleLink: POST "/v1/console/links", Owner);

/// A link into the console.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ConsoleLink {
    /// The address to open in a browser.
    pub(crate) url: String,
    /// How long it is valid.
    pub(crate) good_for_seconds: u64,
}

/// Lists the sessions of people in browsers, at the console and the portal: at most 1000, the most recently used.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListSessions {}

question!(ListSessions => SessionList: GET "/v1/console/sessions", Viewer);

/// The sessions of people in browsers.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct SessionList {
    /// The sessions.
    pub(crate) sessions: Vec<SessionView>,
}

/// A session of a person in a browser.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct SessionView {
    /// The id by which it can be ended.
    pub(crate) id: String,
    /// Where its holder is signed in.
    pub(crate) door: Door,
    /// Who opened it, for a session of the console.
    pub(crate) opened_by: Option<String>,
    /// The role, for a session of the console.
    pub(crate) role: Option<Role>,
    /// The key whose owner is signed in, for a session of the portal.
    pub(crate) key: Option<KeyId>,
    /// When it ends if it is not used.
    pub(crate) idle_ends_at: Option<Moment>,
    /// When it ends at the latest.
    pub(crate) ends_at: Option<Moment>,
}

/// The site on which people sign in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Door {
    /// The operators' console.
    Console,
    /// The portal, for owners of keys.
    Portal,
}

impl Door {
    /// The name, as in JSON.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Console => "console",
            Self::Portal => "portal",
        }
    }
}

/// Ends a session of a person in a browser, at all nodes.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EndSession {
    /// Its id, as the list of sessions shows it.
    pub(crate) id: String,
}

question!(EndSession => EndedSessions: DELETE "/v1/console/sessions/{id}", Owner);

/// Ends all sessions of people in browsers, at all nodes.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EndAllSessions {}

question!(EndAllSessions => EndedSessions: DELETE "/v1/console/sessions", Owner);

/// The result of ending sessions.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct EndedSessions {
    /// The number of ended sessions.
    pub(crate) ended: u64,
}

/// Lists the agents that are signed in with a key.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListSignIns {
    /// The key's id.
    pub(crate) id: KeyId,
}

question!(ListSignIns => SignInList: GET "/v1/keys/{id}/sign-ins", Viewer);

/// The agents that are signed in with a key.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct SignInList {
    /// The key's id.
    pub(crate) id: KeyId,
    /// The number of agents.
    pub(crate) signed_in: usize,
    /// The agents.
    pub(crate) sign_ins: Vec<SignInView>,
}

/// An agent that is signed in.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct SignInView {
    /// When it last got tokens.
    pub(crate) used_at: Option<Moment>,
    /// When its sign-in ends.
    pub(crate) ends_at: Option<Moment>,
}

/// Lets the agent that shows a code use the key, or refuses it.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DecideSignIn {
    /// The key's id.
    pub(crate) id: KeyId,
    /// The code that the agent shows.
    pub(crate) user_code: UserCode,
    /// Whether it may use the key.
    pub(crate) approve: bool,
}

question!(DecideSignIn => DecidedSignIn: POST "/v1/keys/{id}/sign-ins", Operator);

/// The decision on an agent.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct DecidedSignIn {
    /// The key's id.
    pub(crate) id: KeyId,
    /// Whether the agent may use the key.
    pub(crate) approved: bool,
}

/// Signs all agents of a key out. The key itself does not change.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EndSignIns {
    /// The key's id.
    pub(crate) id: KeyId,
}

question!(EndSignIns => EndedSignIns: DELETE "/v1/keys/{id}/sign-ins", Operator);

/// The result of signing out all agents of a key.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct EndedSignIns {
    /// The key's id.
    pub(crate) id: KeyId,
    /// The number of agents that are still signed in: always 0.
    pub(crate) signed_in: usize,
}
