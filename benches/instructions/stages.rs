//! Where the instructions of a request go: Pingora's hooks, and what is around them.

use crate::profile::Threads;

/// A part of a request's way.
pub(crate) struct Stage {
    /// What the table calls it.
    pub(crate) name: &'static str,
    /// Its functions have all of these in their names.
    functions: &'static [&'static str],
    /// Stands within the stage before it.
    pub(crate) within: bool,
}

const HOOK: &str = "for weir::gateway::parts::Gateway>::";

/// The stages in a request's order. What the compiler makes a part of another function has no row of its own.
pub(crate) const STAGES: [Stage; 14] = [
    hook("first look at the head", &[HOOK, "::early_request_filter::{{closure}}"]),
    hook(
        "intake: head, key, body, admission",
        &[HOOK, "::request_filter::{{closure}}"],
    ),
    within("scan", &["weir::domain::wire::json_scan::Scanner", "::advance"]),
    within(
        "admission, with its record",
        &["weir::money::billing::admission::", "Billing>::admit"],
    ),
    hook("place and credential", &[HOOK, "::upstream_peer::{{closure}}"]),
    hook("connected", &[HOOK, "::connected_to_upstream::{{closure}}"]),
    hook("upstream head", &[HOOK, "::upstream_request_filter::{{closure}}"]),
    hook("upstream body", &[HOOK, ">::request_body_filter::{{closure}}"]),
    hook("answer's head", &[HOOK, "response_filter::{{closure}}"]),
    hook("answer's body, charge", &[HOOK, ">::response_body_filter"]),
    within(
        "reading the answer",
        &["weir::domain::wire::protocol::observer::Observer::push"],
    ),
    within(
        "what it has used",
        &["weir::domain::wire::protocol::observer::Observer::observed"],
    ),
    within("charge, with its record", &["weir::gateway::forward::Forward::settle"]),
    hook("end: log line, metrics", &[HOOK, "::logging::{{closure}}"]),
];

/// The records of both, which stand in the rows of admission and charge.
pub(crate) const RECORDS: &[&str] = &["weir::journal::handle::Journal::write"];

/// Stands for everything that serves a connection.
pub(crate) const SERVING: &[&str] = &["as pingora_core::apps::ServerApp>::process_new::{{closure}}"];

/// Stands for Pingora's way of a request, with the hooks.
pub(crate) const PROXYING: &[&str] = &["as pingora_core::apps::HttpServerApp>::process_new_http::{{closure}}"];

const fn hook(name: &'static str, functions: &'static [&'static str]) -> Stage {
    Stage {
        name,
        functions,
        within: false,
    }
}

const fn within(name: &'static str, functions: &'static [&'static str]) -> Stage {
    Stage {
        name,
        functions,
        within: true,
    }
}

impl Stage {
    /// Its instructions; 0 where the compiler has made it a part of another function.
    pub(crate) fn of(&self, threads: &Threads) -> u64 {
        threads.of(self.functions)
    }
}
