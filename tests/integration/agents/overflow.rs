//! What agents do when the provider of a translated model refuses a conversation that is longer than the model's context, and
//! when they shorten one by themselves.

use serde_json::json;

use super::dialogue::{Dialogue, Reply};
use super::host::{ASIDE, HostTerms, Memory, PROMPTS, Speech};
use super::stage::{AgentStage, MODEL};
use super::{Agent, CLAUDE_CODE, CODEX, TOOL_SAYS};
use crate::harness::tools::{rounds, skip};

/// The name of the model at its provider.
const UPSTREAM_MODEL: &str = "large-1";
/// The place of the third turn's first request.
const THIRD_TURN: usize = 4;

/// Codex takes a provider of this name for one that can replace a conversation by a summary, if it is asked to.
const CODEX_OF_OPENAI: Agent = Agent {
    model: MODEL,
    files: |base_url, key| {
        let mut files = (CODEX.files)(base_url, key);
        for (_, settings) in &mut files {
            let named = settings.replace("name = \"weir\"", "name = \"OpenAI\"");
            // Less than an answer of the host reports.
            *settings = format!("model_auto_compact_token_limit = 60\n{named}");
        }
        files
    },
    tool: |command| ("exec_command", json!({ "cmd": command })),
    ..CODEX
};

/// A stage for `agent` whose provider speaks `speech`.
#[track_caller]
fn start(agent: &Agent, speech: Speech, memory: Memory, full_at: Option<usize>) -> AgentStage {
    let terms = HostTerms {
        speech,
        is_native: false,
        model: UPSTREAM_MODEL,
        tool: agent.tool,
        memory,
        full_at,
    };
    AgentStage::start(agent.model, terms)
}

/// The last request has the summary in place of the turns before.
#[track_caller]
fn is_shortened(stage: &AgentStage, reply: &Reply) {
    let faults = stage.host.faults();
    assert!(faults.is_empty(), "{}\n{reply:?}", faults.join("\n"));
    assert!(reply.is_done, "{reply:?}");
    let last = stage.host.last_body();
    assert!(last.contains(ASIDE) && !last.contains(TOOL_SAYS), "{last}\n{reply:?}");
}

/// The first two turns.
#[track_caller]
fn begins(dialogue: &mut Dialogue<'_>, stage: &AgentStage) {
    for prompt in &PROMPTS[..2] {
        let reply = dialogue.ask(prompt);
        let faults = stage.host.faults();
        assert!(reply.is_done && faults.is_empty(), "{}\n{reply:?}", faults.join("\n"));
    }
}

#[test]
fn claude_code_shortens_a_conversation_that_is_too_long_and_goes_on() {
    let agent = Agent {
        model: MODEL,
        ..CLAUDE_CODE
    };
    let providers = [Speech::Responses, Speech::Chat, Speech::Gemini];
    for speech in &providers[..rounds(1, 3)] {
        let stage = start(&agent, *speech, Memory::Exact, Some(THIRD_TURN));
        let Some(mut dialogue) = Dialogue::begin(&agent, &stage.weir, &stage.key) else {
            skip!("Node or tests/agents/node_modules is not there: tests/run makes them");
        };
        begins(&mut dialogue, &stage);
        let reply = dialogue.ask(PROMPTS[2]);
        is_shortened(&stage, &reply);
        assert!(reply.screen.contains(ASIDE), "{reply:?}");
    }
}

/// Codex ends its turn, and shortens the conversation before the next one.
#[test]
fn codex_shortens_a_conversation_that_is_too_long_with_the_next_prompt() {
    let agent = Agent {
        model: MODEL,
        tool: CODEX_OF_OPENAI.tool,
        ..CODEX
    };
    let providers = [Speech::Messages, Speech::Gemini, Speech::Chat];
    for speech in &providers[..rounds(1, 3)] {
        let stage = start(&agent, *speech, Memory::Exact, Some(THIRD_TURN));
        let Some(mut dialogue) = Dialogue::begin(&agent, &stage.weir, &stage.key) else {
            skip!("Node or tests/agents/node_modules is not there: tests/run makes them");
        };
        begins(&mut dialogue, &stage);
        let reply = dialogue.ask(PROMPTS[2]);
        let words = "ran out of room in the model's context window";
        assert!(!reply.is_done && reply.screen.contains(words), "{reply:?}");
        let reply = dialogue.ask(PROMPTS[2]);
        is_shortened(&stage, &reply);
    }
}

/// Codex ends its input with `compaction_trigger`, and gets a summary that weir has asked the model for.
#[test]
fn codex_gets_a_summary_in_place_of_a_conversation() {
    let providers = [Speech::Messages, Speech::Chat, Speech::Gemini];
    for speech in &providers[..rounds(1, 3)] {
        let stage = start(&CODEX_OF_OPENAI, *speech, Memory::Compacted, None);
        let Some(mut dialogue) = Dialogue::begin(&CODEX_OF_OPENAI, &stage.weir, &stage.key) else {
            skip!("Node or tests/agents/node_modules is not there: tests/run makes them");
        };
        let reply = dialogue.ask(PROMPTS[0]);
        is_shortened(&stage, &reply);
    }
}
