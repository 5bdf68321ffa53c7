//! What is said in a conversation by the user, the model and the tools, in no protocol.

use serde_json::{Value as Json, json};

use super::Speech;
use crate::agents::{COMMAND, TOOL_SAYS};

/// The user's prompts.
pub(in crate::agents) const PROMPTS: [&str; 3] = ["Name the first bird.", "Name two more birds.", "Tell me the end."];
/// What the model says at the end of each turn.
pub(in crate::agents) const LAST_WORDS: [&str; 3] = ["A heron it is.", "They are two more.", "That was all."];

/// The commands that the model has the agent run, and a word that each of them says and that no request has before.
const COMMANDS: [(&str, &str); 3] = [
    (COMMAND, TOOL_SAYS),
    ("echo finch | tr a-z A-Z", "FINCH"),
    ("echo egret | tr a-z A-Z", "EGRET"),
];
/// The model's answers: its reasoning, its text, and the numbers of the commands that it calls for.
const STEPS: [(&str, &str, &[usize]); 5] = [
    ("I look for one.", "", &[0]),
    ("", LAST_WORDS[0], &[]),
    ("Two at once.", "I name both.", &[1, 2]),
    ("I have both.", LAST_WORDS[1], &[]),
    ("Nothing is left.", LAST_WORDS[2], &[]),
];
/// The namespace in which Codex has the tools that take programs.
pub(super) const PROGRAMS: &str = "functions";

/// One answer of the model: the parts that are not empty, in this order.
pub(super) struct ModelAnswer {
    /// The place of the answer in the conversation. Its state and its identifiers are made of it.
    pub(super) number: usize,
    pub(super) thought: &'static str,
    pub(super) text: &'static str,
    pub(super) calls: Vec<ToolCall>,
}

/// A call of the agent's shell tool.
pub(super) struct ToolCall {
    /// The place of the call among all calls of the conversation.
    pub(super) number: usize,
    pub(super) name: &'static str,
    /// A string is a program, no JSON.
    pub(super) input: Json,
    /// The word in the result.
    says: &'static str,
}

/// A part of a conversation as a request has it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Entry {
    /// The prompt of this number.
    Prompt(usize),
    /// The visible reasoning, as far as the protocol carries it back, and its opaque state.
    Thought {
        text: String,
        state: String,
    },
    Text(String),
    Call {
        id: String,
        name: String,
        input: Json,
    },
    /// The result of a call, with those words of [`COMMANDS`] that it has.
    Result {
        id: String,
        says: String,
    },
}

/// The script for this tool.
pub(super) fn answers(tool: fn(&str) -> (&'static str, Json)) -> Vec<ModelAnswer> {
    let call = |number: &usize| {
        let (command, says) = COMMANDS[*number];
        let (name, input) = tool(command);
        ToolCall {
            number: *number,
            name,
            input,
            says,
        }
    };
    let steps = STEPS.iter().enumerate();
    let answers = steps.map(|(number, &(thought, text, calls))| ModelAnswer {
        number,
        thought,
        text,
        calls: calls.iter().map(call).collect(),
    });
    answers.collect()
}

impl ModelAnswer {
    /// An answer of nothing but a text.
    pub(super) fn text(text: &'static str) -> ModelAnswer {
        ModelAnswer {
            number: usize::MAX,
            thought: "",
            text,
            calls: Vec::new(),
        }
    }

    /// The opaque state of its reasoning, about as long as those of providers.
    pub(super) fn state(&self) -> String {
        format!("{}{:04}", "b3BhcXVlIHN0YXRl".repeat(32), self.number)
    }

    /// The answer as a later request has to repeat it, with this state of its reasoning and its calls in this form.
    pub(super) fn entries(&self, state: &str, call: fn(&ToolCall) -> Entry) -> Vec<Entry> {
        let mut entries = Vec::new();
        if !self.thought.is_empty() {
            entries.push(Entry::Thought {
                text: self.thought.to_owned(),
                state: state.to_owned(),
            });
        }
        if !self.text.is_empty() {
            entries.push(Entry::Text(self.text.to_owned()));
        }
        entries.extend(self.calls.iter().map(call));
        entries
    }
}

impl ToolCall {
    /// The name and the arguments of the call of a function. A program is its only argument.
    pub(super) fn as_function(&self) -> (String, Json) {
        match &self.input {
            Json::String(program) => (format!("{PROGRAMS}__{}", self.name), json!({ "input": program })),
            input => (self.name.to_owned(), input.clone()),
        }
    }

    /// The call of a function with this identifier.
    pub(super) fn entry(&self, id: String) -> Entry {
        let (name, input) = self.as_function();
        Entry::Call { id, name, input }
    }
}

/// The conversation that the request after `answers` has, from the first prompt on.
pub(super) fn history(speech: Speech, answers: &[ModelAnswer]) -> Vec<Entry> {
    let mut entries = vec![Entry::Prompt(0)];
    let mut prompts = 1;
    for answer in answers {
        entries.extend(speech.entries_of(answer));
        entries.extend(answer.calls.iter().map(|call| Entry::Result {
            id: speech.call_id(call),
            says: call.says.to_owned(),
        }));
        if answer.calls.is_empty() {
            entries.push(Entry::Prompt(prompts));
            prompts += 1;
        }
    }
    entries
}

/// The prompts that a text of the user has. Agents add texts of their own.
pub(super) fn prompts_in(text: &str) -> Vec<Entry> {
    let found = (0..PROMPTS.len()).filter(|number| text.contains(PROMPTS[*number]));
    found.map(Entry::Prompt).collect()
}

/// The result of a call, from any JSON that has its text.
pub(super) fn result(id: &str, content: &Json) -> Entry {
    let content = content.to_string();
    let words = COMMANDS.iter().map(|(_, says)| *says);
    let found: Vec<&str> = words.filter(|word| content.contains(word)).collect();
    Entry::Result {
        id: id.to_owned(),
        says: found.concat(),
    }
}
