//! Names of tools. A namespace and a name are joined into one name for the provider. In calls, the client gets its own names
//! back.

use std::borrow::Cow;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use sha2::{Digest, Sha256};

use crate::domain::{QuickMap, translation::losses::Untranslatable};

/// The maximum length of a tool's name at providers, in bytes.
pub(crate) const NAME_BYTES_MAX: usize = 64;
/// The maximum number of tools in a translated request.
pub(crate) const TOOLS_MAX: usize = 4_096;
/// The maximum total length of the names of a request's tools, in bytes.
pub(crate) const NAMES_BYTES_MAX: usize = 256 * 1024;
/// The number of digest characters that replace the end of a name that is too long.
const DIGEST_CHARS: usize = 8;

/// The kind of a tool at the client, which determines how its calls are written in the client's answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum ToolKind {
    /// A function with a JSON schema.
    #[default]
    Function,
    /// A `custom` tool of Responses: its input is a string, not JSON.
    Custom,
    /// `tool_search` of Responses, run by the client.
    ToolSearch,
    /// `local_shell` of Responses.
    LocalShell,
    /// `shell` of Responses.
    Shell,
    /// `apply_patch` of Responses.
    ApplyPatch,
}

/// A tool as the client names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClientTool {
    /// The namespace of the tool; `None` for a tool outside every namespace.
    pub(crate) namespace: Option<String>,
    /// The name within the namespace.
    pub(crate) name: String,
    /// The kind of the tool.
    pub(crate) kind: ToolKind,
}

/// The client's tools of one request, by their names at the provider.
#[derive(Clone, Debug, Default)]
pub(crate) struct ToolNames {
    tools: QuickMap<String, ClientTool>,
    bytes: usize,
}

impl ToolNames {
    /// Adds a tool of the client; returns its name at the provider. The same tool can be added several times.
    ///
    /// # Errors
    /// Another tool already has that name at the provider, or there are too many tools.
    pub(crate) fn add(&mut self, tool: ClientTool, path: &str) -> Result<String, Untranslatable> {
        let flat = provider_name(tool.namespace.as_deref(), &tool.name).into_owned();
        match self.tools.get(&flat) {
            Some(other) if *other == tool => return Ok(flat),
            Some(other) => {
                let reason = format!(
                    "the tools `{}` and `{}` would have the same name at the provider; rename one",
                    other.display_name(),
                    tool.display_name()
                );
                return Err(Untranslatable::new(path, reason));
            }
            None => {}
        }
        self.bytes += flat.len() + tool.name.len();
        if self.tools.len() >= TOOLS_MAX || self.bytes > NAMES_BYTES_MAX {
            let reason = format!(
                "too many tools to translate: a request can have at most {TOOLS_MAX} tools, and their names at most {NAMES_BYTES_MAX} bytes in total"
            );
            return Err(Untranslatable::new(path, reason));
        }
        self.tools.insert(flat.clone(), tool);
        Ok(flat)
    }

    /// Returns the client's tool with this name at the provider; `None` if the model has invented the name.
    pub(crate) fn client_tool(&self, provider_name: &str) -> Option<&ClientTool> {
        self.tools.get(provider_name)
    }

    /// Returns the client's tool that a model calls by this name. This is the tool with this name at the provider. If there is no
    /// such tool, the model may have omitted the namespace, so the only tool with this name at the client is returned. Returns
    /// `None` if no tool has the name, or if several tools in different namespaces have it.
    pub(crate) fn called_tool(&self, name: &str) -> Option<&ClientTool> {
        if let Some(tool) = self.client_tool(name) {
            return Some(tool);
        }
        let mut bare = self.tools.values().filter(|tool| tool.name == name);
        bare.next().filter(|_| bare.next().is_none())
    }
}

impl ClientTool {
    /// Returns the tool's name for use in messages.
    fn display_name(&self) -> Cow<'_, str> {
        match &self.namespace {
            Some(namespace) => Cow::Owned(format!("{namespace}.{}", self.name)),
            None => Cow::Borrowed(&self.name),
        }
    }
}

/// Returns the name of a tool at the provider. If there is a namespace, it is joined to the tool's name with `__`. A character
/// that providers do not accept becomes `_`. A name that is too long or contains such characters ends with a digest of the
/// client's name.
pub(crate) fn provider_name<'a>(namespace: Option<&str>, name: &'a str) -> Cow<'a, str> {
    let joined = match namespace {
        Some(namespace) => Cow::Owned(format!("{namespace}__{name}")),
        None => Cow::Borrowed(name),
    };
    let fits = |character: char| character.is_ascii_alphanumeric() || matches!(character, '_' | '-');
    if joined.len() <= NAME_BYTES_MAX && joined.chars().all(fits) {
        return joined;
    }
    let digest = URL_SAFE_NO_PAD.encode(Sha256::digest(joined.as_bytes()));
    let clean = joined
        .chars()
        .map(|character| if fits(character) { character } else { '_' });
    let mut short: String = clean.take(NAME_BYTES_MAX - DIGEST_CHARS - 1).collect();
    short.push('_');
    short.extend(digest.chars().take(DIGEST_CHARS));
    Cow::Owned(short)
}

/// Returns the provider's name of a tool that has no namespace, whether the tool is offered or not.
pub(crate) fn provider_tool_name(name: Cow<'_, str>) -> Cow<'_, str> {
    match name {
        Cow::Borrowed(name) => provider_name(None, name),
        Cow::Owned(name) => Cow::Owned(provider_name(None, &name).into_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(namespace: Option<&str>, name: &str) -> ClientTool {
        ClientTool {
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
            kind: ToolKind::Function,
        }
    }

    #[test]
    fn a_namespace_is_flattened_and_restored() {
        let mut names = ToolNames::default();
        let flat = names
            .add(tool(Some("mcp__files"), "read"), "tools[0].tools[0]")
            .unwrap();
        assert_eq!(flat, "mcp__files__read");
        assert_eq!(names.client_tool(&flat), Some(&tool(Some("mcp__files"), "read")));
        assert_eq!(names.client_tool("read"), None);
    }

    #[test]
    fn a_name_without_its_namespace_is_called_only_if_it_means_one_tool() {
        let mut names = ToolNames::default();
        let tools = [
            tool(Some("functions"), "exec"),
            tool(Some("files"), "read"),
            tool(Some("mail"), "read"),
            tool(Some("files"), "plan"),
            tool(None, "plan"),
            tool(None, "my.tool"),
        ];
        for tool in &tools {
            names.add(tool.clone(), "tools").unwrap();
        }
        assert_eq!(names.called_tool("exec"), Some(&tools[0]));
        assert_eq!(names.called_tool("functions__exec"), Some(&tools[0]));
        assert_eq!(names.called_tool("mail__read"), Some(&tools[2]));
        // A tool with exactly this name takes precedence.
        assert_eq!(names.called_tool("plan"), Some(&tools[4]));
        assert_eq!(names.called_tool("my.tool"), Some(&tools[5]));
        for unknown in ["read", "invented", "functions", ""] {
            assert_eq!(names.called_tool(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn two_tools_of_one_flat_name_are_refused_by_both_names() {
        let mut names = ToolNames::default();
        names.add(tool(Some("a"), "b__c"), "tools[0]").unwrap();
        names.add(tool(Some("a"), "b__c"), "tools[1]").unwrap();
        let refusal = names.add(tool(Some("a__b"), "c"), "tools[2]").unwrap_err();
        assert_eq!(
            refusal.to_string(),
            "tools[2]: the tools `a.b__c` and `a__b.c` would have the same name at the provider; rename one"
        );
    }

    #[test]
    fn a_name_that_providers_do_not_take_is_cut_and_stays_distinct() {
        let long = "x".repeat(NAME_BYTES_MAX);
        assert_eq!(provider_name(None, &long), long);
        let (first, second) = (format!("{long}1"), format!("{long}2"));
        let cut = [provider_name(None, &first), provider_name(None, &second)];
        assert_ne!(cut[0], cut[1]);
        assert!(cut.iter().all(|name| name.len() == NAME_BYTES_MAX), "{cut:?}");
        assert_ne!(provider_name(None, "a.b"), provider_name(None, "a b"));
    }

    #[test]
    fn the_number_of_tools_is_limited() {
        let mut names = ToolNames::default();
        for number in 0..TOOLS_MAX {
            names.add(tool(None, &format!("t{number}")), "tools").unwrap();
        }
        assert!(names.add(tool(None, "one_more"), "tools[4096]").is_err());
    }
}
