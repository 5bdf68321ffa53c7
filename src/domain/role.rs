//! The roles of operators in the console.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The role of a session, in ascending order: each role includes the permissions of those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Role {
    /// Look at everything.
    Viewer,
    /// Change keys, and switch providers.
    Operator,
    /// Change accounts and their money.
    Owner,
}

impl Role {
    /// Every role.
    pub(crate) const ALL: [Self; 3] = [Self::Viewer, Self::Operator, Self::Owner];

    /// Its name.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Owner => "owner",
        }
    }
}
