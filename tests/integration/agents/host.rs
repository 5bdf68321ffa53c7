//! A provider that plays one side of a conversation with an agent, and is strict: each request has to go on where the one before
//! has ended, with the provider's own identifiers and opaque state in it. It refuses others with 418, and remembers why.

mod beginning;
mod chat;
mod gemini;
mod messages;
mod responses;
mod script;
mod speech;
mod sse;

use std::cmp::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::{Value as Json, json};

use crate::harness::RecordingProvider;
use crate::harness::answer::Answer;
use crate::harness::provider::Recorded;
use beginning::Beginning;
use script::{Entry, ModelAnswer, PROGRAMS, answers, history};

pub(super) use script::{LAST_WORDS, PROMPTS};
pub(super) use speech::Speech;

/// The operator's credential.
pub(super) const SECRET: &str = "secret-in-full";
/// What every answer reports: all input, what of it was read from a cache, all output, and what of it was reasoning.
pub(super) const REPORTED: [u64; 4] = [50, 10, 30, 12];
/// The text of every answer that the script does not have: titles of conversations, and summaries.
pub(super) const ASIDE: &str = "It was about birds.";

/// What a host expects.
#[derive(Clone, Copy)]
pub(super) struct HostTerms {
    pub(super) speech: Speech,
    /// Whether the client speaks the same.
    pub(super) is_native: bool,
    /// The name of its model.
    pub(super) model: &'static str,
    /// The name and the input of the agent's shell tool for a command.
    pub(super) tool: fn(&str) -> (&'static str, Json),
    pub(super) memory: Memory,
    /// The place of the request at which the conversation is longer than the model's context.
    pub(super) full_at: Option<usize>,
}

/// What comes back of earlier turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Memory {
    /// Everything as it was, so that each request begins with the one before.
    Exact,
    /// What was said, without the state of the model's reasoning; the first message changes.
    WithoutState,
    /// Summaries.
    Compacted,
}

/// A running host.
pub(super) struct Host {
    provider: RecordingProvider,
    progress: Arc<Mutex<Progress>>,
}

/// How far the conversation is.
#[derive(Default)]
struct Progress {
    /// The number of requests that offer the agent's tool.
    requests: usize,
    /// The beginning of the last of them.
    beginning: Option<Beginning>,
    faults: Vec<String>,
}

/// The answer to a request.
enum HostReply<'s> {
    /// One of the script.
    Scripted(&'s ModelAnswer),
    Aside,
    /// The conversation is too long.
    Full,
}

impl Host {
    /// Starts one.
    pub(super) fn start(terms: HostTerms) -> Host {
        let progress: Arc<Mutex<Progress>> = Arc::default();
        let (of_host, script) = (Arc::clone(&progress), answers(terms.tool));
        let provider = RecordingProvider::start(move |request, answer| {
            let reply = terms.judge(request, &script, &mut of_host.lock().unwrap());
            match reply {
                Ok(reply) => terms.send(&reply, answer),
                Err(fault) => {
                    let error = json!({"error": {"message": fault, "type": "invalid_request_error"}});
                    send_json(418, &error, answer);
                    of_host.lock().unwrap().faults.push(fault);
                }
            }
        });
        Host { provider, progress }
    }

    /// The base URL for a provider's file.
    pub(super) fn base_url(&self) -> String {
        self.provider.base_url()
    }

    /// The number of all requests.
    pub(super) fn requests(&self) -> usize {
        self.provider.count()
    }

    /// The number of requests that offer the agent's tool.
    pub(super) fn scripted_requests(&self) -> usize {
        self.progress().requests
    }

    /// What it has refused, and why.
    pub(super) fn faults(&self) -> Vec<String> {
        self.progress().faults.clone()
    }

    /// The body of the last request.
    pub(super) fn last_body(&self) -> String {
        String::from_utf8(self.provider.last().body).unwrap()
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap()
    }
}

impl HostTerms {
    /// What to answer to a request, or why it is refused.
    fn judge<'s>(
        &self,
        request: &Recorded,
        script: &'s [ModelAnswer],
        progress: &mut Progress,
    ) -> Result<HostReply<'s>, String> {
        let text = std::str::from_utf8(&request.body).map_err(|error| error.to_string())?;
        let body: Json = serde_json::from_str(text).map_err(|error| error.to_string())?;
        self.check_head(request, &body)?;
        if !self.offers_tool(&body) {
            return Ok(HostReply::Aside);
        }
        let number = progress.requests;
        progress.requests += 1;
        match self.full_at {
            Some(full) if full == number => return Ok(HostReply::Full),
            Some(full) if full < number => return Ok(HostReply::Aside),
            _ => {}
        }
        let answer = script.get(number).ok_or("a request behind the last answer")?;
        if self.memory != Memory::Compacted {
            self.check_history(&body, &script[..number])?;
        }
        if self.memory == Memory::Exact {
            let beginning = Beginning::read(self, text, &body)?;
            if let Some(earlier) = &progress.beginning {
                beginning.check_continues(earlier)?;
            }
            progress.beginning = Some(beginning);
        }
        Ok(HostReply::Scripted(answer))
    }

    fn check_head(&self, request: &Recorded, body: &Json) -> Result<(), String> {
        let path = request.target.split('?').next().unwrap_or_default();
        if path != self.speech.path(self.model) {
            return Err(format!("a request to {}", request.target));
        }
        let credentials = request.header_values("authorization");
        if credentials != [format!("Bearer {SECRET}")] {
            return Err(format!("the credential {credentials:?}"));
        }
        if self.speech == Speech::Gemini {
            return Ok(());
        }
        if body["model"] != self.model || body["stream"] != true {
            return Err(format!("model {}, stream {}", body["model"], body["stream"]));
        }
        Ok(())
    }

    /// Whether the model may call the agent's shell tool: not if it is asked for a title or a summary.
    fn offers_tool(&self, body: &Json) -> bool {
        if forbids_calls(body) {
            return false;
        }
        let (name, input) = (self.tool)("");
        let flat = match input {
            Json::String(_) => format!("{PROGRAMS}__{name}"),
            _ => name.to_owned(),
        };
        let is_offered = |tools: &Json| has_name(tools, &flat) || self.is_native && has_name(tools, name);
        // Codex has some tools in an item of its own.
        let items = body["input"].as_array().into_iter().flatten();
        let added = items.filter(|item| item["type"] == "additional_tools");
        is_offered(&body["tools"]) || added.map(|item| &item["tools"]).any(is_offered)
    }

    fn check_history(&self, body: &Json, answers: &[ModelAnswer]) -> Result<(), String> {
        let mut found = self.speech.entries(body)?;
        let mut expected = history(self.speech, answers);
        if self.memory == Memory::WithoutState {
            for entries in [&mut found, &mut expected] {
                entries.retain(|entry| !matches!(entry, Entry::Thought { .. }));
            }
        }
        for entries in [&mut found, &mut expected] {
            sort_results(entries);
        }
        if found != expected {
            return Err(format!("the conversation {found:#?}\ninstead of {expected:#?}"));
        }
        Ok(())
    }

    fn send(&self, reply: &HostReply<'_>, answer: &mut Answer<'_>) {
        let aside = ModelAnswer::text(ASIDE);
        let said: &ModelAnswer = match reply {
            HostReply::Scripted(scripted) => scripted,
            HostReply::Aside => &aside,
            HostReply::Full => return send_json(400, &self.speech.full(), answer),
        };
        let events = self.speech.events(said, self.model);
        answer.sse();
        let (last, others) = events.split_last().unwrap();
        others.iter().for_each(|event| answer.chunk(event));
        // In one piece with the end: an agent that has read the last event may be gone before the end of the body comes.
        answer.raw(format!("{:x}\r\n{last}\r\n0\r\n\r\n", last.len()).as_bytes());
    }
}

/// Whether the model has tools, but may not call them.
fn forbids_calls(body: &Json) -> bool {
    let choices = [
        &body["tool_choice"],
        &body["tool_choice"]["type"],
        &body["toolConfig"]["functionCallingConfig"]["mode"],
    ];
    let is_none = |choice: &&Json| choice.as_str().is_some_and(|word| word.eq_ignore_ascii_case("none"));
    choices.iter().any(is_none)
}

/// Whether a value has an object with this name.
fn has_name(value: &Json, name: &str) -> bool {
    match value {
        Json::Object(members) => value["name"] == name || members.values().any(|member| has_name(member, name)),
        Json::Array(elements) => elements.iter().any(|element| has_name(element, name)),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => false,
    }
}

fn send_json(status: u16, body: &Json, answer: &mut Answer<'_>) {
    let headers = [("content-type", "application/json")];
    answer.full(status, &headers, body.to_string().as_bytes());
}

/// Sorts the results that follow each other by the ids of their calls: agents run calls at once and send each result as it comes.
fn sort_results(entries: &mut [Entry]) {
    let is_result = |entry: &Entry| matches!(entry, Entry::Result { .. });
    for results in entries.chunk_by_mut(|one, next| is_result(one) && is_result(next)) {
        results.sort_by(|one, other| match (one, other) {
            (Entry::Result { id: one, .. }, Entry::Result { id: other, .. }) => one.cmp(other),
            _ => Ordering::Equal,
        });
    }
}
