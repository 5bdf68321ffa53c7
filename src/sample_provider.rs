//! The sample provider: a scripted provider for all three protocols of clients and for `chat/completions`. `weir demo`, tests
//! and benches use it.
//!
//! The sample provider answers any path that ends like a path of a real provider, and accepts any credential. It derives its text
//! from the prompt, counts the tokens, and records in a ledger the amounts that it would bill. Flags, the model's name and a mark
//! in the prompt determine its behaviour: for example the pace, the status, a break, a stall or wrong usage (see
//! [`SampleScript`]).
//!
//! Requests of `chat/completions` are checked strictly. The `code` of the error names the fault.
//!
//! Reading order: [`script`] (the scripted behaviour), `ask` (the request), `answer` (the content of the answer), `messages`,
//! `responses`, `gemini` and `chat` (the answer's form in each protocol), `performance` (the steps of one response), `ledger`,
//! `server`. All modules except the last two are pure.

mod answer;
mod ask;
mod chat;
mod connection;
mod gemini;
mod ledger;
mod messages;
mod performance;
mod responses;
pub(crate) mod script;
mod server;
mod steps;
mod tokens;

use std::{io::Write, net::SocketAddr, path::PathBuf};

use clap::Args;
use tokio::net::TcpListener;

use crate::sample_provider::script::ScriptError;

pub(crate) use crate::sample_provider::script::SampleScript;
pub(crate) use crate::sample_provider::server::serve;

/// The flags of the command `weir sample-provider`.
#[derive(Args, Clone, Debug)]
pub struct SampleProviderArgs {
    /// Address to listen on; port 0 chooses a free port.
    #[arg(long, default_value = "127.0.0.1:9000", value_name = "ADDR")]
    pub listen: SocketAddr,
    /// Append the bill of each request to this file, as JSON lines. A line is written before the bytes that it bills are sent.
    #[arg(long, value_name = "PATH")]
    pub ledger: Option<PathBuf>,
    /// Number of text deltas in each answer (default: as many as the text needs).
    #[arg(long, value_name = "N")]
    pub deltas: Option<usize>,
    /// Size of a text delta in bytes (default: 16).
    #[arg(long, value_name = "N")]
    pub delta_bytes: Option<usize>,
    /// Pause before each delta except the first, in milliseconds (default: 0).
    #[arg(long, value_name = "MS")]
    pub gap_ms: Option<u64>,
    /// Time until the first byte of the response, in milliseconds (default: 0).
    #[arg(long, value_name = "MS")]
    pub ttfb_ms: Option<u64>,
    /// Report fixed token counts instead of counting, and reuse rendered answers. For benchmarks.
    #[arg(long)]
    pub no_token_count: bool,
    /// If the client disconnects, bill only what was generated until then, instead of the complete answer.
    #[arg(long)]
    pub stop_on_disconnect: bool,
    /// Accept only the API key in the environment variable NAME, and answer 401 to any other (default: accept any key).
    #[arg(long, value_name = "NAME")]
    pub require_key_env: Option<String>,
    /// Seed for the words of the answers.
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub seed: u64,
    /// Number of threads that serve requests; 0 means one per core.
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub threads: usize,
}

impl SampleProviderArgs {
    /// Converts the flags to settings. Reads the environment variable that `--require-key-env` names.
    pub fn settings(&self) -> Result<SampleSettings, SampleProviderError> {
        let required_key = match &self.require_key_env {
            None => None,
            Some(name) => match std::env::var(name) {
                Ok(key) if !key.is_empty() => Some(key),
                _ => return Err(SampleProviderError::KeyEnv { name: name.clone() }),
            },
        };
        let script = SampleScript {
            deltas: self.deltas,
            delta_bytes: self.delta_bytes,
            gap_ms: self.gap_ms,
            ttfb_ms: self.ttfb_ms,
            ..SampleScript::default()
        };
        script.check()?;
        Ok(SampleSettings {
            script,
            counting: if self.no_token_count {
                TokenCounting::Fixed
            } else {
                TokenCounting::Text
            },
            on_client_gone: if self.stop_on_disconnect {
                ClientGoneBilling::Stop
            } else {
                ClientGoneBilling::Finish
            },
            required_key,
            ledger: self.ledger.clone(),
            seed: self.seed,
        })
    }
}

/// Serves requests until SIGINT or SIGTERM. Once the server listens, prints the line `sample-provider listening on http://ADDR`
/// to standard output.
pub(crate) async fn run(args: &SampleProviderArgs) -> Result<(), SampleProviderError> {
    let settings = args.settings()?;
    let address = args.listen;
    let listener = TcpListener::bind(address)
        .await
        .map_err(|source| SampleProviderError::Listen { address, source })?;
    let stop = stop_signal()?;
    let bound = listener.local_addr()?;
    let mut stdout = std::io::stdout();
    writeln!(stdout, "sample-provider listening on http://{bound}")?;
    stdout.flush()?;
    serve(listener, settings, stop).await
}

/// Returns a future that completes at SIGINT or SIGTERM. The signal handlers are installed when this function returns.
fn stop_signal() -> std::io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}

/// The settings for [`serve`]. By default, the server accepts any key, counts tokens and writes no ledger.
#[derive(Clone, Default)]
pub struct SampleSettings {
    /// The lowest layer of the script. The layers in the model's name and in the prompt's mark override it.
    pub script: SampleScript,
    /// The source of the token counts.
    pub counting: TokenCounting,
    /// The part of the answer that is billed if the client disconnects.
    pub on_client_gone: ClientGoneBilling,
    /// The only API key that is accepted; `None` to accept any key.
    pub required_key: Option<String>,
    /// The file to which the ledger is appended; `None` for no ledger.
    pub ledger: Option<PathBuf>,
    /// The seed for the words of the answers.
    pub seed: u64,
}

/// The source of the token counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TokenCounting {
    /// The tokens of the texts are counted, with o200k if the feature `exact-tokens` is on. The tokens of long parts are
    /// estimated, and the ledger records that they are estimates.
    #[default]
    Text,
    /// The counts are fixed: 100 input tokens, and one output token per delta. An answer with a fixed number of deltas is
    /// rendered once and reused, including its ids.
    Fixed,
}

/// The part of an answer that the sample provider bills if the client disconnects before the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientGoneBilling {
    /// The complete answer, because generation continues, as it does at real providers.
    #[default]
    Finish,
    /// Only the part that was generated before the client disconnected.
    Stop,
}

/// The reason why the sample provider did not start, or why it stopped.
#[derive(Debug, thiserror::Error)]
pub enum SampleProviderError {
    /// The value of a flag is out of range.
    #[error(transparent)]
    Script(#[from] ScriptError),
    /// The environment variable that `--require-key-env` names is missing or empty.
    #[error("environment variable {name} (--require-key-env) is not set or is empty: set it, or leave the flag out")]
    KeyEnv {
        /// The name of the environment variable.
        name: String,
    },
    /// The server cannot listen on the address.
    #[error("cannot listen on {address}: {source}; choose another address with --listen")]
    Listen {
        /// The configured address.
        address: SocketAddr,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// The ledger's file cannot be opened.
    #[error("cannot open the ledger {}: {source}; check --ledger", path.display())]
    Ledger {
        /// The ledger's path.
        path: PathBuf,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// The runtime, standard output or a signal handler failed.
    #[error("the sample provider failed: {0}")]
    Io(#[from] std::io::Error),
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: SampleProviderArgs,
    }

    fn args(flags: &str) -> SampleProviderArgs {
        let words = std::iter::once("weir").chain(flags.split_whitespace());
        Line::try_parse_from(words).expect("valid flags").args
    }

    #[test]
    fn flags_become_the_lowest_layer_of_the_script() {
        let args = args("--listen 127.0.0.1:0 --deltas 20 --delta-bytes 12 --gap-ms 5 --ttfb-ms 9 --no-token-count");
        let Ok(settings) = args.settings() else {
            panic!("valid settings")
        };
        let expected = SampleScript {
            deltas: Some(20),
            delta_bytes: Some(12),
            gap_ms: Some(5),
            ttfb_ms: Some(9),
            ..SampleScript::default()
        };
        assert_eq!((settings.script, settings.counting), (expected, TokenCounting::Fixed));
        assert_eq!(settings.on_client_gone, ClientGoneBilling::Finish);
    }

    #[test]
    fn flags_out_of_range_and_unset_variables_are_refused() {
        assert!(args("--delta-bytes 0").settings().is_err());
        let Err(error) = args("--require-key-env WEIR_TEST_UNSET_VARIABLE").settings() else {
            panic!("refused")
        };
        assert!(error.to_string().contains("WEIR_TEST_UNSET_VARIABLE"), "{error}");
    }
}
