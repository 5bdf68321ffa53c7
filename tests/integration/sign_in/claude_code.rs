//! The real Claude Code signs in, asks, is refused once when its quota is spent, shows dollars, refreshes and signs out.

use std::path::Path;
use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;

use super::*;
use crate::harness::node::{Finished, node, node_modules, run};
use crate::harness::sample::SampleProvider;
use crate::harness::terminal::Terminal;
use crate::harness::tools::skip;
use crate::harness::{CLAUDE_CODE_MODEL, wait_for, wait_until};

/// How long each thing may take that Claude Code does.
const LIMIT: Duration = Duration::from_secs(120);
const ENTER: &str = "\r";

/// Claude Code with a home of its own, told to sign in to a gateway.
struct ClaudeCode {
    home: TempDir,
    /// Node and the script.
    command: [String; 2],
}

impl ClaudeCode {
    /// None: it is not installed.
    fn new(weir: &Weir) -> Option<ClaudeCode> {
        let (node, modules) = (node()?, node_modules("tests/agents")?);
        let home = TempDir::new().unwrap();
        let settings = json!({
            "forceLoginMethod": "gateway",
            "forceLoginGatewayUrl": format!("http://{}", weir.gateway),
        });
        std::fs::create_dir_all(home.path().join("claude")).unwrap();
        std::fs::create_dir_all(home.path().join("work")).unwrap();
        // What its dialogs ask at the first time, in which No stands first: a key that comes while they are drawn answers that.
        let trusted = json!({"gatewayTrust": {"127.0.0.1": "http-loopback"}});
        let work = home.path().join("work").display().to_string();
        let projects = json!({"projects": {work: {"hasTrustDialogAccepted": true}}});
        for (file, content) in [
            ("settings.json", settings),
            (".credentials.json", trusted),
            (".claude.json", projects),
        ] {
            std::fs::write(home.path().join("claude").join(file), content.to_string()).unwrap();
        }
        let script = modules.join("@anthropic-ai/claude-code/cli-wrapper.cjs");
        let command = [node.display().to_string(), script.display().to_string()];
        Some(ClaudeCode { home, command })
    }

    fn work(&self) -> std::path::PathBuf {
        self.home.path().join("work")
    }

    fn credentials(&self) -> std::path::PathBuf {
        self.home.path().join("claude/.credentials.json")
    }

    fn environment(&self) -> Vec<(&'static str, String)> {
        let home = self.home.path().display().to_string();
        let closed = "http://127.0.0.1:9".to_owned();
        let mut environment = vec![
            ("HOME", home.clone()),
            ("TMPDIR", home.clone()),
            ("CLAUDE_CONFIG_DIR", format!("{home}/claude")),
            ("HTTP_PROXY", closed.clone()),
            ("HTTPS_PROXY", closed),
        ];
        let fixed = [
            ("PATH", "/usr/local/bin:/usr/bin:/bin"),
            ("SHELL", "/bin/sh"),
            ("TERM", "xterm-256color"),
            ("NO_PROXY", "127.0.0.1"),
            ("BROWSER", "/bin/true"),
            ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
            ("DISABLE_AUTOUPDATER", "1"),
            ("DISABLE_TELEMETRY", "1"),
            ("DISABLE_ERROR_REPORTING", "1"),
            // As root it only skips its questions where it is told to be in a sandbox.
            ("IS_SANDBOX", "1"),
        ];
        environment.extend(fixed.map(|(name, value)| (name, value.to_owned())));
        environment
    }

    /// At a terminal. None: there are none.
    fn interactive(&self) -> Option<Terminal> {
        let command = format!("{} --model {CLAUDE_CODE_MODEL}", self.command.join(" "));
        Terminal::start(&command, &self.environment(), &self.work(), LIMIT)
    }

    /// One run without a terminal.
    fn run(&self, arguments: &[&str]) -> Finished {
        let command = self.command.iter().map(String::as_str);
        let words: Vec<&str> = command.chain(arguments.iter().copied()).collect();
        run(&words, &self.environment(), &self.work(), LIMIT)
    }

    fn ask(&self, prompt: &str) -> Finished {
        self.run(&["--model", CLAUDE_CODE_MODEL, "--print", prompt])
    }

    /// What it keeps of its sign-in; null if it has signed out.
    fn signed_in(&self) -> Json {
        let text = std::fs::read_to_string(self.credentials()).unwrap_or_default();
        let kept: Json = serde_json::from_str(&text).unwrap_or_default();
        kept["enterpriseGateway"].clone()
    }

    /// Lets its access token be over, as far as it knows.
    fn age(&self) {
        change(&self.credentials(), |kept| {
            kept["enterpriseGateway"]["expiresAt"] = json!(1000)
        });
    }
}

fn change(file: &Path, with: impl FnOnce(&mut Json)) {
    let mut kept: Json = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    with(&mut kept);
    std::fs::write(file, kept.to_string()).unwrap();
}

/// The code on the screen. The words around it may lack letters: a terminal writes only what has changed.
fn user_code(shown: &str) -> Option<&str> {
    let is_code = |text: &&str| {
        let bytes = text.as_bytes();
        let is_letter = |at: usize| bytes[at].is_ascii_uppercase();
        bytes[4] == b'-' && (0..4).all(is_letter) && (5..9).all(is_letter)
    };
    let windows = (0..shown.len().saturating_sub(8)).filter_map(|at| shown.get(at..at + 9));
    windows.into_iter().find(is_code)
}

/// Leads it from its first start to its prompt; `tab` approves.
#[track_caller]
fn log_in(terminal: &mut Terminal, tab: &mut Tab) {
    terminal.until("Choose the text style");
    terminal.keys(ENTER);
    terminal.until("Enter to connect");
    terminal.keys(ENTER);
    let shown = terminal.until("Waiting for sign-in");
    let code = user_code(&shown).unwrap_or_else(|| panic!("no code in {shown}"));
    let approved = decide(tab, &json!({ "user_code": code }), "approve");
    assert_eq!(approved.status, 200, "{}", approved.text());
    terminal.until("Press Enter to continue");
    terminal.keys(ENTER);
    terminal.until("Security notes");
    terminal.keys(ENTER);
    terminal.until("Cloud gateway");
}

fn refusals(weir: &Weir) -> usize {
    let lines = weir.access_lines();
    lines.iter().filter(|line| line["refusal"] == "quota_exhausted").count()
}

#[test]
fn claude_code_signs_in_asks_shows_dollars_refreshes_and_signs_out() {
    let sample = SampleProvider::start();
    let weir = builder(&sample.base_url()).start();
    let key = weir.key_with(&["--quota-usd", "5", "--reset", "monthly"]);
    let mut tab = owner(&weir, &key);
    let Some(claude) = ClaudeCode::new(&weir) else {
        skip!("Node or tests/agents/node_modules is not there: tests/run makes them");
    };
    let Some(mut terminal) = claude.interactive() else {
        skip!("/usr/bin/script is not there: it is in Debian's bsdutils");
    };
    log_in(&mut terminal, &mut tab);
    assert!(tab.page("/portal").contains("Agents signed in: 1"));
    terminal.keys("Say something.");
    terminal.until("Say something.");
    terminal.keys(ENTER);
    let is_answered =
        |line: &Json| line["key_id"] == key.id.as_str() && line["outcome"] == "ok" && line["operation"] == "messages";
    wait_until("the line of the answer", || weir.access_lines().iter().any(is_answered));
    terminal.keys("/usage");
    terminal.until("/usage");
    terminal.keys(ENTER);
    let usage = terminal.until("spent this month");
    assert!(
        usage.contains("Spendlimit") && usage.contains("/$5.00spentthismonth"),
        "{usage}"
    );
    drop(terminal);

    let before = claude.signed_in();
    claude.age();
    let asked = claude.ask("Say something.");
    let screen = format!("{}{}", asked.out, asked.err);
    assert!(asked.status.success(), "{screen}");
    let after = claude.signed_in();
    for token in ["jwt", "idpRefreshToken"] {
        assert!(
            after[token].is_string() && after[token] != before[token],
            "{token} is a new one"
        );
    }

    weir.cli_json(&["key", "update", &key.id, "--quota-usd", "0"]);
    let (bills, refused) = (sample.bills().len(), refusals(&weir));
    let spent = claude.ask("Say something.");
    let screen = format!("{}{}", spent.out, spent.err);
    assert!(!spent.status.success() && !spent.timed_out(), "{screen}");
    assert!(screen.contains("This API key has used up its quota"), "{screen}");
    wait_for("the line of the refusal", || (refusals(&weir) > refused).then_some(()));
    assert_eq!(
        (refusals(&weir) - refused, sample.bills().len()),
        (1, bills),
        "{screen}"
    );

    let token = after["jwt"].as_str().unwrap();
    assert_eq!(get(&weir, "/web/v1/me", token).status, 200);
    let out = claude.run(&["auth", "logout"]);
    assert!(
        out.status.success() && claude.signed_in().is_null(),
        "{}{}",
        out.out,
        out.err
    );
    wait_until("the token to be over", || get(&weir, "/web/v1/me", token).status == 401);
    assert!(tab.page("/portal").contains("Agents signed in: 0"));
}

#[test]
fn claude_code_signs_in_anew_when_its_key_is_revoked() {
    let weir = builder("http://127.0.0.1:9").start();
    let Some(claude) = ClaudeCode::new(&weir) else {
        skip!("Node or tests/agents/node_modules is not there: tests/run makes them");
    };
    let key = weir.key();
    let tokens = sign_in(&weir, &key);
    let base = format!("http://{}", weir.gateway);
    let kept = json!({
        "gatewayTrust": {"127.0.0.1": "http-loopback"},
        "enterpriseGateway": {
            "url": base,
            "jwt": tokens.access,
            "expiresAt": 1000,
            "tokenEndpoint": format!("{base}/oauth/token"),
            "idpRefreshToken": tokens.refresh,
            "vouchedAtLogin": false,
        },
    });
    std::fs::write(claude.credentials(), kept.to_string()).unwrap();
    weir.cli_json(&["key", "revoke", &key.id]);
    let asked = claude.ask("Say something.");
    let screen = format!("{}{}", asked.out, asked.err);
    assert!(!asked.status.success() && screen.contains("/login"), "{screen}");
    assert!(
        claude.signed_in()["idpRefreshToken"].is_null(),
        "it has dropped what is not good any more"
    );
}
