//! A folder of rule files of a test's own.

use std::path::Path;

use tempfile::TempDir;

use super::WeirBuilder;
use super::tools::repository;

/// Rule files in a folder that goes with this value.
pub(crate) struct RuleFolder(TempDir);

impl RuleFolder {
    /// A folder with these files, by provider name.
    pub(crate) fn new(files: &[(&str, &str)]) -> RuleFolder {
        let folder = RuleFolder(TempDir::new().unwrap());
        for (name, text) in files {
            folder.write(name, text);
        }
        folder
    }

    /// The shipped files of three providers, which are cut off when the client of a stream leaves.
    pub(crate) fn aborting() -> RuleFolder {
        let folder = RuleFolder::new(&[]);
        for name in ["anthropic", "openai", "gemini"] {
            let path = repository().join("lua-free-rules").join(format!("{name}.toml"));
            let shipped = std::fs::read_to_string(path).unwrap();
            folder.write(
                name,
                &shipped.replacen("[auth]", "[on_client_gone]\nstream = \"abort\"\n\n[auth]", 1),
            );
        }
        folder
    }

    /// The shipped file of OpenAI, which says that the provider serves Responses over WebSocket, too.
    pub(crate) fn over_websocket() -> RuleFolder {
        RuleFolder::over_websocket_with("", "")
    }

    /// The same with these lines before `[auth]`, and these in `[headers]`.
    pub(crate) fn over_websocket_with(settings: &str, headers: &str) -> RuleFolder {
        const URL: &str = "\nresponses = \"https://api.openai.com/v1/responses\"\n";
        const TABLE: &str = "\nresponses = { url = \"https://api.openai.com/v1/responses\", websocket = true }\n";
        let shipped = std::fs::read_to_string(repository().join("lua-free-rules/openai.toml")).unwrap();
        let mut text = shipped;
        for (from, to) in [
            (URL, TABLE.to_owned()),
            ("[auth]\n", format!("{settings}\n[auth]\n")),
            ("\n[headers]\n", format!("\n[headers]\n{headers}\n")),
        ] {
            assert!(text.contains(from), "openai.toml has no {from:?}");
            text = text.replacen(from, &to, 1);
        }
        RuleFolder::new(&[("openai", &text)])
    }

    /// A gateway with these files over the shipped ones, every provider at `base_url`.
    pub(crate) fn weir_at(&self, base_url: &str) -> WeirBuilder {
        WeirBuilder::new()
            .all_providers(base_url)
            .set("rules.folder", self.path().to_str().unwrap())
    }

    /// The same gateway, which these files live as long as.
    pub(crate) fn into_weir_at(self, base_url: &str) -> WeirBuilder {
        self.weir_at(base_url).keeping(self)
    }

    /// Writes a file as a careful tool does: whole or not at all.
    pub(crate) fn write(&self, name: &str, text: &str) {
        let partial = self.0.path().join(format!("{name}.partial"));
        std::fs::write(&partial, text).unwrap();
        std::fs::rename(partial, self.0.path().join(format!("{name}.toml"))).unwrap();
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// A gateway with these files only.
    pub(crate) fn weir(&self) -> WeirBuilder {
        WeirBuilder::bare()
            .set("rules.shipped", false)
            .set("rules.folder", self.path().to_str().unwrap())
    }
}

/// A provider's file for all protocols, with one attempt at it.
pub(crate) fn provider_file(name: &str, base_url: &str) -> String {
    format!(
        r#"
name = "{name}"
[auth]
style = "bearer"
secret = "env:SECRET"
[retry]
attempts = 1
[endpoints]
messages = "{base_url}/v1/messages"
responses = "{base_url}/v1/responses"
generate_content = "{base_url}/v1beta/models/{{model}}:generateContent"
stream_generate_content = "{base_url}/v1beta/models/{{model}}:streamGenerateContent"
"#
    )
}
