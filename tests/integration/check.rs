//! `weir check` tells every mistake at once: file, line and key, also for scripts.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value as Json, json};
use tempfile::TempDir;

use crate::harness::certificates::{Authority, Kind};

/// The exit code of a configuration that cannot be used (sysexits.h).
const EX_CONFIG: i32 = 78;

const CONF: &str = r#"[gateway]
listen = 5
json_depth_max = 0
keepalive_secnds = 3
[upstream]
ca_file = "nowhere.pem"
[rules]
shipped = false
folder = "rules"
[prices]
file = "prices.toml"
[provider.nobody]
enabled = true
[[model]]
name = "house"
providers = ["nobody-else"]
created = "yesterday"
[[model]]
providers = "one"
"#;

const RULES: &str = r#"name = "one"
[auth]
style = "bearer"
secret = "plain"
[endpoints]
mesages = "https://one.example/v1/messages"
responses = "nonsense"
[timeouts]
connect_ms = 0
idle_seconds = "x"
[[body]]
op = "st"
path = "a"
"#;

const PRICES: &str = r#"version = "mine"
[[price]]
name = "m"
tiers = [{ input = 1, output = "x" }]
per_call = 3
"#;

fn check(folder: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command
        .arg("check")
        .args(words)
        .arg("--conf")
        .arg(folder.join("weir.toml"));
    command.env_clear().output().unwrap()
}

fn folder(conf: &str) -> TempDir {
    let folder = TempDir::new().unwrap();
    std::fs::create_dir(folder.path().join("rules")).unwrap();
    for (name, text) in [("weir.toml", conf), ("rules/one.toml", RULES), ("prices.toml", PRICES)] {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

#[test]
fn every_mistake_is_told_with_file_line_and_key() {
    let folder = folder(CONF);
    let output = check(folder.path(), &["--json"]);
    assert_eq!(output.status.code(), Some(EX_CONFIG), "{output:?}");
    let told: Json = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told["ok"], false);
    let errors = told["errors"].as_array().unwrap();
    let places: Vec<(String, u64, String)> = errors
        .iter()
        .map(|error| {
            let file = Path::new(error["file"].as_str().unwrap());
            let name = file.strip_prefix(folder.path()).unwrap().to_str().unwrap().to_owned();
            let key = error["key"].as_str().unwrap().to_owned();
            assert!(!error["message"].as_str().unwrap().is_empty());
            (name, error["line"].as_u64().unwrap(), key)
        })
        .collect();
    let expected = [
        ("prices.toml", 4, "input"),
        ("prices.toml", 4, "output"),
        ("prices.toml", 5, "per_call"),
        ("rules/one.toml", 4, "secret"),
        ("rules/one.toml", 6, "mesages"),
        ("rules/one.toml", 7, "responses"),
        ("rules/one.toml", 9, "connect_ms"),
        ("rules/one.toml", 10, "idle_seconds"),
        ("rules/one.toml", 12, "op"),
        ("weir.toml", 2, "gateway.listen"),
        ("weir.toml", 3, "gateway.json_depth_max"),
        ("weir.toml", 4, "gateway.keepalive_secnds"),
        ("weir.toml", 6, "upstream.ca_file"),
        ("weir.toml", 12, "provider.nobody"),
        ("weir.toml", 16, "model.1.providers"),
        ("weir.toml", 17, "model.1.created"),
        ("weir.toml", 18, "model.2.name"),
        ("weir.toml", 19, "model.2.providers"),
    ]
    .map(|(file, line, key)| (file.to_owned(), line, key.to_owned()));
    assert_eq!(places, expected, "{errors:#?}");

    let output = check(folder.path(), &[]);
    assert_eq!(output.status.code(), Some(EX_CONFIG));
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(text.lines().count(), expected.len(), "{text}");
    assert!(
        !text.contains("plain"),
        "what stands where a secret belongs is not repeated"
    );
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command
        .args(["check", "--conf", "weir.toml"])
        .current_dir(folder.path());
    let output = command.env_clear().output().unwrap();
    let beside = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        beside, text,
        "every file by its whole path, however the first one was named"
    );
}

#[test]
fn a_configuration_that_serves_nothing_is_warned_of() {
    let folder = folder("[gateway]\nlisten = \"127.0.0.1:0\"\n");
    let output = check(folder.path(), &["--json"]);
    assert!(output.status.success(), "{output:?}");
    let told: Json = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&told["ok"], &told["providers_on"]), (&json!(true), &json!(0)));
    let warnings = told["warnings"].as_array().unwrap();
    let nothing = |warning: &&Json| warning.as_str().unwrap().contains("no provider is on");
    assert_eq!(warnings.iter().filter(nothing).count(), 1, "{warnings:?}");

    let on = folder.path().join("secret");
    std::fs::write(&on, "secret-in-full").unwrap();
    let conf = "[provider.openai]\nsecret = \"file:secret\"\n";
    std::fs::write(folder.path().join("weir.toml"), conf).unwrap();
    let output = check(folder.path(), &[]);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("(1 on)") && !text.contains("no provider is on"), "{text}");
}

/// A provider file of an operator's own, with its secret there.
fn own_file(secret: &str) -> String {
    format!(
        "name = \"own\"\n[auth]\nstyle = \"bearer\"\nsecret = \"{secret}\"\n[endpoints]\n\
         messages = \"http://127.0.0.1:9/v1/messages\"\n[[model]]\nname = \"own-model\"\nfree = true\n"
    )
}

#[test]
fn each_translated_model_has_a_line_with_its_pairs_of_protocols() {
    let folder = folder("[rules]\nshipped = false\nfolder = \"rules\"\n");
    let rules = folder.path().join("rules");
    let own = own_file("file:own.key")
        .replace("messages =", "chat_completions =")
        .replace("free = true", "free = true\ntranslate = \"strict\"");
    std::fs::write(rules.join("one.toml"), own).unwrap();
    std::fs::write(rules.join("own.key"), "a-key-of-this-provider\n").unwrap();
    let output = check(folder.path(), &[]);
    let text = String::from_utf8(output.stdout).unwrap();
    let line = "translations of own-model (strict): messages->chat, responses->chat, gemini->chat\n";
    assert!(text.contains(line), "{text}");
    let output = check(folder.path(), &["--json"]);
    let told: Json = serde_json::from_slice(&output.stdout).unwrap();
    let pairs = ["messages", "responses", "gemini"].map(|from| json!({ "from": from, "to": "chat" }));
    let expected = json!([{ "model": "own-model", "mode": "strict", "pairs": pairs }]);
    assert_eq!(told["translations"], expected, "{told}");
}

#[test]
fn a_secret_is_looked_for_beside_the_file_that_names_it_and_an_empty_one_is_none() {
    let folder = folder("[rules]\nshipped = false\nfolder = \"rules\"\n");
    let rules = folder.path().join("rules");
    let told = |secret: &str, words: &[&str]| {
        std::fs::write(rules.join("one.toml"), own_file(secret)).unwrap();
        let output = check(folder.path(), words);
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(text).unwrap())
    };
    let looked_for = |name: &str| format!("file:{}", rules.join(name).display());
    let (code, text) = told("file:own.key", &[]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains(&format!("own ({})", looked_for("own.key"))), "{text}");

    std::fs::write(rules.join("own.key"), "\n").unwrap();
    let (code, text) = told("file:own.key", &[]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains(&format!("{} is empty", looked_for("own.key"))), "{text}");
    let (_, json) = told("file:own.key", &["--json"]);
    let json: Json = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (&json["ok"], &json["providers_on"]),
        (&json!(true), &json!(0)),
        "{json}"
    );

    std::fs::create_dir(folder.path().join("keys")).unwrap();
    std::fs::write(folder.path().join("keys/own.key"), "a-key-of-this-provider\n").unwrap();
    let (code, text) = told("file:../keys/own.key", &[]);
    assert!(code == Some(0) && text.contains("(1 on)"), "{text}");
}

#[test]
fn a_secret_that_is_too_short_to_be_masked_is_refused_by_name() {
    let folder = folder("[rules]\nshipped = false\nfolder = \"rules\"\n");
    let rules = folder.path().join("rules");
    std::fs::write(rules.join("one.toml"), own_file("file:own.key")).unwrap();
    for (secret, fits) in [
        ("x", false),
        ("json", false),
        ("event", false),
        ("eleven-char", false),
        ("twelve-chars", true),
    ] {
        std::fs::write(rules.join("own.key"), secret).unwrap();
        let output = check(folder.path(), &[]);
        assert_eq!(output.status.success(), fits, "{secret}: {output:?}");
        if !fits {
            let text = String::from_utf8(output.stderr).unwrap();
            let named = format!(
                "file:{}: the secret has fewer than 12 characters",
                rules.join("own.key").display()
            );
            assert!(text.contains("one.toml:4") && text.contains(&named), "{text}");
        }
    }
}

#[test]
fn providers_that_are_off_take_one_line_behind_what_matters() {
    let folder = folder("[store]\nengine = \"redis\"\n[provider.openai]\nenabled = false\n");
    std::fs::remove_dir_all(folder.path().join("rules")).unwrap();
    let output = check(folder.path(), &[]);
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let [log, off, ok] = lines.as_slice() else {
        panic!("{text}")
    };
    assert!(log.starts_with("warning: ") && log.contains("the log"), "{text}");
    let absent = "warning: no provider is on, so no model can be used; set the secret of at least one provider: ";
    assert!(
        off.starts_with(absent) && off.contains("anthropic (env:ANTHROPIC_API_KEY)"),
        "{text}"
    );
    assert!(off.ends_with("; disabled in weir.toml: openai"), "{text}");
    assert!(ok.starts_with("ok: ") && ok.contains(" (0 on) and "), "{text}");

    let conf = "[rules]\nshipped = false\nfolder = \"rules\"\n[prices]\nfile = \"prices.toml\"\n";
    let one = format!(
        "name = \"one\"\n[auth]\nstyle = \"bearer\"\nsecret = \"file:{}\"\n[endpoints]\n\
         messages = \"https://one.example/v1/messages\"\n[[model]]\nname = \"m\"\nfree = true\n",
        folder.path().join("secret").display()
    );
    std::fs::create_dir(folder.path().join("rules")).unwrap();
    for (name, text) in [
        ("weir.toml", conf),
        ("rules/one.toml", one.as_str()),
        ("prices.toml", "version = \"mine\"\n"),
        ("secret", "a-secret-of-one"),
    ] {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    let output = check(folder.path(), &[]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.ends_with(" with 1 provider (1 on) and 1 model\n"), "{text}");
}

#[test]
fn the_secrets_of_the_log_are_read_and_sections_without_effect_are_named() {
    let missing = "is missing: set the variable in the environment of weir";
    for (conf, key) in [
        (
            "[log.events]\nurl = \"http://127.0.0.1:9/\"\nsecret = \"env:NOT_SET\"\n",
            "log.events.secret",
        ),
        (
            "[log]\nhome = \"postgres\"\n[log.postgres]\nurl = \"env:NOT_SET\"\n",
            "log.postgres.url",
        ),
        (
            "[log.files.bucket]\nname = \"rows\"\naccess_key_id = \"env:NOT_SET\"\nsecret_access_key = \"file:weir.toml\"\n",
            "log.files.bucket.access_key_id",
        ),
    ] {
        let output = check(folder(conf).path(), &[]);
        assert_eq!(output.status.code(), Some(EX_CONFIG), "{output:?}");
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.contains(&format!("key `{key}`: env:NOT_SET {missing}")), "{text}");
    }
    for (conf, said) in [
        (
            "[store.redis]\nnodes = [\"127.0.0.1:9\"]\n",
            Some("[store.redis] has no effect"),
        ),
        (
            "[log.postgres]\nurl = \"env:NOT_SET\"\n",
            Some("[log.postgres] has no effect"),
        ),
        ("[store.redis]\n[log.postgres]\n", None),
    ] {
        let output = check(folder(conf).path(), &[]);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && text.contains("ok: "), "{text}");
        match said {
            Some(said) => assert!(text.contains(said), "{text}"),
            None => assert!(!text.contains("has no effect"), "{text}"),
        }
    }
}

#[test]
fn a_secret_that_only_systemd_can_give_is_said_so_in_a_shell() {
    let of_notices = "[notices]\nurl = \"http://127.0.0.1:9/\"\nsecret = \"credential:secret_notices\"\n";
    let output = check(folder(of_notices).path(), &[]);
    assert_eq!(output.status.code(), Some(EX_CONFIG), "{output:?}");
    let text = String::from_utf8(output.stderr).unwrap();
    let said = "credential:secret_notices is missing: systemd gives credentials only to its units";
    assert!(
        text.contains(said) && text.contains("systemctl start weir-check"),
        "{text}"
    );

    let of_a_provider = "[provider.openai]\nsecret = \"credential:secret_openai\"\n";
    let output = check(folder(of_a_provider).path(), &[]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    assert!(
        text.contains("secrets with `credential:` were not checked: systemd"),
        "{text}"
    );
}

#[test]
fn what_is_given_twice_and_what_is_not_quoted_is_said_so() {
    for (conf, told) in [
        (
            "[gateway]\n[ops]\n[gateway]\n",
            "weir.toml:3: key `gateway`: defined twice, keep one definition with all its settings",
        ),
        (
            "[gateway]\nlisten = \"a\"\nlisten = \"b\"\n",
            "weir.toml:3: key `listen`: defined twice, keep one definition with all its settings",
        ),
        (
            "[gateway]\nlisten = 127.0\n",
            "weir.toml:2: key `gateway.listen`: expected a string, found a floating-point number: quote it",
        ),
    ] {
        let folder = folder(conf);
        let output = check(folder.path(), &[]);
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.trim_end().ends_with(told), "{text}");
    }
}

#[test]
fn a_redis_that_is_to_keep_the_whole_log_is_warned_of_unless_the_file_says_so() {
    let warned = |log: &str| {
        let conf = format!("[store]\nengine = \"redis\"\n{log}");
        let folder = folder(&conf);
        let output = check(folder.path(), &["--json"]);
        let told: Json = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(told["ok"], true, "{told}");
        let warnings = told["warnings"].as_array().unwrap().iter().filter_map(Json::as_str);
        let of_log: Vec<String> = warnings
            .filter(|text| text.contains("the log"))
            .map(str::to_owned)
            .collect();
        of_log
    };
    let [warning] = warned("").try_into().unwrap();
    for part in [
        "a million rows take 0.5 to 0.6 GB",
        "180 days",
        "`[log] home`",
        "\"postgres\"",
        "that all nodes share",
        "docs/log.md",
    ] {
        assert!(warning.contains(part), "{part}: {warning}");
    }
    assert_eq!(warned("[log]\nhome = \"store\"\n"), Vec::<String>::new());
    assert_eq!(warned("[log]\nhome = \"files\"\n"), Vec::<String>::new());
}

#[test]
fn keys_for_everybody_whom_a_public_provider_knows_are_warned_of() {
    let warned = |issuer: &str, groups: &str| {
        let conf = format!(
            "[console]\nlisten = \"127.0.0.1:0\"\n[console.openid]\nissuer = \"{issuer}\"\nclient_id = \"weir\"\n\
             [console.openid.roles]\nowners = \"owner\"\n[sign_in.template]\naccount = \"people\"\n{groups}"
        );
        let folder = folder(&conf);
        let output = check(folder.path(), &["--json"]);
        let told: Json = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(told["ok"], true, "{told}");
        let warnings = told["warnings"].as_array().unwrap().iter().filter_map(Json::as_str);
        let found: Vec<String> = warnings
            .filter(|text| text.contains("[sign_in.template]"))
            .map(str::to_owned)
            .collect();
        found
    };
    for public in [
        "https://accounts.google.com",
        "https://login.microsoftonline.com/common/v2.0",
        "https://login.microsoftonline.com/consumers/v2.0",
        "https://login.microsoftonline.com/9188040d-6c67-4c5b-b112-36a304b66dad/v2.0",
        "https://appleid.apple.com",
        "https://gitlab.com",
    ] {
        let [warning] = warned(public, "").try_into().unwrap();
        for part in [public, "every user", "`groups`", "`people`"] {
            assert!(warning.contains(part), "{part}: {warning}");
        }
        assert_eq!(
            warned(public, "groups = [\"staff\"]\n"),
            Vec::<String>::new(),
            "{public}"
        );
    }
    for own in [
        "https://login.example.com",
        "https://login.microsoftonline.com/7c9e6679-7425-40de-944b-e07fc1f90ae7/v2.0",
        "https://gitlab.example.com",
        "https://accounts.google.com.example",
    ] {
        assert_eq!(warned(own, ""), Vec::<String>::new(), "{own}");
    }
}

#[test]
fn certificates_are_told_with_their_names_and_ends() {
    let authority = Authority::new();
    let good = authority.files("good", &["api.test", "*.b.test"], Kind::Rsa);
    let ended = authority.files_until("ended", &["old.test"], Kind::Ecdsa, 2021);
    let table = |section: &str, chain: &Path, key: &Path| {
        let (chain, key) = (chain.display(), key.display());
        format!("[[{section}.tls.certificate]]\nchain = \"{chain}\"\nkey = \"file:{key}\"\n")
    };
    let conf = table("gateway", &good.chain, &good.key) + &table("stability", &ended.chain, &ended.key);
    let folder = folder(&conf);
    let output = check(folder.path(), &["--json"]);
    assert!(output.status.success(), "{output:?}");
    let told: Json = serde_json::from_slice(&output.stdout).unwrap();
    let first = json!({
        "listener": "gateway", "names": ["api.test", "*.b.test"], "key": "RSA",
        "valid_from": "2020-01-01T00:00:00Z", "valid_until": "2040-01-01T00:00:00Z",
    });
    assert_eq!(told["certificates"][0], first);
    assert_eq!(told["certificates"][1]["listener"], "stability");
    let output = check(folder.path(), &[]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("certificate: [gateway] valid for api.test, *.b.test until 2040-01-01T00:00:00Z (RSA key)"),
        "{text}"
    );
    assert!(
        text.contains("warning: [stability] certificate for old.test expired at 2021-01-01T00:00:00Z"),
        "{text}"
    );

    let conf = table("gateway", &good.chain, &ended.key);
    std::fs::write(folder.path().join("weir.toml"), conf).unwrap();
    let output = check(folder.path(), &[]);
    assert_eq!(output.status.code(), Some(EX_CONFIG));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(
        text.contains("weir.toml:1: key `gateway.tls.certificate.1`: cannot use chain "),
        "{text}"
    );
    assert!(
        text.contains("the private key does not belong to the first certificate"),
        "{text}"
    );
}
