//! The only place where concrete types meet.

pub mod catalogue;
pub mod demo;
pub mod gateway_service;
pub mod parts;
pub mod server;
pub mod signals;
pub mod store;
pub mod trust;

use std::{fmt::Display, path::PathBuf};

use serde_json::json;

use crate::{access_log, config::Config};

/// Why weir does not serve.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration or a rule file is wrong: exit code 78.
    #[error("{0}")]
    Configuration(String),
    /// An address or a socket cannot be taken.
    #[error("cannot listen: {0}")]
    Listen(String),
    /// Something else that is needed cannot be had.
    #[error("{what}: {why}")]
    Failed {
        /// What.
        what: &'static str,
        /// What the system or the part itself said.
        why: String,
    },
}

impl StartError {
    fn failed(what: &'static str, why: impl Display) -> Self {
        Self::Failed { what, why: why.to_string() }
    }
}

/// `weir serve`: runs until a signal ends it. `ready_file` is written once everything listens.
pub fn serve(config: Config, ready_file: Option<PathBuf>) -> Result<(), StartError> {
    diagnostics(&config.log.level.to_string())?;
    let running = server::start(config)?;
    if let Some(path) = ready_file {
        let addresses = &running.addresses;
        let ready = json!({
            "gateway": addresses.gateway.to_string(),
            "ops": addresses.ops.to_string(),
            "admin": addresses.admin,
        });
        // Renamed into place, so that nobody reads half of it.
        let partial = path.with_extension("partial");
        std::fs::write(&partial, ready.to_string())
            .and_then(|()| std::fs::rename(&partial, &path))
            .map_err(|error| StartError::failed("the ready file", error))?;
    }
    running.until_stopped();
    Ok(())
}

/// `weir demo`.
pub fn demo(options: demo::DemoOptions) -> Result<(), StartError> {
    diagnostics("warn")?;
    demo::run(options)
}

/// Log lines, and panics told by their place only: their text may quote what they choked on.
fn diagnostics(level: &str) -> Result<(), StartError> {
    access_log::init_tracing(level).map_err(|error| StartError::failed("diagnostics", error))?;
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        tracing::error!(%place, "a part of weir failed; the request that it worked on has ended");
    }));
    Ok(())
}
