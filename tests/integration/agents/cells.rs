//! Each agent with a provider of each protocol: a conversation of three turns with a call of a tool, two calls at once and
//! reasoning, whose opaque state the provider wants back. The provider checks that each request begins with the one before.

use serde_json::{Value as Json, json};

use super::dialogue::Dialogue;
use super::host::{HostTerms, LAST_WORDS, Memory, PROMPTS, REPORTED, Speech};
use super::stage::{AgentStage, MODEL, PROVIDER};
use super::{Agent, CLAUDE_CODE, CODEX, GEMINI_CLI, Later, TOOL_SAYS};
use crate::harness::books::{INPUT, cost};
use crate::harness::tools::{note, rounds, skip};
use crate::harness::{RESPONSES_MODEL, wait_for};

/// The same model at a provider of another protocol than the client's.
const UPSTREAM_MODEL: &str = "large-1";
/// The number of answers of the script.
const ANSWERS: usize = 5;
/// What [`REPORTED`] costs at the stage's prices, in nano-USD.
const CHARGE: i64 = 40 * 1_000 + 10 * 100 + 30 * 10_000;

const CLAUDE_CODE_ELSEWHERE: Agent = Agent {
    model: MODEL,
    ..CLAUDE_CODE
};

/// For a model that it does not know, Codex has tools with JSON, and none that takes programs.
const CODEX_ELSEWHERE: Agent = Agent {
    model: MODEL,
    tool: |command| ("exec_command", json!({ "cmd": command })),
    ..CODEX
};

const GEMINI_CLI_ELSEWHERE: Agent = Agent {
    model: MODEL,
    ..GEMINI_CLI
};

/// opencode speaks the protocol of the package that its settings name for a provider.
const OPENCODE: Agent = Agent {
    model: MODEL,
    provider: PROVIDER,
    script: OPENCODE_PROGRAM,
    arguments: &["run"],
    files: |base_url, _| opencode_settings("@ai-sdk/anthropic", base_url),
    environment: |_, _, key| {
        vec![
            ("WEIR_KEY", key.to_owned()),
            ("OPENCODE_DISABLE_AUTOUPDATE", "1".to_owned()),
            ("OPENCODE_DISABLE_MODELS_FETCH", "1".to_owned()),
            ("OPENCODE_DISABLE_LSP_DOWNLOAD", "1".to_owned()),
            // It would install a package for plugins.
            ("npm_config_offline", "true".to_owned()),
        ]
    },
    tool: |command| ("bash", json!({"command": command, "description": "Makes a file"})),
    later: Later::Session(&["acp"]),
};

const OPENCODE_OVER_RESPONSES: Agent = Agent {
    files: |base_url, _| opencode_settings("@ai-sdk/openai", base_url),
    ..OPENCODE
};

/// Its program below `node_modules`. For these processors it needs no newer instructions.
const OPENCODE_PROGRAM: &str = if cfg!(target_arch = "aarch64") {
    "opencode-linux-arm64/bin/opencode"
} else {
    "opencode-linux-x64-baseline/bin/opencode"
};

fn opencode_settings(package: &str, base_url: &str) -> Vec<(&'static str, String)> {
    let model = json!({
        "name": MODEL,
        "tool_call": true,
        "reasoning": true,
        "limit": {"context": 200_000, "output": 64_000},
    });
    let provider = json!({
        "name": "weir",
        "npm": package,
        "options": {"baseURL": format!("{base_url}/v1"), "apiKey": "{env:WEIR_KEY}"},
        "models": {MODEL: model},
    });
    let settings = json!({
        "autoupdate": false,
        "share": "disabled",
        "enabled_providers": ["weir"],
        "model": format!("weir/{MODEL}"),
        "provider": {"weir": provider},
    });
    vec![(".config/opencode/opencode.json", settings.to_string())]
}

/// Leads `agent`, which speaks `client`, through the conversation with the first `count` of these providers, each on a stage of
/// its own.
#[track_caller]
fn converses(agent: &Agent, client: Speech, providers: [Speech; 4], count: usize) {
    for speech in &providers[..count] {
        let is_native = *speech == client;
        let terms = HostTerms {
            speech: *speech,
            is_native,
            // Claude Code forgets the reasoning of a model that calls itself otherwise.
            model: if is_native { agent.model } else { UPSTREAM_MODEL },
            tool: agent.tool,
            memory: Memory::Exact,
            full_at: None,
        };
        let stage = AgentStage::start(agent.model, terms);
        let Some(dialogue) = Dialogue::begin(agent, &stage.weir, &stage.key) else {
            skip!("Node or tests/agents/node_modules is not there: tests/run makes them");
        };
        finishes_the_script(dialogue, &stage);
        is_charged(&stage, agent.model);
        is_translated(&stage, (!is_native).then_some((client, *speech)));
    }
}

/// The three turns.
#[track_caller]
fn finishes_the_script(mut dialogue: Dialogue<'_>, stage: &AgentStage) {
    for (prompt, last_words) in PROMPTS.iter().zip(LAST_WORDS) {
        let reply = dialogue.ask(prompt);
        let faults = stage.host.faults();
        assert!(faults.is_empty(), "{}\n{reply:?}", faults.join("\n"));
        assert!(reply.is_done && reply.screen.contains(last_words), "{reply:?}");
    }
    let made = std::fs::read_to_string(dialogue.file("made-by-the-tool")).unwrap_or_default();
    assert_eq!(made.trim(), TOOL_SAYS);
    assert_eq!(stage.host.scripted_requests(), ANSWERS);
}

/// Every request is charged as the provider has reported it, whatever the client speaks.
#[track_caller]
fn is_charged(stage: &AgentStage, model: &str) {
    for row in stage.weir.books(stage.host.requests()).rows {
        let count = |name: &str| row[name].as_u64().unwrap_or(0);
        let input: u64 = INPUT.iter().map(|name| count(name)).sum();
        let reasoning = count("output_reasoning");
        let output = count("output_text") + reasoning;
        assert_eq!([input, count("cache_read"), output, reasoning], REPORTED, "{row}");
        assert_eq!(
            (cost(&row), &row["usage_source"]),
            (CHARGE, &"reported".into()),
            "{row}"
        );
        assert_eq!(
            (&row["model"], &row["provider"]),
            (&model.into(), &PROVIDER.into()),
            "{row}"
        );
    }
}

/// The access log names this translation, or none.
#[track_caller]
fn is_translated(stage: &AgentStage, pair: Option<(Speech, Speech)>) {
    let lines = wait_for("an access line for each request", || {
        let lines = stage.weir.access_lines();
        (lines.len() >= stage.host.requests()).then_some(lines)
    });
    let label = pair.map(|(from, to)| format!("{}->{}", from.name(), to.name()));
    for line in &lines {
        assert_eq!(line["translated"].as_str(), label.as_deref(), "{line}");
    }
    // What a conversation adds to the client's requests: carriers of opaque state are among it.
    let size = |line: &Json| line["request_bytes"].as_u64().unwrap_or(0);
    let sizes: Vec<u64> = lines.iter().map(size).collect();
    let losses = lines.last().map(|line| line["losses"].to_string());
    note(&format!("agents: {label:?}, requests of {sizes:?} bytes, {losses:?}"));
}

#[test]
fn claude_code_converses_over_every_protocol() {
    let providers = [Speech::Responses, Speech::Chat, Speech::Gemini, Speech::Messages];
    converses(&CLAUDE_CODE_ELSEWHERE, Speech::Messages, providers, rounds(1, 4));
}

#[test]
fn codex_converses_over_every_protocol() {
    let providers = [Speech::Chat, Speech::Messages, Speech::Gemini, Speech::Responses];
    converses(&CODEX_ELSEWHERE, Speech::Responses, providers, rounds(1, 4));
}

#[test]
fn codex_converses_over_every_protocol_with_the_tools_of_its_own_models() {
    let agent = Agent {
        model: RESPONSES_MODEL,
        ..CODEX
    };
    let providers = [Speech::Messages, Speech::Chat, Speech::Gemini, Speech::Responses];
    converses(&agent, Speech::Responses, providers, rounds(1, 4));
}

#[test]
fn gemini_cli_converses_over_every_protocol() {
    let providers = [Speech::Messages, Speech::Responses, Speech::Chat, Speech::Gemini];
    converses(&GEMINI_CLI_ELSEWHERE, Speech::Gemini, providers, rounds(1, 4));
}

#[test]
fn opencode_converses_over_every_protocol() {
    let providers = [Speech::Gemini, Speech::Chat, Speech::Responses, Speech::Messages];
    converses(&OPENCODE, Speech::Messages, providers, rounds(1, 4));
}

#[test]
fn opencode_converses_over_every_protocol_as_a_client_of_responses() {
    let providers = [Speech::Messages, Speech::Gemini, Speech::Chat, Speech::Responses];
    converses(&OPENCODE_OVER_RESPONSES, Speech::Responses, providers, rounds(0, 4));
}

/// What `--resume` restores has no signatures, and each result of a tool twice.
#[test]
fn gemini_cli_resumes_a_recorded_conversation_with_a_model_of_another_protocol() {
    let agent = Agent {
        model: MODEL,
        later: Later::Process(&["--model", "MODEL", "--yolo", "--resume", "latest", "--prompt"]),
        ..GEMINI_CLI
    };
    let providers = [Speech::Chat, Speech::Messages, Speech::Responses];
    for speech in &providers[..rounds(0, 3)] {
        let terms = HostTerms {
            speech: *speech,
            is_native: false,
            model: UPSTREAM_MODEL,
            tool: agent.tool,
            memory: Memory::WithoutState,
            full_at: None,
        };
        let stage = AgentStage::start(MODEL, terms);
        let Some(dialogue) = Dialogue::begin(&agent, &stage.weir, &stage.key) else {
            skip!("Node or tests/agents/node_modules is not there: tests/run makes them");
        };
        finishes_the_script(dialogue, &stage);
    }
}
