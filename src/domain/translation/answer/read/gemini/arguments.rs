//! Assembles the arguments of a Gemini call from pieces, each of which states its path in the object.

use serde_json::value::RawValue;

use crate::domain::translation::{
    answer::{AnswerFault, read::gemini::chunk::GeminiPartialArgument},
    json_out::push_text,
};

/// The maximum number of steps in a path.
const STEPS_MAX: usize = 64;
/// The size, in bytes, of an element or a member without its strings, for the memory limit.
const NODE_BYTES: usize = 32;

/// The arguments of a call.
#[derive(Debug, Default)]
pub(super) struct CallArguments {
    /// The complete arguments as JSON text; `None` if the provider has not sent them in one piece.
    whole: Option<String>,
    /// The arguments that arrived in pieces; `None` if there were no pieces.
    root: Option<ArgumentNode>,
}

/// A JSON value that is assembled from pieces.
#[derive(Debug)]
enum ArgumentNode {
    /// An object, with its members in the order of arrival.
    Object(Vec<(String, ArgumentNode)>),
    /// An array.
    Array(Vec<ArgumentNode>),
    /// A string.
    Text(String),
    /// Any other value, as JSON text.
    Json(String),
}

/// A step of a path.
#[derive(Debug, PartialEq, Eq)]
enum PathStep {
    /// The step to the member with this name.
    Member(String),
    /// The step to the element with this index.
    Element(usize),
}

impl CallArguments {
    /// Sets all arguments at once, as the JSON text of an object.
    pub(super) fn replace(&mut self, json: &str) {
        self.whole = Some(json.to_owned());
    }

    /// Adds a piece. Returns an upper bound for the number of bytes by which the arguments have grown.
    ///
    /// # Errors
    /// The piece's path cannot be read.
    pub(super) fn add(&mut self, piece: &GeminiPartialArgument<'_>) -> Result<usize, AnswerFault> {
        let steps = path_steps(&piece.json_path).filter(|steps| !steps.is_empty());
        let text = piece.string_value.as_deref();
        let json = piece.number_value.or(piece.bool_value).map(RawValue::get);
        let mut bytes = piece.json_path.len() + text.or(json).map_or(0, str::len);
        let mut node = self.root.get_or_insert_with(|| ArgumentNode::Object(Vec::new()));
        for step in steps.ok_or(AnswerFault::Unreadable)? {
            node = node.child(step, &mut bytes)?;
        }
        node.add(text, json)?;
        Ok(bytes)
    }

    /// Returns the arguments as the JSON text of an object.
    pub(super) fn into_json(self) -> String {
        match (self.root, self.whole) {
            (Some(root), _) => {
                let mut json = String::new();
                root.write(&mut json);
                json
            }
            (None, Some(whole)) => whole,
            (None, None) => "{}".to_owned(),
        }
    }
}

impl ArgumentNode {
    /// Creates the placeholder for a value that has not arrived yet.
    fn null() -> Self {
        Self::Json("null".to_owned())
    }

    fn is_null(&self) -> bool {
        matches!(self, Self::Json(json) if json == "null")
    }

    /// Returns the value that the step leads to, and adds it if it is missing. `bytes` grows by the size of the added values.
    fn child(&mut self, step: PathStep, bytes: &mut usize) -> Result<&mut Self, AnswerFault> {
        match step {
            PathStep::Member(name) => {
                if self.is_null() {
                    *self = Self::Object(Vec::new());
                }
                let Self::Object(members) = self else {
                    return Err(AnswerFault::Unreadable);
                };
                let position = members.iter().position(|(member, _)| *member == name);
                if position.is_none() {
                    *bytes += NODE_BYTES;
                    members.push((name, Self::null()));
                }
                let position = position.unwrap_or(members.len().saturating_sub(1));
                members
                    .get_mut(position)
                    .map(|(_, node)| node)
                    .ok_or(AnswerFault::Unreadable)
            }
            PathStep::Element(index) => {
                if self.is_null() {
                    *self = Self::Array(Vec::new());
                }
                let Self::Array(elements) = self else {
                    return Err(AnswerFault::Unreadable);
                };
                // Only a few elements can be missing, so an index far beyond the end is an error.
                let missing = index.saturating_add(1).saturating_sub(elements.len());
                if missing > STEPS_MAX {
                    return Err(AnswerFault::Unreadable);
                }
                *bytes += missing * NODE_BYTES;
                elements.extend(std::iter::repeat_with(Self::null).take(missing));
                elements.get_mut(index).ok_or(AnswerFault::Unreadable)
            }
        }
    }

    /// Adds a piece to the value. `text` is a piece of a string, and is appended to the string. `json` is the JSON text of a
    /// complete value that is not a string. If both are `None`, the value does not change.
    fn add(&mut self, text: Option<&str>, json: Option<&str>) -> Result<(), AnswerFault> {
        let value = match (text, json) {
            (Some(text), _) => Self::Text(text.to_owned()),
            (None, Some(json)) => Self::Json(json.to_owned()),
            (None, None) => return Ok(()),
        };
        match (self, value) {
            (Self::Text(kept), Self::Text(more)) => kept.push_str(&more),
            (empty, value) if empty.is_null() => *empty = value,
            _ => return Err(AnswerFault::Unreadable),
        }
        Ok(())
    }

    fn write(&self, out: &mut String) {
        match self {
            Self::Object(members) => {
                out.push('{');
                for (number, (name, node)) in members.iter().enumerate() {
                    if number > 0 {
                        out.push(',');
                    }
                    push_text(out, name);
                    out.push(':');
                    node.write(out);
                }
                out.push('}');
            }
            Self::Array(elements) => {
                out.push('[');
                for (number, node) in elements.iter().enumerate() {
                    if number > 0 {
                        out.push(',');
                    }
                    node.write(out);
                }
                out.push(']');
            }
            Self::Text(text) => push_text(out, text),
            Self::Json(json) => out.push_str(json),
        }
    }
}

/// Returns the steps of a path such as `$.recipe.steps[0]['the name']` (RFC 9535); `None` if a step has a different form, or if
/// there are more than [`STEPS_MAX`] steps.
fn path_steps(path: &str) -> Option<Vec<PathStep>> {
    let mut rest = path.strip_prefix('$')?;
    let mut steps = Vec::new();
    while !rest.is_empty() {
        if steps.len() >= STEPS_MAX {
            return None;
        }
        let (step, behind) = match rest.strip_prefix('.') {
            Some(name) => {
                let end = name.find(['.', '[']).unwrap_or(name.len());
                let (name, behind) = name.split_at_checked(end)?;
                (PathStep::Member(name.to_owned()), behind)
            }
            None => bracket_step(rest.strip_prefix('[')?)?,
        };
        steps.push(step);
        rest = behind;
    }
    Some(steps)
}

/// Returns the step in the brackets, and the rest of the path. `inner` begins directly after the opening bracket.
fn bracket_step(inner: &str) -> Option<(PathStep, &str)> {
    let mut characters = inner.chars();
    let quote = characters.next()?;
    if !matches!(quote, '\'' | '"') {
        let (index, behind) = inner.split_once(']')?;
        return Some((PathStep::Element(index.parse().ok()?), behind));
    }
    let mut name = String::new();
    loop {
        match characters.next()? {
            '\\' => name.push(characters.next()?),
            end if end == quote => break,
            character => name.push(character),
        }
    }
    let behind = characters.as_str().strip_prefix(']')?;
    Some((PathStep::Member(name), behind))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(name: &str) -> PathStep {
        PathStep::Member(name.to_owned())
    }

    #[test]
    fn paths_are_read_step_by_step() {
        let element = PathStep::Element;
        for (path, expected) in [
            ("$", vec![]),
            ("$.a", vec![member("a")]),
            (
                "$.a-b.c[7].d",
                vec![member("a-b"), member("c"), element(7), member("d")],
            ),
            (
                r#"$['a.b']["c]\""][0][1]"#,
                vec![member("a.b"), member("c]\""), element(0), element(1)],
            ),
        ] {
            assert_eq!(path_steps(path), Some(expected), "{path}");
        }
        let long = format!("${}", ".a".repeat(STEPS_MAX + 1));
        for wrong in [
            "",
            "a",
            "$a",
            "$[",
            "$[x]",
            "$[-1]",
            "$['a'",
            "$['a",
            "$[0",
            long.as_str(),
        ] {
            assert_eq!(path_steps(wrong), None, "{wrong}");
        }
        assert!(path_steps(long.strip_suffix(".a").unwrap()).is_some());
    }
}
