//! The arguments for the id of an account or key, and for the version that a change requires.

use std::{error::Error, str::FromStr};

use clap::Args;

use super::admin_client::AdminClientError;
use crate::domain::version::Version;

/// The version that a change requires.
#[derive(Args, Clone, Debug, Default)]
pub struct IfVersion {
    /// Change it only if it is still at this version, which the commands that show it print
    #[arg(long, value_name = "V")]
    pub if_version: Option<Version>,
}

/// An id, as an argument or as the option `--id`.
#[derive(Args, Clone, Debug)]
#[group(required = true, multiple = false)]
pub struct IdArgs<T = String>
where
    T: FromStr<Err: Into<Box<dyn Error + Send + Sync>>> + Clone + Send + Sync + 'static,
{
    /// Its id, as shown in the list
    #[arg(value_name = "ID", value_parser = T::from_str)]
    positional: Option<T>,
    /// The same
    #[arg(long = "id", value_name = "ID", value_parser = T::from_str)]
    option: Option<T>,
}

impl<T> IdArgs<T>
where
    T: FromStr<Err: Into<Box<dyn Error + Send + Sync>>> + Clone + Send + Sync + 'static,
{
    /// The given id.
    pub(crate) fn id_or_error(&self) -> Result<T, AdminClientError> {
        let given = self.positional.as_ref().or(self.option.as_ref());
        given
            .cloned()
            .ok_or_else(|| AdminClientError::Usage("give an ID".to_owned()))
    }
}

impl IdArgs {
    /// The given text.
    pub fn id(&self) -> &str {
        let given = self.positional.as_deref().or(self.option.as_deref());
        given.unwrap_or_default()
    }
}
