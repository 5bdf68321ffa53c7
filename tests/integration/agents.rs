//! Coding agents, headless, through the gateway: a turn with the sample provider, in which the agent runs a tool, and whole
//! conversations with strict providers of every protocol ([`cells`]).
//!
//! The prompt orders the provider to answer with a call of the agent's own shell tool; the agent runs it and sends the
//! result; the provider ends the turn with a text that quotes it. Nothing leaves the machine: the agents' telemetry and
//! updates are off, their homes are empty folders, and any proxy they would use for other hosts is a closed port.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value as Json, json};
use tempfile::TempDir;

use crate::harness::node::{Finished, node, node_modules, run};
use crate::harness::sample::SampleProvider;
use crate::harness::tools::{note, skip};
use crate::harness::{CLAUDE_CODE_MODEL, DEEPSEEK_MODEL, GEMINI_MODEL, RESPONSES_MODEL, Weir, WeirBuilder, wait_for};

mod cells;
mod dialogue;
mod host;
mod limits;
mod overflow;
mod sockets;
mod stage;

/// How long one turn may take.
const LIMIT: Duration = Duration::from_secs(60);
/// What the agent's tool does: it leaves a file behind and says a word that stands in no prompt.
const COMMAND: &str = "echo heron | tr a-z A-Z >made-by-the-tool && cat made-by-the-tool";
const TOOL_SAYS: &str = "HERON";

/// One agent: how it is told of the gateway, and how it is asked.
struct Agent {
    model: &'static str,
    provider: &'static str,
    /// The script of its command, below `node_modules`.
    script: &'static str,
    /// Arguments before the prompt; `MODEL` stands for the model.
    arguments: &'static [&'static str],
    /// Settings files below the home folder: name and content.
    files: fn(base_url: &str, key: &str) -> Vec<(&'static str, String)>,
    /// Environment: home folder, base URL, key.
    environment: fn(home: &str, base_url: &str, key: &str) -> Vec<(&'static str, String)>,
    /// The name and the input of its shell tool for a command. An input that is a string is a program, no JSON.
    tool: fn(command: &str) -> (&'static str, Json),
    /// How a conversation goes on.
    later: Later,
}

/// How a conversation goes on after its first prompt.
#[derive(Clone, Copy)]
enum Later {
    /// In a further process, with these arguments before the prompt.
    Process(&'static [&'static str]),
    /// In the same process from the first prompt on: with these arguments it speaks the Agent Client Protocol.
    Session(&'static [&'static str]),
}

/// An agent's home folder with its settings, and the environment of its processes.
struct Home {
    folder: TempDir,
    environment: Vec<(&'static str, String)>,
}

const CLAUDE_CODE: Agent = Agent {
    model: CLAUDE_CODE_MODEL,
    provider: "anthropic",
    // The script that stands in for the one which its postinstall puts in place: no scripts are run here.
    script: "@anthropic-ai/claude-code/cli-wrapper.cjs",
    arguments: &["--model", "MODEL", "--dangerously-skip-permissions", "--print"],
    files: |_, _| Vec::new(),
    environment: |home, base_url, key| {
        vec![
            ("ANTHROPIC_BASE_URL", base_url.to_owned()),
            ("ANTHROPIC_API_KEY", key.to_owned()),
            ("CLAUDE_CONFIG_DIR", format!("{home}/claude")),
            ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1".to_owned()),
            ("DISABLE_AUTOUPDATER", "1".to_owned()),
            ("DISABLE_TELEMETRY", "1".to_owned()),
            ("DISABLE_ERROR_REPORTING", "1".to_owned()),
            // As root it only skips its questions where it is told to be in a sandbox.
            ("IS_SANDBOX", "1".to_owned()),
        ]
    },
    tool: |command| ("Bash", json!({"command": command, "description": "Makes a file"})),
    later: Later::Process(&[
        "--model",
        "MODEL",
        "--dangerously-skip-permissions",
        "--continue",
        "--print",
    ]),
};

const CODEX: Agent = Agent {
    model: RESPONSES_MODEL,
    provider: "openai",
    script: "@openai/codex/bin/codex.js",
    arguments: &[
        "exec",
        "--model",
        "MODEL",
        "--skip-git-repo-check",
        "--dangerously-bypass-approvals-and-sandbox",
    ],
    files: |base_url, _| {
        let settings = format!(
            "model_provider = \"weir\"\ncheck_for_update_on_startup = false\n\
             [analytics]\nenabled = false\n[otel]\nexporter = \"none\"\n\
             [model_providers.weir]\nname = \"weir\"\nbase_url = \"{base_url}/v1\"\nenv_key = \"WEIR_KEY\"\n\
             wire_api = \"responses\"\n"
        );
        vec![("codex/config.toml", settings)]
    },
    environment: |home, _, key| vec![("CODEX_HOME", format!("{home}/codex")), ("WEIR_KEY", key.to_owned())],
    tool: |command| {
        let command = json!({ "cmd": command });
        let program = format!("const result = await tools.exec_command({command}); text(result.output);");
        ("exec", json!(program))
    },
    later: Later::Process(&[
        "exec",
        "--model",
        "MODEL",
        "--skip-git-repo-check",
        "--dangerously-bypass-approvals-and-sandbox",
        "resume",
        "--last",
    ]),
};

const GEMINI_CLI: Agent = Agent {
    model: GEMINI_MODEL,
    provider: "gemini",
    script: "@google/gemini-cli/bundle/gemini.js",
    arguments: &["--model", "MODEL", "--yolo", "--prompt"],
    files: |_, _| {
        let settings = json!({
            "security": {"auth": {"selectedType": "gemini-api-key"}},
            "telemetry": {"enabled": false},
            "privacy": {"usageStatisticsEnabled": false},
            "general": {"enableAutoUpdate": false, "enableAutoUpdateNotification": false},
        });
        vec![(".gemini/settings.json", settings.to_string())]
    },
    environment: |_, base_url, key| {
        vec![
            ("GEMINI_API_KEY", key.to_owned()),
            ("GOOGLE_GEMINI_BASE_URL", base_url.to_owned()),
            ("GEMINI_CLI_TRUST_WORKSPACE", "true".to_owned()),
        ]
    },
    tool: |command| {
        (
            "run_shell_command",
            json!({"command": command, "description": "Makes a file"}),
        )
    },
    // What `--resume` restores is not what was said: the signatures are missing, and each result of a tool is there twice.
    later: Later::Session(&["--model", "MODEL", "--yolo", "--acp"]),
};

impl Agent {
    /// The prompt that leads through the turn.
    fn prompt(&self) -> String {
        let (tool, input) = (self.tool)(COMMAND);
        format!("Make a file, please. [[sample: tool={tool} tool_input={input}]]")
    }

    /// One headless turn in `work` with a tool, with an empty home; `None` when the agent is not installed.
    #[track_caller]
    fn turn(&self, weir: &Weir, key: &str, work: &Path) -> Option<Finished> {
        self.ask(weir, key, work, &self.prompt())
    }

    /// The same with any prompt.
    #[track_caller]
    fn ask(&self, weir: &Weir, key: &str, work: &Path, prompt: &str) -> Option<Finished> {
        self.begin(weir, key, prompt).map(|asked| asked.run(work))
    }

    /// Prepares a turn with any prompt: it does not need the gateway's value any more.
    fn begin(&self, weir: &Weir, key: &str, prompt: &str) -> Option<Asked> {
        let command = self.command()?;
        Some(Asked {
            words: self.words(&command, self.arguments),
            prompt: prompt.to_owned(),
            home: self.home(weir, key),
        })
    }

    /// The words that start it, without arguments; `None` when it is not installed.
    fn command(&self) -> Option<Vec<String>> {
        let (node, modules) = (node()?, node_modules("tests/agents")?);
        let script = modules.join(self.script);
        let needs_node = script.extension().is_some();
        let words = needs_node.then_some(&node).into_iter().chain([&script]);
        script
            .is_file()
            .then(|| words.map(|word| word.display().to_string()).collect())
    }

    /// Its command with these arguments, and the model where they have `MODEL`.
    fn words(&self, command: &[String], arguments: &[&str]) -> Vec<String> {
        let arguments = arguments
            .iter()
            .map(|word| if *word == "MODEL" { self.model } else { word });
        command.iter().cloned().chain(arguments.map(str::to_owned)).collect()
    }

    /// An empty home with its settings, from which it reaches nothing but the gateway.
    fn home(&self, weir: &Weir, key: &str) -> Home {
        let home = TempDir::new().unwrap();
        let base_url = format!("http://{}", weir.gateway);
        for (name, content) in (self.files)(&base_url, key) {
            let file = home.path().join(name);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, content).unwrap();
        }
        let folder = home.path().display().to_string();
        let closed = "http://127.0.0.1:9".to_owned();
        let mut environment = vec![
            ("HOME", folder.clone()),
            ("PATH", "/usr/local/bin:/usr/bin:/bin".to_owned()),
            ("TMPDIR", folder.clone()),
            ("HTTP_PROXY", closed.clone()),
            ("HTTPS_PROXY", closed),
            ("NO_PROXY", "127.0.0.1".to_owned()),
        ];
        environment.extend((self.environment)(&folder, &base_url, key));
        Home {
            folder: home,
            environment,
        }
    }
}

/// An agent that has been told what to do.
struct Asked {
    words: Vec<String>,
    prompt: String,
    home: Home,
}

impl Asked {
    /// Runs the turn in `work`.
    #[track_caller]
    fn run(&self, work: &Path) -> Finished {
        prompted(&self.words, &self.prompt, &self.home, work)
    }
}

/// Runs an agent's command with a prompt as its last word.
#[track_caller]
fn prompted(words: &[String], prompt: &str, home: &Home, work: &Path) -> Finished {
    let words: Vec<&str> = words.iter().map(String::as_str).chain([prompt]).collect();
    run(&words, &home.environment, work, LIMIT)
}

/// Leads `agent` through a turn with a tool and looks at every side of it. weir may refuse none of its requests but
/// those to speak over a websocket.
#[track_caller]
fn finishes_a_turn(agent: &Agent, websockets: Websockets) {
    let sample = SampleProvider::start();
    let weir = WeirBuilder::new()
        .all_providers(&sample.base_url())
        .set("sockets.enabled", websockets != Websockets::Refused)
        .start();
    let key = weir.key();
    let work = TempDir::new().unwrap();
    let Some(finished) = agent.turn(&weir, &key.text, work.path()) else {
        skip!("Node or tests/agents/node_modules is not there: tests/run makes them");
    };
    let told = format!("({:?})\n{}\n{}", finished.took, finished.out, finished.err);
    assert!(finished.status.success(), "{} {told}", finished.status);

    // The tool ran, its result went to the provider, and the provider's last word came back.
    let made = std::fs::read_to_string(work.path().join("made-by-the-tool")).unwrap_or_default();
    assert_eq!(made.trim(), TOOL_SAYS, "{told}");
    let last_word = finished.out.find("The tool says").map(|at| &finished.out[at..]);
    assert!(last_word.is_some_and(|text| text.contains(TOOL_SAYS)), "{told}");

    // Every request succeeded, under this key, and what it cost is what the provider would have billed.
    let bills = sample.bills();
    assert!(bills.len() >= 2, "{bills:?}");
    let (refused, lines) = wait_for("an access line for each answer", || {
        let (refused, mut served): (Vec<Json>, Vec<Json>) = weir
            .access_lines()
            .into_iter()
            .partition(|line| line["refusal"].is_string());
        // weir itself answers the handshake of a socket, and the request that only prepares a conversation on it.
        served.retain(|line| line["provider"].is_string());
        (served.len() >= bills.len()).then_some((refused, served))
    });
    assert_eq!(lines.len(), bills.len(), "{lines:?}");
    match websockets {
        Websockets::NotTried | Websockets::Served => assert!(refused.is_empty(), "{refused:?}"),
        Websockets::Refused => assert_upgrades_refused(&refused),
    }
    let transport = match websockets {
        Websockets::Served => "websocket".into(),
        Websockets::NotTried | Websockets::Refused => Json::Null,
    };
    for line in &lines {
        assert!(
            line["status"].as_u64().is_some_and(|status| status / 100 == 2),
            "{line}"
        );
        assert_eq!(line["outcome"], "ok", "{line}");
        assert_eq!(line["key_id"], key.id.as_str(), "{line}");
        assert_eq!(line["provider"], agent.provider, "{line}");
        assert_eq!(line["model"], agent.model, "{line}");
        assert_eq!(line["stream"], true, "{line}");
        assert_eq!(line["transport"], transport, "{line}");
    }
    let counted = |kind: &str| total(lines.iter().flat_map(|line| usage(line, kind)));
    let billed = |name: &str| total(bills.iter().map(|bill| bill[name].as_u64().unwrap()));
    assert!(
        billed("input_tokens") > 1000 && billed("output_tokens") > 20,
        "{bills:?}"
    );
    assert_eq!(counted("input"), billed("input_tokens"), "{lines:?} {bills:?}");
    assert_eq!(counted("output"), billed("output_tokens"), "{lines:?} {bills:?}");
    note(&format!(
        "agents: {} {:?}, {} requests",
        agent.script,
        finished.took,
        lines.len()
    ));
}

/// Whether the agent first tries to speak over a websocket, and what comes of it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Websockets {
    NotTried,
    Refused,
    Served,
}

/// With 426 Codex falls back at once; any other refusal it tries to overcome six times.
#[track_caller]
fn assert_upgrades_refused(refused: &[Json]) {
    let tries = |status: u16| refused.iter().filter(|line| line["status"] == status).count();
    assert!(
        matches!((tries(426), tries(405), refused.len()), (1, 0, 1) | (0, 1..=7, 1..=7)),
        "{refused:?}"
    );
}

/// With a key weir does not know, `agent` gives up after at most `requests_max` requests, none of which goes further.
#[track_caller]
fn gives_up_with_a_wrong_key(agent: &Agent, requests_max: usize) {
    let sample = SampleProvider::start();
    let weir = Weir::start(&sample.base_url());
    let work = TempDir::new().unwrap();
    let Some(finished) = agent.turn(&weir, "nonsense", work.path()) else {
        skip!("Node or tests/agents/node_modules is not there: tests/run makes them");
    };
    let told = format!("({:?})\n{}\n{}", finished.took, finished.out, finished.err);
    assert!(
        !finished.status.success() && !finished.timed_out(),
        "{} {told}",
        finished.status
    );
    let lines = weir.access_lines_at_least(1);
    assert!(lines.len() <= requests_max, "{lines:?} {told}");
    assert!(lines.iter().all(|line| line["status"] == 401), "{lines:?}");
    assert!(sample.bills().is_empty());
    note(&format!("agents: {} wrong key, {:?}", agent.script, finished.took));
}

fn total(counts: impl Iterator<Item = u64>) -> u64 {
    counts.sum()
}

/// The counts of an access line's usage whose names start with `kind`.
fn usage(line: &Json, kind: &str) -> Vec<u64> {
    let usage = line["usage"].as_object().into_iter().flatten();
    usage
        .filter(|(name, _)| name.starts_with(kind))
        .filter_map(|(_, count)| count.as_u64())
        .collect()
}

#[test]
fn claude_code_finishes_a_turn_with_a_tool() {
    finishes_a_turn(&CLAUDE_CODE, Websockets::NotTried);
}

#[test]
fn claude_code_finishes_a_turn_at_another_provider_by_changing_only_the_model() {
    let agent = Agent {
        model: DEEPSEEK_MODEL,
        provider: "deepseek",
        ..CLAUDE_CODE
    };
    finishes_a_turn(&agent, Websockets::NotTried);
}

#[test]
fn codex_finishes_a_turn_with_a_tool() {
    finishes_a_turn(&CODEX, Websockets::NotTried);
}

#[test]
fn codex_falls_back_when_its_websocket_is_refused() {
    finishes_a_turn(&sockets::CODEX_OVER_SOCKETS, Websockets::Refused);
}

#[test]
fn gemini_cli_finishes_a_turn_with_a_tool() {
    finishes_a_turn(&GEMINI_CLI, Websockets::NotTried);
}

#[test]
fn claude_code_gives_up_at_once_with_a_wrong_key() {
    gives_up_with_a_wrong_key(&CLAUDE_CODE, 1);
}

#[test]
fn codex_gives_up_with_a_wrong_key() {
    // It tries five times more, whatever the answer says.
    gives_up_with_a_wrong_key(&CODEX, 6);
}

#[test]
fn gemini_cli_gives_up_at_once_with_a_wrong_key() {
    gives_up_with_a_wrong_key(&GEMINI_CLI, 1);
}
