//! One walk over a body that finds the places of one batch of edits. It enters only what lies on the path of an edit
//! and skips everything else in bulk; its recursion is as deep as the deepest path of the batch, whatever the body.

use std::{borrow::Cow, ops::Range};

use smallvec::SmallVec;

use super::{
    EditError, Splice,
    cursor::{Cursor, is_string},
    fields, json_string,
    refusal::refusal,
    siblings::Siblings,
};
use crate::domain::rules::{
    body::{BodyEdit, BodyOp, Segment},
    condition::FieldBase,
};

/// An edit on the way to its place.
#[derive(Clone, Copy)]
struct Active<'r> {
    edit: &'r BodyEdit,
    rest: &'r [Segment],
}

type ActiveEdits<'r> = SmallVec<[Active<'r>; 8]>;

/// Adds the splices of edits that are in one batch. Gives where the object ends.
pub(super) fn find<'r>(
    edits: impl Iterator<Item = &'r BodyEdit>,
    text: &[u8],
    splices: &mut Vec<Splice<'r>>,
) -> Result<usize, EditError> {
    let active: ActiveEdits<'r> = edits.map(|edit| Active { edit, rest: &edit.path }).collect();
    if active.is_empty() {
        return Ok(text.len());
    }
    let mut cursor = Cursor::new(text, 0);
    cursor.space();
    let mut walk = Walk {
        text,
        root: cursor.at,
        cursor,
        splices,
        indexes: SmallVec::new(),
        root_answers: SmallVec::new(),
    };
    walk.object(&active)?;
    Ok(walk.cursor.at)
}

struct Walk<'t, 'r, 's> {
    text: &'t [u8],
    /// Where the body's value begins.
    root: usize,
    cursor: Cursor<'t>,
    splices: &'s mut Vec<Splice<'r>>,
    /// The indexes of the array elements that the cursor is in.
    indexes: SmallVec<[usize; 4]>,
    /// Whether the conditions on the root hold, for the edits that had to know.
    root_answers: SmallVec<[(&'r BodyEdit, bool); 4]>,
}

/// What has been seen of one object.
#[derive(Default)]
struct Members<'r> {
    /// Where the object begins.
    start: usize,
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

impl<'r> Walk<'_, 'r, '_> {
    fn object(&mut self, active: &[Active<'r>]) -> Result<(), EditError> {
        let mut members = Members {
            start: self.cursor.at,
            ..Members::default()
        };
        self.cursor.expect(b'{')?;
        let opened = self.cursor.at;
        loop {
            self.cursor.space();
            match self.cursor.peek() {
                Some(b'"') => self.member(active, &mut members)?,
                Some(b',') => self.cursor.at += 1,
                Some(b'}') => break,
                Some(_) | None => return Err(self.cursor.fault()),
            }
        }
        self.cursor.at += 1;
        self.cut(members.siblings.close());
        for (index, splice) in std::mem::take(&mut members.renamed) {
            if !members.taken.contains(&index) {
                self.splices.push(splice);
            }
        }
        let last_end = members.siblings.last_end;
        let mut comma = if last_end.is_some() { "," } else { "" };
        let end = last_end.unwrap_or(opened);
        for (index, active) in active.iter().enumerate() {
            let (BodyOp::Set { value }, [Segment::Member(name)]) = (&active.edit.op, active.rest) else {
                continue;
            };
            if !members.found.contains(&index) && self.applies(active.edit, index, &mut members) {
                self.put(end..end, format!("{comma}{}:{value}", json_string(name)).into());
                comma = ",";
            }
        }
        Ok(())
    }

    fn member(&mut self, active: &[Active<'r>], members: &mut Members<'r>) -> Result<(), EditError> {
        let start = self.cursor.at;
        self.cut(members.siblings.begin(start));
        let name_place = self.cursor.name()?;
        let name = self.cursor.token(name_place.clone());
        let value_start = self.cursor.at;
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
        self.value(&deeper)?;
        let value = value_start..self.cursor.at;
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
                    let (range, text) = (name_place.clone(), json_string(to).into());
                    members.renamed.push((index, Splice { range, text }));
                }
                _ => self.edit_value(edit, value.clone())?,
            }
        }
        let cut = members.siblings.end(start..value.end, is_removed);
        self.cut(cut);
        Ok(())
    }

    /// Goes through a value with the edits of places in it.
    fn value(&mut self, deeper: &[Active<'r>]) -> Result<(), EditError> {
        let for_array = |active: &Active<'r>| active.rest.first() == Some(&Segment::Each);
        match self.cursor.peek() {
            Some(b'{') if deeper.iter().any(|active| !for_array(active)) => self.object(deeper),
            Some(b'[') if deeper.iter().any(for_array) => self.array(deeper),
            Some(_) | None => self.cursor.skip_value(),
        }
    }

    fn array(&mut self, active: &[Active<'r>]) -> Result<(), EditError> {
        let mut here = ActiveEdits::new();
        let mut deeper = ActiveEdits::new();
        for Active { edit, rest } in active {
            match rest {
                [Segment::Each] => here.push(Active { edit, rest }),
                [Segment::Each, rest @ ..] => deeper.push(Active { edit, rest }),
                _ => {}
            }
        }
        self.cursor.expect(b'[')?;
        let mut siblings = Siblings::default();
        self.indexes.push(0);
        loop {
            self.cursor.space();
            match self.cursor.peek() {
                Some(b',') => self.cursor.at += 1,
                Some(b']') => break,
                Some(_) => self.element(&here, &deeper, &mut siblings)?,
                None => return Err(self.cursor.fault()),
            }
        }
        self.cursor.at += 1;
        self.indexes.pop();
        self.cut(siblings.close());
        Ok(())
    }

    fn element(
        &mut self,
        here: &[Active<'r>],
        deeper: &[Active<'r>],
        siblings: &mut Siblings,
    ) -> Result<(), EditError> {
        let start = self.cursor.at;
        self.cut(siblings.begin(start));
        self.value(deeper)?;
        let place = start..self.cursor.at;
        let mut is_removed = false;
        for Active { edit, .. } in here {
            if !self.fields_hold(edit, start) {
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
    fn applies(&mut self, edit: &'r BodyEdit, index: usize, members: &mut Members<'r>) -> bool {
        if edit.when.is_empty() {
            return true;
        }
        if let Some((_, answer)) = members.answers.iter().find(|(known, _)| *known == index) {
            return *answer;
        }
        let answer = self.fields_hold(edit, members.start);
        members.answers.push((index, answer));
        answer
    }

    /// Whether the conditions on the text hold, with the holder at this place.
    fn fields_hold(&mut self, edit: &'r BodyEdit, holder: usize) -> bool {
        let on_holder = edit
            .field_tests()
            .filter(|test| test.base == FieldBase::Holder)
            .all(|test| fields::holds(self.text, holder, test));
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
            .all(|test| fields::holds(self.text, self.root, test));
        self.root_answers.push((edit, answer));
        answer
    }

    fn edit_value(&mut self, edit: &'r BodyEdit, place: Range<usize>) -> Result<(), EditError> {
        let value = self.cursor.token(place.clone());
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
