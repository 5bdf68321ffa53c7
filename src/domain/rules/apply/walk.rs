//! Finds the places of one batch of edits among the tokens of a body. It enters only what lies on the path of an edit and
//! skips everything else; its recursion is as deep as the deepest path of the batch, whatever the body.

use std::{borrow::Cow, ops::Range};

use smallvec::SmallVec;

use super::{EditError, Splice, fields::Place, json_string, refusal::refusal, siblings::Siblings};
use crate::domain::{
    rules::{
        body::{BodyEdit, BodyOp, Segment},
        condition::FieldBase,
    },
    wire::json_scan::{Kind, Reader, Tape, Token, is_string},
};

/// An edit on the way to its place.
#[derive(Clone, Copy)]
struct Active<'r> {
    edit: &'r BodyEdit,
    rest: &'r [Segment],
}

type ActiveEdits<'r> = SmallVec<[Active<'r>; 8]>;

/// Adds the splices of edits that are in one batch, in a text with this tape: one JSON object.
pub(super) fn find<'r>(
    edits: impl Iterator<Item = &'r BodyEdit>,
    text: &[u8],
    tape: &Tape,
    splices: &mut Vec<Splice<'r>>,
) -> Result<(), EditError> {
    let active: ActiveEdits<'r> = edits.map(|edit| Active { edit, rest: &edit.path }).collect();
    let mut reader = Reader::new(text, tape);
    let first = reader.token()?;
    let mut walk = Walk {
        root: Place::new(first, &reader),
        reader,
        splices,
        indexes: SmallVec::new(),
        root_answers: SmallVec::new(),
    };
    walk.object(first, &active)?;
    Ok(walk.reader.end()?)
}

struct Walk<'t, 'r, 's> {
    reader: Reader<'t>,
    /// The body's value.
    root: Place<'t>,
    splices: &'s mut Vec<Splice<'r>>,
    /// The indexes of the array elements that the reader is in.
    indexes: SmallVec<[usize; 4]>,
    /// Whether the conditions on the root hold, for the edits that had to know.
    root_answers: SmallVec<[(&'r BodyEdit, bool); 4]>,
}

/// What has been seen of one object.
struct Members<'t, 'r> {
    object: Place<'t>,
    siblings: Siblings,
    /// The edits whose place was there, by index.
    found: SmallVec<[usize; 8]>,
    /// Whether the conditions on this object hold, for the edits that had to know, by index.
    answers: SmallVec<[(usize, bool); 4]>,
    /// The renamed members, by index of the edit: not renamed if the new name turns out to be taken.
    renamed: Vec<(usize, Splice<'r>)>,
    /// The renames whose new name is taken.
    taken: SmallVec<[usize; 8]>,
}

impl<'t, 'r> Walk<'t, 'r, '_> {
    /// Goes through the object that has just opened; gives where it ends.
    fn object(&mut self, first: Token, active: &[Active<'r>]) -> Result<usize, EditError> {
        let mut members = Members {
            object: Place::new(first, &self.reader),
            siblings: Siblings::default(),
            found: SmallVec::new(),
            answers: SmallVec::new(),
            renamed: Vec::new(),
            taken: SmallVec::new(),
        };
        let closing = loop {
            let token = self.reader.token()?;
            if token.kind == Kind::End {
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
            let (BodyOp::Set { value }, [Segment::Member(name)]) = (&active.edit.op, active.rest) else {
                continue;
            };
            if !members.found.contains(&index) && self.applies(active.edit, index, &mut members) {
                self.put(end..end, format!("{comma}{}:{value}", json_string(name)).into());
                comma = ",";
            }
        }
        Ok(closing.end)
    }

    /// A member, from its name on.
    fn member(&mut self, key: Token, active: &[Active<'r>], members: &mut Members<'t, 'r>) -> Result<(), EditError> {
        self.cut(members.siblings.begin(key.start));
        let name = self.reader.bytes(key.start..key.end);
        let mut here: SmallVec<[usize; 4]> = SmallVec::new();
        let mut deeper = ActiveEdits::new();
        for (index, active) in active.iter().enumerate() {
            let [Segment::Member(first), rest @ ..] = active.rest else {
                continue;
            };
            if is_string(name, first) {
                if rest.is_empty() {
                    here.push(index);
                } else {
                    let edit = active.edit;
                    deeper.push(Active { edit, rest });
                }
            } else if rest.is_empty() && matches!(&active.edit.op, BodyOp::Rename { to } if is_string(name, to)) {
                members.taken.push(index);
            }
        }
        let first = self.reader.token()?;
        let value = self.value(first, &deeper)?;
        let mut is_removed = false;
        for index in here {
            let Some(Active { edit, .. }) = active.get(index) else {
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

    /// Goes through a value with the edits of places in it.
    fn value(&mut self, first: Token, deeper: &[Active<'r>]) -> Result<Range<usize>, EditError> {
        let for_array = |active: &Active<'r>| active.rest.first() == Some(&Segment::Each);
        let end = match first.kind {
            Kind::Object if deeper.iter().any(|active| !for_array(active)) => self.object(first, deeper)?,
            Kind::Array if deeper.iter().any(for_array) => self.array(deeper)?,
            _ => return Ok(self.reader.value(first)?),
        };
        Ok(first.start..end)
    }

    /// Goes through the array that has just opened; gives where it ends.
    fn array(&mut self, active: &[Active<'r>]) -> Result<usize, EditError> {
        let mut here = ActiveEdits::new();
        let mut deeper = ActiveEdits::new();
        for Active { edit, rest } in active {
            match rest {
                [Segment::Each] => here.push(Active { edit, rest }),
                [Segment::Each, rest @ ..] => deeper.push(Active { edit, rest }),
                _ => {}
            }
        }
        let mut siblings = Siblings::default();
        self.indexes.push(0);
        let closing = loop {
            let token = self.reader.token()?;
            if token.kind == Kind::End {
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
        first: Token,
        here: &[Active<'r>],
        deeper: &[Active<'r>],
        siblings: &mut Siblings,
    ) -> Result<(), EditError> {
        self.cut(siblings.begin(first.start));
        let element = Place::new(first, &self.reader);
        let place = self.value(first, deeper)?;
        let mut is_removed = false;
        for Active { edit, .. } in here {
            if !self.fields_hold(edit, &element) {
                continue;
            }
            match &edit.op {
                BodyOp::Remove => is_removed = true,
                _ => self.edit_value(edit, place.clone())?,
            }
        }
        let cut = siblings.end(place, is_removed);
        self.cut(cut);
        if let Some(index) = self.indexes.last_mut() {
            *index += 1;
        }
        Ok(())
    }

    /// Whether the conditions on the text hold for an edit of a member of this object: asked once for all of its name.
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

    /// Whether the conditions on the text hold, with this holder.
    fn fields_hold(&mut self, edit: &'r BodyEdit, holder: &Place<'t>) -> bool {
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
            BodyOp::Refuse { which, message } => return refusal(edit, which, message, value, &self.indexes),
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
