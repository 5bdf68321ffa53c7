//! Applies a provider's body edits by splicing them into the client's text. What no edit names stays byte for byte: order,
//! white space, number spelling, unknown members.

mod fields;
mod refusal;
mod siblings;
mod splice;
mod walk;

pub use splice::EditError;
pub(super) use splice::{Splice, apply_splices, json_string};

use crate::domain::{
    rules::{
        body::{BodyEdit, BodyRules},
        condition::RequestFacts,
    },
    wire::json_scan::{Scan, Tape},
};

/// Edits a body that `scan` has accepted: replaces the model's name, if the body has it, by `upstream_model`, then applies the
/// provider's edits in the order of its file. `None`: unchanged, and nothing was copied.
///
/// An edit applies to all members of its name, if several have it. An edit whose member is missing does nothing, except that
/// `set` adds the last member of its path, but not its parents. Numbers too large for any machine type are compared as
/// infinite.
///
/// # Errors
/// An edit refuses the request, or `text` is not the object that was scanned.
pub fn edit_body(
    rules: &BodyRules,
    facts: &RequestFacts<'_>,
    text: &[u8],
    scan: &Scan,
) -> Result<Option<Vec<u8>>, EditError> {
    let mut splices: Vec<Splice<'_>> = model_splice(facts, scan).into_iter().collect();
    let edited = edit_batches(rules, |edit| edit.applies_to(facts), text, &scan.tape, &mut splices)?;
    // If no edit changed anything, at most the model's splice is left.
    Ok(edited.or_else(|| (!splices.is_empty()).then(|| apply_splices(text, &mut splices))))
}

/// The text after all edits that apply. The given `splices` are applied together with those of the first batch that has an
/// edit. `None`: no edit changed anything.
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
            // The tape belongs to the original text.
            Some(current) => walk::find_splices(edits, current, &Tape::default(), splices)?,
        }
        if !splices.is_empty() {
            edited = Some(apply_splices(edited.as_deref().unwrap_or(text), splices));
            splices.clear();
        }
    }
    Ok(edited)
}

/// The splice that puts the provider's name for the model into the body; `None` if the body does not name the model, or already
/// by that name.
pub(super) fn model_splice(facts: &RequestFacts<'_>, scan: &Scan) -> Option<Splice<'static>> {
    let model = scan.model.as_ref()?;
    (!facts.operation.has_model_in_path() && model.text != facts.upstream_model).then(|| Splice {
        range: model.value.clone(),
        text: json_string(facts.upstream_model).into(),
    })
}

/// The splices of one edit in a text.
pub(super) fn edit_splices<'r>(edit: &'r BodyEdit, text: &[u8]) -> Result<Vec<Splice<'r>>, EditError> {
    let mut splices = Vec::new();
    walk::find_splices(std::iter::once(edit), text, &Tape::default(), &mut splices)?;
    Ok(splices)
}

/// Applies all `rules` to one JSON object of an answer. `None`: unchanged. A text that is broken or not an object also stays
/// unchanged.
pub(super) fn edit_object(rules: &BodyRules, text: &[u8]) -> Option<Vec<u8>> {
    edit_batches(rules, |_| true, text, &Tape::default(), &mut Vec::new()).ok()?
}

#[cfg(test)]
mod tests;
