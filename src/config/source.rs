//! What a configuration was read from, setting by setting.

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use toml::{Table, Value};

/// What a configuration was read from. It says nothing of its own, so all are equal.
#[derive(Clone)]
pub(super) struct Source {
    pub file: String,
    text: Arc<str>,
    pub folder: PathBuf,
}

impl PartialEq for Source {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Source({})", self.file)
    }
}

impl Source {
    pub(super) fn new(file: &str, text: &str, folder: &Path) -> Self {
        Self {
            file: file.to_owned(),
            text: text.into(),
            folder: folder.to_owned(),
        }
    }

    /// Each setting of the file, by its name. A list is one setting, whatever is in it.
    pub(super) fn settings(&self) -> BTreeMap<String, Value> {
        let mut settings = BTreeMap::new();
        // What was read once is TOML.
        if let Ok(table) = self.text.parse::<Table>() {
            collect("", table, &mut settings);
        }
        settings
    }
}

/// Adds what stands in a table; the names are such as may stand in a file.
fn collect(before: &str, table: Table, settings: &mut BTreeMap<String, Value>) {
    for (key, value) in table {
        let name = format!("{before}{}", quoted(&key));
        match value {
            Value::Table(table) => collect(&format!("{name}."), table, settings),
            value => {
                settings.insert(name, value);
            }
        }
    }
}

fn quoted(key: &str) -> String {
    let is_bare = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    match !key.is_empty() && key.bytes().all(is_bare) {
        true => key.to_owned(),
        false => Value::from(key).to_string(),
    }
}
