//! A folder of rule files of a test's own.

use std::path::Path;

use tempfile::TempDir;

use super::WeirBuilder;

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
