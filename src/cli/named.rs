//! The id that a command is about: the same two ways for accounts and keys. The version that a change is made from.

use std::{error::Error, str::FromStr};

use clap::Args;

use super::admin_client::AdminClientError;
use crate::domain::version::Version;

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
pub struct Named<T = String>
where
    T: FromStr<Err: Into<Box<dyn Error + Send + Sync>>> + Clone + Send + Sync + 'static,
{
    /// Its id, as the list shows it
    #[arg(value_name = "ID", value_parser = T::from_str)]
    positional: Option<T>,
    /// The same
    #[arg(long = "id", value_name = "ID", value_parser = T::from_str)]
    option: Option<T>,
}

impl<T> Named<T>
where
    T: FromStr<Err: Into<Box<dyn Error + Send + Sync>>> + Clone + Send + Sync + 'static,
{
    /// The id that was given.
    pub(crate) fn get(&self) -> Result<T, AdminClientError> {
        let given = self.positional.as_ref().or(self.option.as_ref());
        given
            .cloned()
            .ok_or_else(|| AdminClientError::Usage("give an ID".to_owned()))
    }
}

impl Named {
    /// The text that was given.
    pub fn id(&self) -> &str {
        let given = self.positional.as_deref().or(self.option.as_deref());
        given.unwrap_or_default()
    }
}
