//! A conversation with one agent, which goes on in the agent's own way.

use std::path::PathBuf;

use tempfile::TempDir;

use super::{Agent, Home, LIMIT, Later, prompted};
use crate::harness::Weir;
use crate::harness::acp::AcpAgent;

/// A conversation in a folder of its own.
pub(super) struct Dialogue<'a> {
    /// Ends before its folders go.
    session: Option<AcpAgent>,
    agent: &'a Agent,
    command: Vec<String>,
    home: Home,
    work: TempDir,
    prompts: usize,
}

/// What came of a prompt.
#[derive(Debug)]
pub(super) struct Reply {
    /// Whether the agent has ended its turn without an error.
    pub(super) is_done: bool,
    /// All that it has shown.
    pub(super) screen: String,
}

impl<'a> Dialogue<'a> {
    /// A conversation without a prompt; `None` when the agent is not installed.
    pub(super) fn begin(agent: &'a Agent, weir: &Weir, key: &str) -> Option<Dialogue<'a>> {
        Some(Dialogue {
            session: None,
            agent,
            command: agent.command()?,
            home: agent.home(weir, key),
            work: TempDir::new().unwrap(),
            prompts: 0,
        })
    }

    /// The next prompt, and the agent's whole turn.
    #[track_caller]
    pub(super) fn ask(&mut self, prompt: &str) -> Reply {
        self.prompts += 1;
        match self.agent.later {
            Later::Process(later) => {
                let arguments = match self.prompts {
                    1 => self.agent.arguments,
                    _ => later,
                };
                let words = self.agent.words(&self.command, arguments);
                let finished = prompted(&words, prompt, &self.home, self.work.path());
                Reply {
                    is_done: finished.status.success(),
                    screen: format!("({:?})\n{}\n{}", finished.took, finished.out, finished.err),
                }
            }
            Later::Session(arguments) => {
                let mut session = self.session.take().unwrap_or_else(|| self.open(arguments));
                let ended = session.ask(prompt);
                self.session = Some(session);
                Reply {
                    is_done: ended.is_ok(),
                    screen: ended.unwrap_or_else(|error| error),
                }
            }
        }
    }

    #[track_caller]
    fn open(&self, arguments: &[&str]) -> AcpAgent {
        let words = self.agent.words(&self.command, arguments);
        let errors = self.home.folder.path().join("errors-of-the-session");
        AcpAgent::start(&words, &self.home.environment, self.work.path(), &errors, LIMIT)
    }

    /// A file in the folder of the conversation.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.work.path().join(name)
    }
}
