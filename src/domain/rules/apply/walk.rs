//! Walks through the JSON tokens of a body and finds the splices of one batch of edits. The walk enters only values on the path
//! of an edit and skips all others. The recursion is therefore at most as deep as the longest path of the batch, regardless of
//! the depth of the body.

use std::{borrow::Cow, ops::Range};

use smallvec::SmallVec;

use super::{EditError, Splice, json_string};
use crate::domain::rules::apply::{Siblings, ValueView, refuse_matching};
use crate::domain::{
    rules::{
        body::{BodyEdit, BodyOp, BodyPathStep},
        condition::FieldBase,
    },
    wire::json_scan::{JsonToken, JsonTokenKind, Tape, TapeReader, is_string},
};

/// An edit whose path leads into the current value, and the remaining steps of that path.
#[derive(Clone, Copy)]
struct PendingEdit<'r> {
    edit: &'r BodyEdit,
    rest: &'r [BodyPathStep],
}

type PendingEdits<'r> = SmallVec<[PendingEdit<'r>; 8]>;

/// Adds the splices of one batch of edits to `splices`. `text` is one JSON object; `tape` describes it, or is empty.
pub(super) fn find_splices<'r>(
    edits: impl Iterator<Item = &'r BodyEdit>,
    text: &[u8],
    tape: &Tape,
    splices: &mut Vec<Splice<'r>>,
) -> Result<(), EditError> {
    let active: PendingEdits<'r> = edits.map(|edit| PendingEdit { edit, rest: &edit.path }).collect();
    let mut reader = TapeReader::new(text, tape);
    let first = reader.next_token()?;
    let mut walk = Walk {
        root: ValueView::new(first, &reader),
        reader,
        splices,
        indexes: SmallVec::new(),
        root_answers: SmallVec::new(),
    };
    walk.object(first, &active)?;
    Ok(walk.reader.expect_end()?)
}

struct Walk<'t, 'r, 's> {
    reader: TapeReader<'t>,
    /// The root value of the body.
    root: ValueView<'t>,
    splices: &'s mut Vec<Splice<'r>>,
    /// For each array that contains the reader's position, the index of the current element. The outermost array is first.
    indexes: SmallVec<[usize; 4]>,
    /// For each edit, whether its conditions on the root of the body hold.
    root_answers: SmallVec<[(&'r BodyEdit, bool); 4]>,
}

/// The state of the walk through the members of one object.
struct Members<'t, 'r> {
    object: ValueView<'t>,
    siblings: Siblings,
    /// The edits whose member was found. Each is given as its index in the list of active edits.
    found: SmallVec<[usize; 8]>,
    /// The results of edits' conditions for this object: the edit's index, and whether its conditions hold.
    answers: SmallVec<[(usize, bool); 4]>,
    /// The splices that rename a member, by the edit's index. A splice is dropped if another member of the object already has the
    /// new name.
    renamed: Vec<(usize, Splice<'r>)>,
    /// The indexes of the edits that would rename a member to a name that another member already has.
    taken: SmallVec<[usize; 8]>,
}

impl<'t, 'r> Walk<'t, 'r, '_> {
    /// Walks through the object that begins with the token `first`. Returns the position after its end.
    fn object(&mut self, first: JsonToken, active: &[PendingEdit<'r>]) -> Result<usize, EditError> {
        let mut members = Members {
            object: ValueView::new(first, &self.reader),
            siblings: Siblings::default(),
            found: SmallVec::new(),
            answers: SmallVec::new(),
            renamed: Vec::new(),
            taken: SmallVec::new(),
        };
        let closing = loop {
            let token = self.reader.next_token()?;
            if token.kind == JsonTokenKind::End {
                break token;
            }
            self.member(token, active, &mut members)?;
        };
        self.cut(members.siblings.close());
        for (index, splice) in std::mem::take(&mut members.renamed) {
            if !members.taken.contains(&index) {
                self.splices.push(splice);
            }
        }
        let last_end = members.siblings.last_end;
        let mut comma = if last_end.is_some() { "," } else { "" };
        let end = last_end.unwrap_or(first.end);
        for (index, active) in active.iter().enumerate() {
            let (BodyOp::Set { value }, [BodyPathStep::Member(name)]) = (&active.edit.op, active.rest) else {
                continue;
            };
            if !members.found.contains(&index) && self.applies(active.edit, index, &mut members) {
                self.put(end..end, format!("{comma}{}:{value}", json_string(name)).into());
                comma = ",";
            }
        }
        Ok(closing.end)
    }

    /// Walks through the member whose name is the token `key`, which has just been read.
    fn member(
        &mut self,
        key: JsonToken,
        active: &[PendingEdit<'r>],
        members: &mut Members<'t, 'r>,
    ) -> Result<(), EditError> {
        self.cut(members.siblings.begin(key.start));
        let name = self.reader.bytes(key.start..key.end);
        let mut here: SmallVec<[usize; 4]> = SmallVec::new();
        let mut deeper = PendingEdits::new();
        for (index, active) in active.iter().enumerate() {
            let [BodyPathStep::Member(first), rest @ ..] = active.rest else {
                continue;
            };
            if is_string(name, first) {
                if rest.is_empty() {
                    here.push(index);
                } else {
                    let edit = active.edit;
                    deeper.push(PendingEdit { edit, rest });
                }
            } else if rest.is_empty() && matches!(&active.edit.op, BodyOp::Rename { to } if is_string(name, to)) {
                members.taken.push(index);
            }
        }
        let first = self.reader.next_token()?;
        let value = self.value(first, &deeper)?;
        let mut is_removed = false;
        for index in here {
            let Some(PendingEdit { edit, .. }) = active.get(index) else {
                continue;
            };
            members.found.push(index);
            if !self.applies(edit, index, members) {
                continue;
            }
            match &edit.op {
                BodyOp::Remove => is_removed = true,
                BodyOp::Rename { to } => {
                    let (range, text) = (key.start..key.end, json_string(to).into());
                    members.renamed.push((index, Splice { range, text }));
                }
                _ => self.edit_value(edit, value.clone())?,
            }
        }
        let cut = members.siblings.end(key.start..value.end, is_removed);
        self.cut(cut);
        Ok(())
    }

    /// Walks through the value that begins with the token `first`, and returns its range. `deeper` are the edits whose paths lead
    /// into it.
    fn value(&mut self, first: JsonToken, deeper: &[PendingEdit<'r>]) -> Result<Range<usize>, EditError> {
        let for_array = |active: &PendingEdit<'r>| active.rest.first() == Some(&BodyPathStep::Each);
        let end = match first.kind {
            JsonTokenKind::Object if deeper.iter().any(|active| !for_array(active)) => self.object(first, deeper)?,
            JsonTokenKind::Array if deeper.iter().any(for_array) => self.array(deeper)?,
            _ => return Ok(self.reader.skip_value(first)?),
        };
        Ok(first.start..end)
    }

    /// Walks through the array whose opening bracket has just been read. Returns the position after its end.
    fn array(&mut self, active: &[PendingEdit<'r>]) -> Result<usize, EditError> {
        let mut here = PendingEdits::new();
        let mut deeper = PendingEdits::new();
        for PendingEdit { edit, rest } in active {
            match rest {
                [BodyPathStep::Each] => here.push(PendingEdit { edit, rest }),
                [BodyPathStep::Each, rest @ ..] => deeper.push(PendingEdit { edit, rest }),
                _ => {}
            }
        }
        let mut siblings = Siblings::default();
        self.indexes.push(0);
        let closing = loop {
            let token = self.reader.next_token()?;
            if token.kind == JsonTokenKind::End {
                break token;
            }
            self.element(token, &here, &deeper, &mut siblings)?;
        };
        self.indexes.pop();
        self.cut(siblings.close());
        Ok(closing.end)
    }

    fn element(
        &mut self,
        first: JsonToken,
        here: &[PendingEdit<'r>],
        deeper: &[PendingEdit<'r>],
        siblings: &mut Siblings,
    ) -> Result<(), EditError> {
        self.cut(siblings.begin(first.start));
        let splices_before = self.splices.len();
        let element = ValueView::new(first, &self.reader);
        let place = self.value(first, deeper)?;
        let mut is_removed = false;
        for PendingEdit { edit, .. } in here {
            if !self.fields_hold(edit, &element) {
                continue;
            }
            match &edit.op {
                BodyOp::Remove => is_removed = true,
                _ => self.edit_value(edit, place.clone())?,
            }
        }
        if is_removed {
            // The changes that other edits have made inside the element are removed with it.
            self.splices.truncate(splices_before);
        }
        let cut = siblings.end(place, is_removed);
        self.cut(cut);
        if let Some(index) = self.indexes.last_mut() {
            *index += 1;
        }
        Ok(())
    }

    /// Whether an edit's conditions on the body hold for a member of the object through which `members` walks. The conditions are
    /// evaluated once for all members of the same name.
    fn applies(&mut self, edit: &'r BodyEdit, index: usize, members: &mut Members<'t, 'r>) -> bool {
        if edit.when.is_empty() {
            return true;
        }
        if let Some((_, answer)) = members.answers.iter().find(|(known, _)| *known == index) {
            return *answer;
        }
        let answer = self.fields_hold(edit, &members.object);
        members.answers.push((index, answer));
        answer
    }

    /// Whether an edit's conditions on the body hold. `holder` is either the object that contains the edited member, or the
    /// edited array element itself.
    fn fields_hold(&mut self, edit: &'r BodyEdit, holder: &ValueView<'t>) -> bool {
        let on_holder = edit
            .field_tests()
            .filter(|test| test.base == FieldBase::Holder)
            .all(|test| holder.passes(test));
        on_holder && self.root_holds(edit)
    }

    fn root_holds(&mut self, edit: &'r BodyEdit) -> bool {
        let known = self.root_answers.iter().find(|(known, _)| std::ptr::eq(*known, edit));
        if let Some((_, answer)) = known {
            return *answer;
        }
        let answer = edit
            .field_tests()
            .filter(|test| test.base == FieldBase::Root)
            .all(|test| self.root.passes(test));
        self.root_answers.push((edit, answer));
        answer
    }

    fn edit_value(&mut self, edit: &'r BodyEdit, place: Range<usize>) -> Result<(), EditError> {
        let value = self.reader.bytes(place.clone());
        let new = match &edit.op {
            BodyOp::Set { value: new } => (value != new.as_bytes()).then_some(new),
            BodyOp::Clamp { range } => range.exceeded_by(value).map(|bound| &bound.text),
            BodyOp::Map { values } => values.iter().find(|(from, _)| is_string(value, from)).map(|(_, to)| to),
            BodyOp::Refuse { which, message } => return refuse_matching(edit, which, message, value, &self.indexes),
            BodyOp::Remove | BodyOp::Rename { .. } => None,
        };
        if let Some(new) = new {
            self.put(place, Cow::Borrowed(new));
        }
        Ok(())
    }

    fn cut(&mut self, place: Option<Range<usize>>) {
        if let Some(place) = place {
            self.put(place, Cow::Borrowed(""));
        }
    }

    fn put(&mut self, range: Range<usize>, text: Cow<'r, str>) {
        self.splices.push(Splice { range, text });
    }
}
