//! Prices as an operator meets them: a list that changes is loaded anew, and what has no price is never served.

use std::process::Command;

use crate::harness::request::Wire;
use crate::harness::wait::wait_until;
use crate::harness::{MESSAGES_MODEL, Weir, WeirBuilder};

/// The exit code of a configuration that cannot be used (sysexits.h).
const EX_CONFIG: i32 = 78;

fn list(version: &str, output: &str) -> String {
    format!(
        "version = \"{version}\"\n[[price]]\nname = \"{MESSAGES_MODEL}\"\ntiers = [{{ input = \"1\", output = {output} }}]\n"
    )
}

fn shown(weir: &Weir) -> serde_json::Value {
    let models = weir.cli_json(&["models"]);
    let models = models.as_array().unwrap();
    let model = models.iter().find(|model| model["name"] == MESSAGES_MODEL).unwrap();
    model["prices"]["anthropic"].clone()
}

#[test]
fn a_changed_price_list_is_loaded_anew_or_not_at_all() {
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("prices.toml");
    std::fs::write(&file, list("mine-1", "\"2\"")).unwrap();
    let weir = WeirBuilder::new()
        .provider("anthropic", "http://127.0.0.1:9")
        .set("prices.file", file.to_str().unwrap())
        .start();
    let price = shown(&weir);
    assert_eq!(
        (&price["version"], &price["tiers"][0]["output"]),
        (&"mine-1".into(), &"2".into())
    );
    std::fs::write(&file, list("mine-2", "\"3\"")).unwrap();
    wait_until("the new price is in force", || shown(&weir)["version"] == "mine-2");
    std::fs::write(&file, list("mine-3", "4.5")).unwrap();
    wait_until("the float is refused", || {
        let logs = weir.logs();
        logs.contains("prices.toml:4:") && logs.contains("key `output`: expected a decimal number in quotes")
    });
    let price = shown(&weir);
    assert_eq!(
        (&price["version"], &price["tiers"][0]["output"]),
        (&"mine-2".into(), &"3".into())
    );
    std::fs::write(&file, list("mine-2", "\"4\"")).unwrap();
    wait_until("a change under the same version is told of", || {
        weir.logs().contains("prices have changed, but their version has not")
    });
}

#[test]
fn a_model_without_a_price_is_refused_at_start_and_check_and_reload() {
    let folder = tempfile::TempDir::new().unwrap();
    let conf = folder.path().join("weir.toml");
    let model = "[[model]]\nname = \"new-model\"\nproviders = [\"anthropic\"]\n";
    let provider = "[provider.anthropic]\nsecret = \"file:secret\"\nbase_url = \"http://127.0.0.1:9\"\n";
    std::fs::write(folder.path().join("secret"), "provider-secret").unwrap();
    std::fs::write(&conf, format!("{provider}{model}")).unwrap();
    for command in ["check", "serve"] {
        let mut weir = Command::new(env!("CARGO_BIN_EXE_weir"));
        let output = weir.args([command, "--conf"]).arg(&conf).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(EX_CONFIG), "{command}: {text}");
        assert!(
            text.contains("model `new-model` has no price at `anthropic`") && text.contains("`free = true`"),
            "{command}: {text}"
        );
    }
    let weir = WeirBuilder::new().provider("anthropic", "http://127.0.0.1:9").start();
    let conf = weir.folder().join("weir.toml");
    let text = std::fs::read_to_string(&conf).unwrap();
    std::fs::write(&conf, format!("{text}\n{model}")).unwrap();
    wait_until("the model is refused", || {
        weir.logs().contains("model `new-model` has no price at `anthropic`")
    });
    let answer = weir.exchange(&Wire::Messages.request_for("new-model", &weir.key().text, "hi"));
    assert_eq!(answer.status, 404);
    std::fs::write(&conf, format!("{text}\n{model}free = true\n")).unwrap();
    wait_until("the free model is there", || {
        let models = weir.cli_json(&["models"]);
        let mut models = models.as_array().unwrap().iter();
        models.any(|model| model["name"] == "new-model" && model["prices"]["anthropic"]["version"] == "free")
    });
}
