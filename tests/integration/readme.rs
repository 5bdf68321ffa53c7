//! The commands of docs/start.md and of README.md, as they stand there.

use std::process::Command;
use std::time::Duration;

use crate::harness::node::{node, node_modules, run};
use crate::harness::request::Wire;
use crate::harness::sample::SampleProvider;
use crate::harness::tools::{repository, skip};
use crate::harness::{Weir, WeirBuilder, wait_for};

const START: &str = include_str!("../../docs/start.md");
const README: &str = include_str!("../../README.md");

/// How long an agent may take for an answer.
const LIMIT: Duration = Duration::from_secs(60);

/// The commands of the step with this number.
fn commands(step: usize) -> String {
    let step = START.split(&format!("\n{step}. ")).nth(1).unwrap();
    step.split("```").nth(1).unwrap().to_owned()
}

#[test]
fn from_the_first_account_to_the_first_answer_by_copy_and_paste() {
    let provider = SampleProvider::start();
    let weir = WeirBuilder::new().provider("anthropic", &provider.base_url()).start();
    // Steps 1 and 2, building and starting, are done: this is the other shell.
    let script = [commands(3), commands(4)].concat();
    let script = script
        .replace("target/release/weir", env!("CARGO_BIN_EXE_weir"))
        .replace("conf/weir.toml", weir.folder().join("weir.toml").to_str().unwrap())
        .replace("127.0.0.1:8080", &weir.gateway.to_string());
    let out = Command::new("bash")
        .args(["-euo", "pipefail", "-c", &script])
        .env_remove("WEIR_KEY")
        .output()
        .unwrap();
    let (said, complained) = (
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr),
    );
    assert!(out.status.success(), "{said}{complained}");
    assert!(
        said.contains("claude-haiku-4-5") && said.contains("\"stop_reason\":\"end_turn\""),
        "{said}{complained}"
    );
}

/// Three lines of the README: they declare a model for another protocol, name weir and the key, and start an agent.
struct AgentOnModel {
    lines: [&'static str; 3],
    /// The agent's protocol.
    wire: Wire,
    /// What weir translates, in the access log.
    translated: &'static str,
}

/// Codex on Claude, and Claude Code on GPT.
fn agents() -> [AgentOnModel; 2] {
    let mut blocks = README.split("```");
    let block = blocks.find(|block| block.contains("translate = ")).unwrap();
    let (codex, claude_code) = block.trim().split_once("\n\n").unwrap();
    let lines = |text: &'static str| -> [&'static str; 3] { text.lines().collect::<Vec<_>>().try_into().unwrap() };
    [
        AgentOnModel {
            lines: lines(codex),
            wire: Wire::Responses,
            translated: "responses->messages",
        },
        AgentOnModel {
            lines: lines(claude_code),
            wire: Wire::Messages,
            translated: "messages->responses",
        },
    ]
}

impl AgentOnModel {
    /// The model that the agent is started with.
    fn model(&self) -> &'static str {
        self.lines[2].split_whitespace().next_back().unwrap()
    }

    /// Runs the first line, and waits until the running weir translates for the model.
    #[track_caller]
    fn declare(&self, weir: &Weir, key: &str) {
        let conf = weir.folder().join("weir.toml");
        let declare = self.lines[0].replace("conf/weir.toml", conf.to_str().unwrap());
        let done = Command::new("bash").args(["-euc", &declare]).status().unwrap();
        assert!(done.success(), "{declare}");
        let request = self.wire.streaming_for(self.model(), key, "hi");
        let answer = wait_for("the model in the agent's protocol", || {
            let answer = weir.exchange(&request);
            answer.header("weir-translation").is_some().then_some(answer)
        });
        assert_eq!((answer.status, answer.complete), (200, true), "{}", answer.text());
    }

    /// How many answers of the model the access log has that were translated for the agent's protocol.
    fn answers(&self, weir: &Weir) -> usize {
        let is_translated = |line: &serde_json::Value| {
            line["translated"] == self.translated && line["model"] == self.model() && line["outcome"] == "ok"
        };
        weir.access_lines().iter().filter(|line| is_translated(line)).count()
    }
}

/// A gateway with the models of Anthropic and OpenAI, both at the sample provider.
fn weir_before(provider: &SampleProvider) -> Weir {
    let base_url = provider.base_url();
    let providers = ["anthropic", "openai"].into_iter();
    let builder = providers.fold(WeirBuilder::new(), |builder, name| builder.provider(name, &base_url));
    builder.start()
}

#[test]
fn a_line_of_the_readme_lets_a_running_weir_serve_a_model_in_another_protocol() {
    let provider = SampleProvider::start();
    let weir = weir_before(&provider);
    let key = weir.key().text;
    for agent in agents() {
        agent.declare(&weir, &key);
        wait_for("the answer in the access log", || {
            (agent.answers(&weir) == 1).then_some(())
        });
    }
}

#[test]
fn codex_on_claude_and_claude_code_on_gpt_by_copy_and_paste() {
    let (Some(node), Some(modules)) = (node(), node_modules("tests/agents")) else {
        skip!("Node or tests/agents/node_modules is not there: tests/run makes them");
    };
    let provider = SampleProvider::start();
    let weir = weir_before(&provider);
    let key = weir.key().text;
    let address = weir.gateway.to_string();
    let home = tempfile::TempDir::new().unwrap();
    std::fs::create_dir(home.path().join(".codex")).unwrap();
    let settings = repository().join("examples/clients/agents/codex-config.toml");
    let settings = std::fs::read_to_string(settings)
        .unwrap()
        .replace("127.0.0.1:8080", &address);
    std::fs::write(home.path().join(".codex/config.toml"), settings).unwrap();
    let folder = home.path().display().to_string();
    let environment = [
        ("HOME", folder.clone()),
        ("TMPDIR", folder),
        ("PATH", "/usr/local/bin:/usr/bin:/bin".to_owned()),
        // The agents reach nothing but weir.
        ("HTTP_PROXY", "http://127.0.0.1:9".to_owned()),
        ("HTTPS_PROXY", "http://127.0.0.1:9".to_owned()),
        ("NO_PROXY", "127.0.0.1".to_owned()),
        ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1".to_owned()),
        ("DISABLE_AUTOUPDATER", "1".to_owned()),
    ];
    // The same commands, headless, with a question.
    let (node, modules) = (node.display(), modules.display());
    let commands = format!(
        "codex() {{ '{node}' '{modules}/@openai/codex/bin/codex.js' exec --skip-git-repo-check \"$@\" 'Hello there'; }}\n\
         claude() {{ '{node}' '{modules}/@anthropic-ai/claude-code/cli-wrapper.cjs' --print \"$@\" 'Hello there'; }}\n"
    );
    for agent in agents() {
        agent.declare(&weir, &key);
        let lines = agent.lines[1..].join("\n");
        let lines = lines.replace("127.0.0.1:8080", &address).replace("weir-...", &key);
        let script = format!("{commands}{lines}\n");
        let finished = run(&["bash", "-euc", &script], &environment, home.path(), LIMIT);
        let told = format!("({:?})\n{}\n{}", finished.took, finished.out, finished.err);
        assert!(finished.status.success(), "{lines} {told}");
        assert!(finished.out.contains("You said"), "{lines} {told}");
        // One answer was for the declaration.
        wait_for("the agent's answer in the access log", || {
            (agent.answers(&weir) >= 2).then_some(())
        });
    }
}
