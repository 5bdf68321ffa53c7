//! A gateway with one model, which a strict host serves.

use tempfile::TempDir;

use super::host::{Host, HostTerms, SECRET};
use crate::harness::Weir;
use crate::harness::rules::RuleFolder;

/// A model that no agent knows. Its provider calls it otherwise, if the provider is of another protocol than the client.
pub(super) const MODEL: &str = "house-large";
/// The only provider.
pub(super) const PROVIDER: &str = "scripted";

/// The gateway, its provider and a key.
pub(super) struct AgentStage {
    pub(super) weir: Weir,
    pub(super) host: Host,
    pub(super) key: String,
    _rules: RuleFolder,
    _prices: TempDir,
}

impl AgentStage {
    /// A stage on which clients ask for `model`.
    #[track_caller]
    pub(super) fn start(model: &str, terms: HostTerms) -> AgentStage {
        let host = Host::start(terms);
        let upstream_name = terms.model;
        let served = format!(
            "[[model]]\nname = \"{model}\"\nupstream_name = \"{upstream_name}\"\noutput_tokens = 64000\ntranslate = \"strict\"\n"
        );
        let file = terms.speech.file(PROVIDER, &host.base_url()) + &served;
        let rules = RuleFolder::new(&[(PROVIDER, &file)]);
        let prices = TempDir::new().unwrap();
        let list = prices.path().join("prices.toml");
        let tiers = r#"tiers = [{ input = "1", output = "10", cache_read = "0.1", cache_write_short = "2" }]"#;
        let text = format!("version = \"tests\"\n[[price]]\nname = \"{model}\"\n{tiers}\n");
        std::fs::write(&list, text).unwrap();
        let weir = rules
            .weir()
            .variable("SECRET", SECRET)
            .set("prices.file", list.to_str().unwrap())
            .start();
        let key = weir.key().text;
        AgentStage {
            weir,
            host,
            key,
            _rules: rules,
            _prices: prices,
        }
    }
}
