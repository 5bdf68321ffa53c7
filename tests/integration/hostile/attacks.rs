//! The attacks of a file, each over a connection of its own, all at the same time.

use std::collections::BTreeMap;
use std::net::TcpStream;

use serde::Deserialize;

use super::attack::{Attack, Ended, Step};
use super::frames::Kind;
use super::{closed, pieces, report};
use crate::harness::{Weir, wait_until};

/// What a file holds.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    case: Vec<Case>,
}

/// One attack, and what has to come of it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Case {
    pub(super) name: String,
    /// The listeners that it is tried at.
    #[serde(default = "both")]
    listeners: Vec<String>,
    pub(super) steps: Vec<Step>,
    /// The status of the last answer over HTTP/1.1; without it there is none.
    status: Option<u16>,
    /// Frames that the server sends.
    #[serde(default)]
    frames: Vec<Kind>,
    /// One of these frames at least is sent.
    #[serde(default)]
    any_of: Vec<Kind>,
    /// What the connection's end is counted as; without it, it is not counted.
    closed_as: Option<String>,
    /// The connection is not ended for this.
    #[serde(default)]
    stays_open: bool,
}

fn both() -> Vec<String> {
    vec!["gateway".to_owned(), "stability".to_owned()]
}

/// The attacks of a family.
pub(super) fn read(family: &str) -> Vec<Case> {
    pieces::file::<Table>(family).case
}

impl Case {
    fn never_reads(&self) -> bool {
        self.steps.iter().any(|step| matches!(step, Step::NeverRead))
    }

    /// Tries it; the connection is returned if it has to stay open.
    #[track_caller]
    pub(super) fn attack(&self, socket: TcpStream, words: &[(&str, &str)]) -> Option<Attack> {
        let mut attack = Attack::over(socket);
        attack.run(&self.steps, words);
        if self.stays_open {
            self.frames.iter().for_each(|frame| attack.wait_for_frame(*frame));
            return Some(attack);
        }
        if self.never_reads() {
            return Some(attack);
        }
        self.assert_ended(&attack.end());
        None
    }

    #[track_caller]
    fn assert_ended(&self, ended: &Ended) {
        assert_eq!(ended.status, self.status, "{}: {ended:?}", self.name);
        for frame in &self.frames {
            assert!(ended.has(*frame), "{}: no {frame:?} in {ended:?}", self.name);
        }
        let has_one = self.any_of.iter().any(|frame| ended.has(*frame));
        assert!(has_one || self.any_of.is_empty(), "{}: {ended:?}", self.name);
    }

    /// What came of it, for the table.
    pub(super) fn told(&self) -> String {
        let mut told = Vec::new();
        told.extend(self.status.map(|status| status.to_string()));
        told.extend(self.frames.iter().map(|frame| format!("{frame:?}")));
        if !self.any_of.is_empty() {
            let names: Vec<_> = self.any_of.iter().map(|frame| format!("{frame:?}")).collect();
            told.push(names.join(" or "));
        }
        told.push(match (&self.closed_as, self.stays_open) {
            (_, true) => "others are served".to_owned(),
            (Some(reason), false) => format!("closed: {reason}"),
            (None, false) => "closed".to_owned(),
        });
        told.join(", ").to_lowercase()
    }
}

/// Tries all of them at once, at each of their listeners, and compares what the listeners have counted.
#[track_caller]
pub(super) fn try_all(family: &str, weir: &Weir, cases: &[Case], words: &[(&str, &str)]) {
    let mut counts: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    let kept: Vec<Option<Attack>> = std::thread::scope(|scope| {
        let mut running = Vec::new();
        for case in cases {
            for listener in &case.listeners {
                if let Some(reason) = &case.closed_as {
                    *counts.entry((listener, reason)).or_default() += 1;
                }
                let address = if listener == "gateway" {
                    weir.gateway
                } else {
                    weir.stability
                };
                running.push(scope.spawn(move || case.attack(TcpStream::connect(address).unwrap(), words)));
            }
        }
        running
            .into_iter()
            .map(|one| one.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    for ((listener, reason), count) in counts {
        wait_until(&format!("{count} closed as {reason} at {listener}"), || {
            closed(weir, listener, reason) >= count
        });
        assert_eq!(closed(weir, listener, reason), count, "{reason} at {listener}");
    }
    drop(kept);
    for case in cases {
        report::came(family, &case.name, case.listeners.len(), &case.told());
    }
}
