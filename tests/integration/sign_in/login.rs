//! `weir login`, `weir token` and `weir logout`, as people run them on their machines.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::*;
use crate::harness::certificates::{Authority, Kind};
use crate::harness::process::Process;
use crate::harness::wait_for;

/// A machine with a home of its own.
struct Machine {
    home: tempfile::TempDir,
    logins: Cell<u32>,
}

impl Machine {
    fn new() -> Machine {
        let home = tempfile::tempdir().unwrap();
        Machine {
            home,
            logins: Cell::default(),
        }
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command
            .args(words)
            .env_remove("XDG_CONFIG_HOME")
            .env("HOME", self.home.path());
        command
    }

    fn run(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    /// Its one line.
    #[track_caller]
    fn token(&self) -> String {
        let output = self.run(&["token"]);
        assert!(output.status.success(), "{}", said(&output));
        let text = String::from_utf8(output.stdout).unwrap();
        text.strip_suffix('\n').unwrap().to_owned()
    }

    /// Begins to sign in, and gives the code that is shown.
    #[track_caller]
    fn login(&self, words: &[&str]) -> (Process, Json) {
        let number = self.logins.replace(self.logins.get() + 1);
        let login = Process::start(&self.command(words), self.home.path(), &format!("login{number}"));
        let code = wait_for("a code to approve", || {
            let out = login.out();
            let (_, behind) = out.split_once("approve the code ")?;
            Some(behind.split_once(' ')?.0.to_owned())
        });
        assert!(login.out().contains("/portal/device?user_code="), "{}", login.out());
        (login, serde_json::json!({ "user_code": code }))
    }

    fn file(&self) -> PathBuf {
        self.home.path().join(".config/weir/sign-in.json")
    }

    /// Its token has ended long ago.
    fn age(&self) {
        let mut kept: Json = serde_json::from_slice(&std::fs::read(self.file()).unwrap()).unwrap();
        kept["expires_at"] = 1.into();
        std::fs::write(self.file(), kept.to_string()).unwrap();
    }
}

fn said(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

#[track_caller]
fn refused(output: &Output, words: &str) {
    assert_eq!(output.status.code(), Some(1), "{}", said(output));
    assert!(said(output).contains(words), "{}", said(output));
}

fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn a_machine_is_signed_in_has_tokens_and_is_signed_out() {
    let (_provider, weir) = served();
    let (key, machine) = (weir.key(), Machine::new());
    refused(&machine.run(&["token"]), "run weir login URL");
    let base = format!("http://{}", weir.gateway);
    let (mut login, begun) = machine.login(&["login", &base]);
    assert_eq!(decide(&mut owner(&weir, &key), &begun, "approve").status, 200);
    assert!(login.wait_ended().success(), "{}", login.err());
    let token = machine.token();
    assert_eq!(ask(&weir, &token).status, 200);
    assert_eq!(machine.token(), token, "as long as it is good");
    assert_eq!(mode(&machine.file()), 0o600);
    assert!(!login.out().contains(&token), "{}", login.out());

    // One that ends is replaced, once, whoever asks.
    machine.age();
    let asking: Vec<_> = (0..4)
        .map(|_| {
            let mut command = machine.command(&["token"]);
            std::thread::spawn(move || command.output().unwrap())
        })
        .collect();
    let told: Vec<String> = asking.into_iter().map(|one| said(&one.join().unwrap())).collect();
    let next = machine.token();
    assert!(next != token && told.iter().all(|one| one.trim() == next), "{told:?}");
    assert_eq!(ask(&weir, &next).status, 200);

    let gone = machine.run(&["logout"]);
    assert!(gone.status.success(), "{}", said(&gone));
    assert!(!machine.file().exists());
    assert_eq!(ask(&weir, &next).status, 401);
    refused(&machine.run(&["logout"]), "not signed in");
}

#[test]
fn who_is_refused_or_signed_out_from_afar_is_told_what_to_do() {
    let (_provider, weir) = served();
    let (key, machine) = (weir.key(), Machine::new());
    let base = format!("http://{}", weir.gateway);
    let (mut login, begun) = machine.login(&["login", &base]);
    assert_eq!(decide(&mut owner(&weir, &key), &begun, "refuse").status, 200);
    assert!(!login.wait_ended().success());
    assert!(login.err().contains("the sign-in was refused"), "{}", login.err());
    assert!(!machine.file().exists());

    let (mut login, begun) = machine.login(&["login", &base]);
    assert_eq!(decide(&mut owner(&weir, &key), &begun, "approve").status, 200);
    assert!(login.wait_ended().success(), "{}", login.err());
    weir.cli_json(&["sign-in", "end", &key.id]);
    machine.age();
    refused(&machine.run(&["token"]), &format!("run weir login {base}"));
}

#[test]
fn a_gateway_that_signs_nobody_in_and_an_address_in_the_clear_are_told() {
    let weir = WeirBuilder::new().start();
    let machine = Machine::new();
    let base = format!("http://{}", weir.gateway);
    refused(&machine.run(&["login", &base]), "[sign_in] enabled is not true");
    refused(&machine.run(&["login", "http://weir.example"]), "use https://HOST");
    refused(&machine.run(&["login", "http://127.0.0.1:9"]), "cannot connect");
}

#[test]
fn a_gateway_is_verified_by_the_named_authorities() {
    let authority = Authority::new();
    let files = authority.files("gateway", &["localhost"], Kind::Ecdsa);
    let provider = RecordingProvider::answering(ANSWER);
    let weir = builder(&provider.base_url())
        .set("gateway.tls.certificate", vec![files.setting()])
        .start();
    let machine = Machine::new();
    let base = format!("https://localhost:{}", weir.gateway.port());
    refused(&machine.run(&["login", &base]), "cannot connect");
    let ca = authority.ca_file();
    let words = ["login", &base, "--ca-file", ca.to_str().unwrap()];
    let (login, begun) = machine.login(&words);
    assert!(login.out().contains(&base), "{}", login.out());
    drop((login, begun));
}
