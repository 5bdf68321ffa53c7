//! weir's messages on standard error.
//!
//! At debug level Pingora and other libraries print whole requests with their credentials, and at higher levels bytes
//! from providers and clients. The configured level therefore applies to weir's own events only. Other crates are shown
//! from warnings on, and not at all where weir reports the same in its own words.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// Libraries of which less is heard than of others, or nothing. Pingora's proxy calls every client that leaves an error and
/// quotes providers' heads; its connections say what weir says of the request; a TLS peer's certificates and alerts are
/// the peer's words.
const QUIET: [(&str, LevelFilter); 6] = [
    ("pingora_proxy", LevelFilter::OFF),
    ("pingora_load_balancing", LevelFilter::OFF),
    ("pingora_core", LevelFilter::ERROR),
    ("pingora_core::apps", LevelFilter::OFF),
    // A provider that sends more than its answer: weir tells of the answer.
    ("pingora_pool", LevelFilter::ERROR),
    ("rustls", LevelFilter::OFF),
];

/// Why diagnostics cannot be set up.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DiagnosticsError {
    /// The level is none of the known ones.
    #[error("log level `{0}` is unknown, use off, error, warn, info, debug or trace")]
    Level(String),
    /// Somebody set up diagnostics before.
    #[error("diagnostics are already set up: {0}")]
    Taken(String),
}

/// Sends events of `tracing` and records of `log` (Pingora's) to standard error, one plain line each. Once per process.
pub(crate) fn init_tracing(level: &str) -> Result<(), DiagnosticsError> {
    tracing_subscriber::fmt()
        .compact()
        .with_ansi(false)
        .with_writer(std::io::stderr)
        .with_env_filter(filter(level)?)
        .try_init()
        .map_err(|error| DiagnosticsError::Taken(error.to_string()))
}

fn filter(level: &str) -> Result<EnvFilter, DiagnosticsError> {
    // Spelled out, because tracing would also take numbers and odd spellings.
    let own = match level {
        "off" => LevelFilter::OFF,
        "error" => LevelFilter::ERROR,
        "warn" => LevelFilter::WARN,
        "info" => LevelFilter::INFO,
        "debug" => LevelFilter::DEBUG,
        "trace" => LevelFilter::TRACE,
        _ => return Err(DiagnosticsError::Level(level.to_owned())),
    };
    let others = own.min(LevelFilter::WARN);
    let mut filter = format!("{others},weir={own}");
    for (library, level) in QUIET {
        let level = level.min(others);
        filter.push_str(&format!(",{library}={level}"));
    }
    Ok(EnvFilter::new(filter))
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn said_at(level: &str) -> String {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .compact()
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .with_env_filter(filter(level).expect("a level"))
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            tracing::trace!(target: "weir::gateway", "own-trace");
            tracing::info!(target: "weir::gateway", "own-info");
            tracing::error!(target: "weir::gateway", "own-error");
            tracing::debug!(target: "pingora_proxy", "theirs-debug");
            tracing::trace!(target: "pingora_core::protocols::http", "theirs-trace");
            tracing::debug!(target: "hyper::proto", "theirs-debug");
            tracing::info!(target: "pingora_core::server", "theirs-info");
            tracing::warn!(target: "pingora_core::protocols::http::v1::common", "quoting-warn");
            tracing::warn!(target: "pingora_pool::connection", "quoting-warn");
            tracing::error!(target: "pingora_core::services::listening", "theirs-error");
            tracing::error!(target: "pingora_core::apps", "quoting-error");
            tracing::error!(target: "pingora_proxy", "quoting-error");
            tracing::warn!(target: "pingora_load_balancing::health_check", "quoting-warn");
            tracing::error!(target: "rustls::common_state", "quoting-error");
            tracing::warn!(target: "redb", "theirs-warn");
        });
        let bytes = lines.0.lock().clone();
        String::from_utf8(bytes).expect("text")
    }

    #[test]
    fn libraries_are_never_heard_below_warnings() {
        let said = said_at("trace");
        assert!(said.contains("own-trace") && said.contains("theirs-warn") && said.contains("theirs-error"));
        assert!(
            !said.contains("theirs-debug") && !said.contains("theirs-trace") && !said.contains("theirs-info"),
            "{said}"
        );
    }

    #[test]
    fn what_weir_says_itself_and_what_quotes_a_peer_is_not_heard_from_libraries() {
        for level in ["info", "trace"] {
            let said = said_at(level);
            assert!(!said.contains("quoting"), "{said}");
        }
    }

    #[test]
    fn a_quieter_level_quietens_the_libraries_too() {
        let said = said_at("error");
        assert!(said.contains("own-error") && said.contains("theirs-error"));
        assert!(!said.contains("info") && !said.contains("warn"), "{said}");
        assert_eq!(said_at("off"), "");
    }

    #[test]
    fn an_unknown_level_is_an_error() {
        for level in ["loud", "3", "", "weir=debug"] {
            assert!(filter(level).is_err(), "{level}");
        }
    }
}
