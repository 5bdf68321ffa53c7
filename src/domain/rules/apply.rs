//! Applies a provider's body edits by splicing them into the client's text. Everything that no edit names stays byte
//! for byte: order, white space, number spelling, unknown members.

mod fields;
mod refusal;
mod siblings;
mod splice;
mod walk;

pub use splice::EditError;
pub(super) use splice::{Splice, json_string, spliced};

use crate::domain::{
    rules::{
        body::{BodyEdit, BodyRules},
        condition::RequestFacts,
    },
    wire::json_scan::{Scan, Tape},
};

/// Edits a body that `scan` has accepted: the model becomes `upstream_model` where the body names it, then the
/// provider's edits follow in the order of its file. `None` means unchanged, without a copy.
///
/// An edit applies to every member of its name, should there be several. An edit whose place is missing does nothing;
/// `set` adds the last member of its path, but no parents. Numbers beyond every machine type are compared as infinite.
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
    let edited = edit_batches(rules, |edit| edit.is_for(facts), text, &scan.tape, &mut splices)?;
    // What is left is the model alone: no edit changed anything.
    Ok(edited.or_else(|| (!splices.is_empty()).then(|| spliced(text, &mut splices))))
}

/// The text after all edits that apply; those of the first batch with one are done together with `splices`. `None` means
/// that no edit changed anything.
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
            None => walk::find(edits, text, tape, splices)?,
            // The tape is of the text as it was.
            Some(current) => walk::find(edits, current, &Tape::default(), splices)?,
        }
        if !splices.is_empty() {
            edited = Some(spliced(edited.as_deref().unwrap_or(text), splices));
            splices.clear();
        }
    }
    Ok(edited)
}

/// The model's name on its way to the provider, where the body has it and it is another.
pub(super) fn model_splice(facts: &RequestFacts<'_>, scan: &Scan) -> Option<Splice<'static>> {
    let model = scan.model.as_ref()?;
    (!facts.operation.model_in_path() && model.text != facts.upstream_model).then(|| Splice {
        range: model.value.clone(),
        text: json_string(facts.upstream_model).into(),
    })
}

/// What one edit changes in a text.
pub(super) fn splices_of<'r>(edit: &'r BodyEdit, text: &[u8]) -> Result<Vec<Splice<'r>>, EditError> {
    let mut splices = Vec::new();
    walk::find(std::iter::once(edit), text, &Tape::default(), &mut splices)?;
    Ok(splices)
}

/// Edits one JSON object of an answer with all of `rules`. `None` means unchanged: also a text that is no object, or
/// that is broken, passes as it is.
pub(super) fn edit_object(rules: &BodyRules, text: &[u8]) -> Option<Vec<u8>> {
    edit_batches(rules, |_| true, text, &Tape::default(), &mut Vec::new()).ok()?
}

#[cfg(test)]
mod tests;
