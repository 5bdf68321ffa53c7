//! The id that a command is about: the same two ways for accounts and keys. The version that a change is made from.

use clap::Args;

use crate::{api::values::AccountId, domain::version::Version};

/// The state that a change was decided on.
#[derive(Args, Clone, Debug, Default)]
pub struct IfVersion {
    /// Only if it is still at this version, as the commands that show it tell it; otherwise nothing is changed
    #[arg(long, value_name = "V")]
    pub if_version: Option<Version>,
}

/// An id, as it stands or behind `--id`.
#[derive(Args, Clone, Debug)]
#[group(required = true, multiple = false)]
pub struct Named {
    /// Its id, as the list shows it
    #[arg(value_name = "ID")]
    positional: Option<String>,
    /// The same
    #[arg(long = "id", value_name = "ID")]
    option: Option<String>,
}

impl Named {
    /// The id that was given.
    pub fn id(&self) -> &str {
        self.positional
            .as_deref()
            .or(self.option.as_deref())
            .unwrap_or_default()
    }
}

/// The name of an account, as it stands or behind `--id`.
#[derive(Args, Clone, Debug)]
#[group(required = true, multiple = false)]
pub struct AccountNamed {
    /// Its name, as the list shows it
    #[arg(value_name = "ID")]
    positional: Option<AccountId>,
    /// The same
    #[arg(long = "id", value_name = "ID")]
    option: Option<AccountId>,
}

impl AccountNamed {
    /// The name that was given.
    pub(crate) fn id(&self) -> AccountId {
        let given = self.positional.clone().or_else(|| self.option.clone());
        given.unwrap_or_default()
    }
}
