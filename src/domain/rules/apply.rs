//! Applies a provider's body edits by splicing them into the client's text. All other text stays unchanged, byte for byte,
//! including the order of members, white space, the spelling of numbers, and unknown members.

#[cfg(test)]
mod tests;
mod walk;

use std::{borrow::Cow, ops::Range};

use crate::domain::{
    rules::{
        body::{BodyEdit, BodyRules, JsonNumber, RefusedValues, path_text},
        condition::{FieldTest, RequestFacts, Scalar, ValueTest},
    },
    wire::json_scan::{JsonToken, JsonTokenKind, Scan, ScanError, Tape, TapeReader, is_string, unescaped},
};

/// Edits the body `text`, which `scan` describes. Replaces the model's name, if the body contains it, with `upstream_model`, and
/// then applies the provider's edits in the order of its file. Returns `None`, without copying the text, if nothing has changed.
///
/// If an object has several members of the same name, an edit applies to each of them. If the member at an edit's path is
/// missing, `set` adds it, provided that its parent exists; any other edit does nothing. Numbers that are too large for any
/// machine type are compared as infinite.
///
/// # Errors
/// An edit refuses the request, or `text` is not the JSON object that was scanned.
pub fn edit_body(
    rules: &BodyRules,
    facts: &RequestFacts<'_>,
    text: &[u8],
    scan: &Scan,
) -> Result<Option<Vec<u8>>, EditError> {
    let mut splices: Vec<Splice<'_>> = model_splice(facts, scan).into_iter().collect();
    let edited = edit_batches(rules, |edit| edit.applies_to(facts), text, &scan.tape, &mut splices)?;
    // If no edit has changed anything, `splices` contains at most the splice of the model's name.
    Ok(edited.or_else(|| (!splices.is_empty()).then(|| apply_splices(text, &mut splices))))
}

/// Returns the text after all edits for which `applies` is true; `None` if no splice was applied. The caller can pass splices of
/// its own in `splices`. They are applied together with the first batch that has an applicable edit. If no batch has one, they
/// stay in `splices`.
fn edit_batches<'r>(
    rules: &'r BodyRules,
    applies: impl Fn(&BodyEdit) -> bool,
    text: &[u8],
    tape: &Tape,
    splices: &mut Vec<Splice<'r>>,
) -> Result<Option<Vec<u8>>, EditError> {
    let mut edited: Option<Vec<u8>> = None;
    for batch in &rules.batches {
        let mut edits = batch.iter().map(AsRef::as_ref).filter(|edit| applies(edit)).peekable();
        if edits.peek().is_none() {
            continue;
        }
        match &edited {
            None => walk::find_splices(edits, text, tape, splices)?,
            // The tape describes the original text, not the edited one.
            Some(current) => walk::find_splices(edits, current, &Tape::default(), splices)?,
        }
        if !splices.is_empty() {
            edited = Some(apply_splices(edited.as_deref().unwrap_or(text), splices));
            splices.clear();
        }
    }
    Ok(edited)
}

/// Returns the splice that replaces the model's name in the body with the provider's name for it. `None` if the body does not
/// contain the model's name, or contains the provider's name already.
pub(super) fn model_splice(facts: &RequestFacts<'_>, scan: &Scan) -> Option<Splice<'static>> {
    let model = scan.model.as_ref()?;
    (!facts.operation.has_model_in_path() && model.text != facts.upstream_model).then(|| Splice {
        range: model.value.clone(),
        text: json_string(facts.upstream_model).into(),
    })
}

/// Returns the splices with which one edit changes a text.
pub(super) fn edit_splices<'r>(edit: &'r BodyEdit, text: &[u8]) -> Result<Vec<Splice<'r>>, EditError> {
    let mut splices = Vec::new();
    walk::find_splices(std::iter::once(edit), text, &Tape::default(), &mut splices)?;
    Ok(splices)
}

/// Applies all `rules` to one JSON object of an answer. `None` if no edit changes the text, or if the text is not a valid JSON
/// object.
pub(super) fn edit_object(rules: &BodyRules, text: &[u8]) -> Option<Vec<u8>> {
    edit_batches(rules, |_| true, text, &Tape::default(), &mut Vec::new()).ok()?
}

/// A value in a JSON text: the value's first token, and a reader that is positioned after that token.
#[derive(Clone)]
struct ValueView<'t> {
    first: JsonToken,
    inside: TapeReader<'t>,
}

impl<'t> ValueView<'t> {
    /// Returns the value that begins with `first`, the token that `reader` has just read.
    fn new(first: JsonToken, reader: &TapeReader<'t>) -> Self {
        let inside = reader.clone();
        Self { first, inside }
    }

    /// Whether this value passes the test of an edit's condition.
    fn passes(&self, test: &FieldTest) -> bool {
        let found = test
            .path
            .iter()
            .try_fold(self.clone(), |place, name| place.member(name));
        match (&test.test, found) {
            (ValueTest::Present(wanted), found) => found.is_some() == *wanted,
            (ValueTest::In(allowed), Some(place)) => {
                let value = place.text();
                allowed.iter().any(|scalar| equals_scalar(value, scalar))
            }
            (ValueTest::StartsWith(beginning), Some(place)) => begins_with(place.text(), beginning),
            (ValueTest::In(_) | ValueTest::StartsWith(_), None) => false,
        }
    }

    /// Returns the member with this name; `None` if it is missing or this value is not an object. If the object has several such
    /// members, returns the last one.
    fn member(mut self, name: &str) -> Option<Self> {
        if self.first.kind != JsonTokenKind::Object {
            return None;
        }
        let mut found = None;
        loop {
            let key = self.inside.next_token().ok()?;
            if key.kind == JsonTokenKind::End {
                return found;
            }
            let first = self.inside.next_token().ok()?;
            if is_string(self.inside.bytes(key.start..key.end), name) {
                found = Some(Self::new(first, &self.inside));
            }
            self.inside.skip_value(first).ok()?;
        }
    }

    /// Returns all bytes of the value.
    fn text(mut self) -> &'t [u8] {
        let range = self.inside.skip_value(self.first).unwrap_or_default();
        self.inside.bytes(range)
    }
}

fn equals_scalar(value: &[u8], scalar: &Scalar) -> bool {
    match scalar {
        Scalar::Text(text) => is_string(value, text),
        Scalar::Number(number) => JsonNumber::from_token(value).is_some_and(|value| value.equals(*number)),
        Scalar::Truth(truth) => value == if *truth { &b"true"[..] } else { b"false" },
    }
}

/// Whether a value, given as JSON text, is a string whose text begins with `beginning`. The string is copied only if an escape
/// occurs within the length of `beginning` and the text before the escape matches.
fn begins_with(value: &[u8], beginning: &str) -> bool {
    let Some(inner) = value.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")) else {
        return false;
    };
    let wanted = beginning.as_bytes();
    let head = inner.get(..wanted.len()).unwrap_or(inner);
    let plain_length = memchr::memchr(b'\\', head).unwrap_or(head.len());
    if head.get(..plain_length) != wanted.get(..plain_length) {
        return false;
    }
    match plain_length == head.len() {
        true => head.len() == wanted.len(),
        false => unescaped(value).is_some_and(|text| text.starts_with(beginning)),
    }
}

/// The maximum number of characters that a message quotes from a client's value.
const VALUE_CHARS_MAX: usize = 64;

/// Returns a refusal if `value` is one of the values that `which` describes. `indexes` are the array indexes on the path of
/// `value`. The message can contain them.
fn refuse_matching(
    edit: &BodyEdit,
    which: &RefusedValues,
    message: &str,
    value: &[u8],
    indexes: &[usize],
) -> Result<(), EditError> {
    let is_refused = match which {
        RefusedValues::Any => true,
        RefusedValues::Outside(bounds) => bounds.exceeded_by(value).is_some(),
        RefusedValues::Listed(values) => values.iter().any(|text| is_string(value, text)),
    };
    if !is_refused {
        return Ok(());
    }
    let path = |path| path_text(path, &mut indexes.iter().copied().map(Some));
    Err(EditError::Refused {
        line: edit.line,
        message: fill_placeholders(
            message,
            &[
                ("{value}", printable_value(value)),
                ("{path}", path(&edit.path)),
                ("{holder}", path(edit.holder())),
            ],
        ),
    })
}

/// Replaces the placeholders of a message in one pass, so that a client's value that looks like a placeholder is not replaced.
fn fill_placeholders(message: &str, values: &[(&str, String)]) -> String {
    let mut text = String::with_capacity(message.len());
    let mut rest = message;
    while let Some((before, after)) = rest.split_once('{') {
        text.push_str(before);
        let brace = rest.get(before.len()..).unwrap_or_default();
        match values.iter().find(|(name, _)| brace.starts_with(name)) {
            Some((name, value)) => {
                text.push_str(value);
                rest = brace.get(name.len()..).unwrap_or_default();
            }
            None => {
                text.push('{');
                rest = after;
            }
        }
    }
    text.push_str(rest);
    text
}

/// Returns a client's JSON value for use in a message: unescaped, shortened, and without control characters.
fn printable_value(value: &[u8]) -> String {
    // An escaped character takes up to 12 bytes. A longer value is shortened in any case, so it is not unescaped.
    let short = (value.len() <= VALUE_CHARS_MAX * 12)
        .then(|| unescaped(value))
        .flatten();
    let text = short.unwrap_or_else(|| String::from_utf8_lossy(value.get(..VALUE_CHARS_MAX * 4 + 1).unwrap_or(value)));
    let mut chars = text.chars().map(|char| if char.is_control() { ' ' } else { char });
    let mut shown: String = chars.by_ref().take(VALUE_CHARS_MAX).collect();
    if chars.next().is_some() {
        shown.push('…');
    }
    shown
}

/// The state of the walk over the members of an object or the elements of an array. It determines which commas are removed
/// together with members or elements.
#[derive(Default)]
struct Siblings {
    /// The end of the most recent sibling; `None` before the first sibling.
    last_end: Option<usize>,
    /// Whether a sibling before the current one is kept.
    any_kept: bool,
    /// The start of the most recent sibling, if it and all siblings before it are removed; otherwise `None`. In the first case,
    /// the text from this position to the start of the next sibling is removed. If no sibling follows, the text to the end of the
    /// most recent sibling is removed.
    removed_from: Option<usize>,
}

impl Siblings {
    /// Records that a sibling begins at `start`. Returns the range of text to remove; `None` if no text is to be removed now.
    fn begin(&mut self, start: usize) -> Option<Range<usize>> {
        self.removed_from.take().map(|from| from..start)
    }

    /// Records that the sibling at `place` has ended. Returns the range of text to remove; `None` if no text is to be removed
    /// now.
    fn end(&mut self, place: Range<usize>, is_removed: bool) -> Option<Range<usize>> {
        let previous_end = self.last_end.replace(place.end);
        if !is_removed {
            self.any_kept = true;
            return None;
        }
        match previous_end {
            Some(end) if self.any_kept => Some(end..place.end),
            Some(_) | None => {
                self.removed_from = Some(place.start);
                None
            }
        }
    }

    /// Records that the object or array has ended. Returns the range of text to remove; `None` if no text is to be removed now.
    fn close(&mut self) -> Option<Range<usize>> {
        self.removed_from
            .take()
            .zip(self.last_end)
            .map(|(start, end)| start..end)
    }
}

/// The reason why a body was not edited.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// The body is not one JSON object, so no edit can be spliced into it.
    #[error("the body cannot be edited: {0}")]
    NotJson(#[from] ScanError),
    /// An edit refuses the request.
    #[error("{message}")]
    Refused {
        /// The edit's line in the provider's file, counted from 1.
        line: usize,
        /// The message to the client. If the message quotes text from the request, the length of the quotation is limited.
        message: String,
    },
}

/// A replacement for a range of the original text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::domain::rules) struct Splice<'r> {
    pub(in crate::domain::rules) range: Range<usize>,
    pub(in crate::domain::rules) text: Cow<'r, str>,
}

/// Returns `text` as a JSON string with its quotes.
pub(in crate::domain::rules) fn json_string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Returns a copy of `text` with all splices applied. Splices must not overlap. Splices at the same position are applied in the
/// order in which `splices` contains them.
pub(in crate::domain::rules) fn apply_splices(text: &[u8], splices: &mut [Splice<'_>]) -> Vec<u8> {
    splices.sort_by_key(|splice| splice.range.start);
    let added: usize = splices.iter().map(|splice| splice.text.len()).sum();
    let mut out = Vec::with_capacity(text.len() + added);
    let mut done = 0;
    for splice in splices {
        out.extend_from_slice(text.get(done..splice.range.start).unwrap_or_default());
        out.extend_from_slice(splice.text.as_bytes());
        done = splice.range.end;
    }
    out.extend_from_slice(text.get(done..).unwrap_or_default());
    out
}
