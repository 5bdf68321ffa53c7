//! One walk over a body that finds the places of one batch of edits. It enters only objects on the path of an edit and
//! skips everything else in bulk; its recursion is as deep as the deepest path of the batch, whatever the body.

use std::borrow::Cow;

use smallvec::SmallVec;

use super::{EditError, Splice, json_string};
use crate::domain::{
    protocol::Protocol,
    rules::body::{BodyEdit, BodyOp, Bound, Number, Segment},
};

/// An edit on the way to its place.
#[derive(Clone, Copy)]
struct Active<'r> {
    op: &'r BodyOp,
    rest: &'r [Segment],
}

type ActiveEdits<'r> = SmallVec<[Active<'r>; 8]>;

/// Adds the splices of the batch's edits that are for `protocol`.
pub(super) fn find<'r>(
    batch: &'r [BodyEdit],
    protocol: Protocol,
    text: &[u8],
    splices: &mut Vec<Splice<'r>>,
) -> Result<(), EditError> {
    let edits = batch.iter().filter(|edit| edit.is_for(protocol));
    let active: ActiveEdits<'r> = edits
        .map(|edit| Active {
            op: &edit.op,
            rest: &edit.path,
        })
        .collect();
    if active.is_empty() {
        return Ok(());
    }
    let mut walk = Walk { text, at: 0, splices };
    walk.space();
    walk.object(&active)
}

struct Walk<'t, 'r, 's> {
    text: &'t [u8],
    at: usize,
    splices: &'s mut Vec<Splice<'r>>,
}

/// What has been seen of one object.
#[derive(Default)]
struct Members<'r> {
    /// The end of the last value.
    last_end: Option<usize>,
    /// Whether a member stays that was there before.
    any_kept: bool,
    /// The start of removed members at the beginning of the object: they go up to the first that stays.
    removed_from: Option<usize>,
    /// The edits whose place was there, by index.
    found: SmallVec<[usize; 8]>,
    /// The renamed members, by index of the edit: not renamed if the new name turns out to be taken.
    renamed: Vec<(usize, Splice<'r>)>,
    /// The renames whose new name is taken.
    taken: SmallVec<[usize; 8]>,
}

impl<'r> Walk<'_, 'r, '_> {
    fn object(&mut self, active: &[Active<'r>]) -> Result<(), EditError> {
        self.expect(b'{')?;
        let opened = self.at;
        let mut members = Members::default();
        loop {
            self.space();
            match self.peek() {
                Some(b'"') => self.member(active, &mut members)?,
                Some(b',') => self.at += 1,
                Some(b'}') => break,
                Some(_) | None => return Err(self.fault()),
            }
        }
        self.at += 1;
        if let (Some(start), Some(end)) = (members.removed_from, members.last_end) {
            self.cut(start, end);
        }
        for (index, splice) in members.renamed {
            if !members.taken.contains(&index) {
                self.splices.push(splice);
            }
        }
        let mut comma = if members.last_end.is_some() { "," } else { "" };
        let end = members.last_end.unwrap_or(opened);
        for (index, edit) in active.iter().enumerate() {
            let (BodyOp::Set { value }, [Segment::Member(name)]) = (edit.op, edit.rest) else {
                continue;
            };
            if !members.found.contains(&index) {
                self.put(end, end, format!("{comma}{}:{value}", json_string(name)).into());
                comma = ",";
            }
        }
        Ok(())
    }

    fn member(&mut self, active: &[Active<'r>], members: &mut Members<'r>) -> Result<(), EditError> {
        let name_start = self.at;
        if let Some(start) = members.removed_from.take() {
            self.cut(start, name_start);
        }
        self.skip_string()?;
        let name_end = self.at;
        self.space();
        self.expect(b':')?;
        self.space();
        let value_start = self.at;
        let name = self.text.get(name_start..name_end).unwrap_or_default();
        let mut here = None;
        let mut deeper = ActiveEdits::new();
        for (index, edit) in active.iter().enumerate() {
            match edit.rest {
                [Segment::Member(only)] if is_name(name, only) => here = Some((index, edit.op)),
                [_] if matches!(edit.op, BodyOp::Rename { to } if is_name(name, to)) => members.taken.push(index),
                [Segment::Member(first), rest @ ..] if !rest.is_empty() && is_name(name, first) => {
                    deeper.push(Active { op: edit.op, rest });
                }
                _ => {}
            }
        }
        if !deeper.is_empty() && self.peek() == Some(b'{') {
            self.object(&deeper)?;
        } else {
            self.skip_value()?;
        }
        let previous_end = members.last_end.replace(self.at);
        match here {
            Some((_, BodyOp::Remove)) => match previous_end {
                Some(end) if members.any_kept => self.cut(end, self.at),
                Some(_) | None => members.removed_from = Some(name_start),
            },
            Some((index, BodyOp::Rename { to })) => {
                members.any_kept = true;
                members.renamed.push((
                    index,
                    Splice {
                        range: name_start..name_end,
                        text: json_string(to).into(),
                    },
                ));
            }
            Some((index, op)) => {
                members.any_kept = true;
                members.found.push(index);
                self.edit_value(op, value_start);
            }
            None => members.any_kept = true,
        }
        Ok(())
    }

    fn edit_value(&mut self, op: &'r BodyOp, start: usize) {
        let value = self.text.get(start..self.at).unwrap_or_default();
        let new = match op {
            BodyOp::Set { value: new } => (value != new.as_bytes()).then_some(new),
            BodyOp::Clamp { min, max } => clamped(value, min.as_ref(), max.as_ref()),
            BodyOp::Map { values } => mapped(value, values),
            BodyOp::Remove | BodyOp::Rename { .. } => None,
        };
        if let Some(new) = new {
            self.put(start, self.at, Cow::Borrowed(new));
        }
    }

    fn cut(&mut self, start: usize, end: usize) {
        self.put(start, end, Cow::Borrowed(""));
    }

    fn put(&mut self, start: usize, end: usize, text: Cow<'r, str>) {
        self.splices.push(Splice {
            range: start..end,
            text,
        });
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn rest(&self) -> &[u8] {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn fault(&self) -> EditError {
        EditError { offset: self.at }
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn expect(&mut self, byte: u8) -> Result<(), EditError> {
        if self.peek() != Some(byte) {
            return Err(self.fault());
        }
        self.at += 1;
        Ok(())
    }

    /// Looks for quotes only: one is the end unless an odd number of backslashes stands before it. Text is full of
    /// `\n`, and stopping at each costs more than looking back from the few quotes.
    fn skip_string(&mut self) -> Result<(), EditError> {
        self.expect(b'"')?;
        loop {
            let run = memchr::memchr(b'"', self.rest()).ok_or(self.fault())?;
            let before = self.rest().get(..run).unwrap_or_default();
            let backslashes = before.iter().rev().take_while(|byte| **byte == b'\\').count();
            self.at += run + 1;
            if backslashes % 2 == 0 {
                return Ok(());
            }
        }
    }

    fn skip_value(&mut self) -> Result<(), EditError> {
        let mut depth = 0_usize;
        loop {
            match self.peek().ok_or(self.fault())? {
                b'"' => self.skip_string()?,
                b'{' | b'[' => {
                    depth += 1;
                    self.at += 1;
                }
                b'}' | b']' => {
                    depth = depth.checked_sub(1).ok_or(self.fault())?;
                    self.at += 1;
                }
                b',' | b':' if depth == 0 => return Err(self.fault()),
                _ => self.skip_plain(),
            }
            if depth == 0 {
                return Ok(());
            }
        }
    }

    /// A number or a literal, or inside a container also separators and white space: up to what could open or close.
    fn skip_plain(&mut self) {
        let is_plain = |byte: &u8| {
            !matches!(
                byte,
                b'"' | b'{' | b'[' | b'}' | b']' | b',' | b' ' | b'\t' | b'\n' | b'\r'
            )
        };
        let plain = self.rest().iter().take_while(|byte| is_plain(byte)).count();
        self.at += plain.max(1);
    }
}

/// Whether a name token of the body, quotes included, is `name` once unescaped.
fn is_name(token: &[u8], name: &str) -> bool {
    let inner = token.get(1..token.len().saturating_sub(1)).unwrap_or_default();
    if memchr::memchr(b'\\', inner).is_none() {
        return inner == name.as_bytes();
    }
    // An escape is at most six bytes for one: longer tokens need no look.
    inner.len() <= name.len().saturating_mul(6)
        && serde_json::from_slice::<Cow<'_, str>>(token).is_ok_and(|unescaped| unescaped == name)
}

fn clamped<'r>(value: &[u8], min: Option<&'r Bound>, max: Option<&'r Bound>) -> Option<&'r String> {
    if !value.first().is_some_and(|byte| byte.is_ascii_digit() || *byte == b'-') {
        return None;
    }
    let number = Number::read(std::str::from_utf8(value).ok()?)?;
    match (min, max) {
        (Some(min), _) if number.is_below(min.value) => Some(&min.text),
        (_, Some(max)) if max.value.is_below(number) => Some(&max.text),
        _ => None,
    }
}

fn mapped<'r>(value: &[u8], values: &'r [(String, String)]) -> Option<&'r String> {
    if value.first() != Some(&b'"') {
        return None;
    }
    values.iter().find(|(from, _)| is_name(value, from)).map(|(_, to)| to)
}
