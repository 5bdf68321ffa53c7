//! The WebSocket clients of OpenAI's SDKs, through the gateway, to the sample provider. The tests themselves are in `tests/sdk/`.

use std::process::{Command, Stdio};
use std::time::Duration;

use crate::harness::node::{node, node_modules, run};
use crate::harness::sample::SampleProvider;
use crate::harness::tools::{python, repository, skip};
use crate::harness::{DEEPSEEK_MODEL, GEMINI_MODEL, MESSAGES_MODEL, RESPONSES_MODEL, Weir, WeirBuilder};

/// How long a whole test file may take.
const LIMIT: Duration = Duration::from_secs(120);

/// A gateway, one whose sockets soon reach their age, and the provider of both.
struct Stage {
    sample: SampleProvider,
    weir: Weir,
    short_lived: Weir,
}

impl Stage {
    fn start() -> Stage {
        let sample = SampleProvider::start();
        let weir = Weir::start(&sample.base_url());
        let short_lived = WeirBuilder::new()
            .all_providers(&sample.base_url())
            .set("sockets.lifetime_seconds", 3)
            .start();
        Stage {
            sample,
            weir,
            short_lived,
        }
    }

    /// What the tests find in their environment.
    fn environment(&self) -> Vec<(&'static str, String)> {
        let url = |weir: &Weir| format!("http://{}", weir.gateway);
        let key = self.weir.key().text;
        vec![
            ("WEIR_BASE_URL", url(&self.weir)),
            ("WEIR_PROVIDER_URL", self.sample.base_url()),
            ("WEIR_LEDGER", self.sample.ledger_path().display().to_string()),
            ("WEIR_LIMITED_KEY", key.clone()),
            ("WEIR_KEY", key),
            ("WEIR_SHORT_LIVED_URL", url(&self.short_lived)),
            ("WEIR_SHORT_LIVED_KEY", self.short_lived.key().text),
            ("WEIR_MESSAGES_MODEL", MESSAGES_MODEL.to_owned()),
            ("WEIR_DEEPSEEK_MODEL", DEEPSEEK_MODEL.to_owned()),
            ("WEIR_RESPONSES_MODEL", RESPONSES_MODEL.to_owned()),
            ("WEIR_GEMINI_MODEL", GEMINI_MODEL.to_owned()),
            ("NO_PROXY", "*".to_owned()),
        ]
    }
}

#[test]
fn the_python_sdk_speaks_over_sockets() {
    let Some(python) = python(".venv") else {
        skip!(".venv is not there: tests/run makes it");
    };
    let stage = Stage::start();
    let output = Command::new(python)
        .current_dir(repository().join("tests/sdk"))
        .args([
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "--no-header",
            "test_sockets.py",
        ])
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .envs(stage.environment())
        .env_remove("OPENAI_BASE_URL")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    assert!(output.status.success(), "{}\n{}", said[0], said[1]);
}

#[test]
fn the_node_sdk_speaks_over_sockets() {
    let (Some(node), Some(_)) = (node(), node_modules("tests/sdk/node")) else {
        skip!("Node or tests/sdk/node/node_modules is not there: tests/run makes them");
    };
    let stage = Stage::start();
    let node = node.display().to_string();
    let words = [node.as_str(), "--test", "--test-reporter=spec", "sockets.test.js"];
    let folder = repository().join("tests/sdk/node");
    let finished = run(&words, &stage.environment(), &folder, LIMIT);
    assert!(finished.status.success(), "{}\n{}", finished.out, finished.err);
    let passed = finished.out.lines().find(|line| line.contains(" pass "));
    assert!(passed.is_some_and(|line| !line.ends_with(" 0")), "{}", finished.out);
}
