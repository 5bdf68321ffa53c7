//! Body edits, checked and grouped: what may be done in one walk over the text, and what needs a walk of its own.

use std::sync::Arc;

pub(crate) use crate::domain::rules::number::Number;
use crate::domain::{
    rules::condition::{Condition, FieldBase, FieldTest, RequestFacts},
    wire::protocol::Protocol,
};

/// The most edits of one list, so that a request's cost stays bounded.
pub(crate) const BODY_EDITS_MAX: usize = 64;
/// The deepest path, in steps: names and `[]`.
pub(crate) const PATH_STEPS_MAX: usize = 12;

/// All edits of a provider's bodies in one direction, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BodyRules {
    /// Each batch sees the text that the one before has left; within a batch no edit touches what another touches or
    /// asks about, so that one walk does them all.
    pub(super) batches: Vec<Vec<Arc<BodyEdit>>>,
}

/// One edit at one place, or at several where its path has `[]`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct BodyEdit {
    /// Its line in the provider's file, counted from 1.
    pub(super) line: usize,
    /// The path of the members or elements to edit.
    pub(super) path: Vec<Segment>,
    /// The protocols that it applies to; `None` for all.
    pub(super) protocols: Option<Vec<Protocol>>,
    /// The conditions, which must all hold.
    pub(super) when: Vec<Condition>,
    /// What the edit does there.
    pub(super) op: BodyOp,
}

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Segment {
    /// A member of an object, by its unescaped name.
    Member(String),
    /// Each element of an array.
    Each,
}

/// What an edit does. Texts are JSON texts.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum BodyOp {
    /// Replaces the value, or appends the member.
    Set {
        /// The value's JSON text.
        value: String,
    },
    /// Drops the member or element with one comma.
    Remove,
    /// Renames the member.
    Rename {
        /// The new name, unescaped.
        to: String,
    },
    /// Replaces a number beyond a bound by the bound.
    Clamp {
        /// The allowed range.
        range: Bounds,
    },
    /// Replaces equal strings: unescaped string to JSON text.
    Map {
        /// Old strings, unescaped, each with the JSON text that replaces it.
        values: Vec<(String, String)>,
    },
    /// Changes nothing: the request is refused.
    Refuse {
        /// The values that are refused.
        which: Refused,
        /// What the client is told, with `{value}`, `{path}` and `{holder}` to be filled in.
        message: String,
    },
}

/// The values for which a request is refused.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Refused {
    /// All values.
    Any,
    /// Numbers beyond a bound. What is no number is for the provider to judge.
    Outside(Bounds),
    /// These strings, unescaped.
    Listed(Vec<String>),
}

/// The least and the greatest number that is let through.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Bounds {
    /// The least allowed value.
    pub(super) min: Option<Bound>,
    /// The greatest allowed value.
    pub(super) max: Option<Bound>,
}

impl Bounds {
    /// The bound that a value, given as JSON text, is beyond.
    pub(super) fn exceeded_by(&self, value: &[u8]) -> Option<&Bound> {
        let number = Number::of_token(value)?;
        match (&self.min, &self.max) {
            (Some(min), _) if number.is_below(min.value) => Some(min),
            (_, Some(max)) if max.value.is_below(number) => Some(max),
            _ => None,
        }
    }
}

/// A bound of a range.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Bound {
    /// As it is written into the body.
    pub(super) text: String,
    /// Its value; exact for integers.
    pub(super) value: Number,
}

impl BodyRules {
    /// Groups edits: each joins the last batch unless it meets an edit there.
    pub(super) fn new(edits: impl IntoIterator<Item = Arc<BodyEdit>>) -> Self {
        let mut batches: Vec<Vec<Arc<BodyEdit>>> = Vec::new();
        for edit in edits {
            match batches.last_mut() {
                Some(batch) if batch.iter().all(|other| !edit.meets(other)) => batch.push(edit),
                Some(_) | None => batches.push(vec![edit]),
            }
        }
        Self { batches }
    }

    /// Whether no body is ever edited.
    pub fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// All edits in order.
    pub(super) fn edits(&self) -> impl Iterator<Item = &Arc<BodyEdit>> {
        self.batches.iter().flatten()
    }

    /// The edits that are left for one request.
    pub(super) fn for_request(&self, facts: &RequestFacts<'_>) -> Self {
        let left = |batch: &Vec<Arc<BodyEdit>>| -> Vec<Arc<BodyEdit>> {
            batch.iter().filter(|edit| edit.is_for(facts)).map(Arc::clone).collect()
        };
        Self {
            batches: self
                .batches
                .iter()
                .map(left)
                .filter(|batch| !batch.is_empty())
                .collect(),
        }
    }
}

impl BodyEdit {
    /// Whether the edit can apply to this request, the body aside.
    pub(super) fn is_for(&self, facts: &RequestFacts<'_>) -> bool {
        let protocol = facts.operation.protocol();
        let protocols = self.protocols.as_ref();
        protocols.is_none_or(|protocols| protocols.contains(&protocol))
            && self.when.iter().all(|condition| condition.may_hold(facts))
    }

    /// Its conditions on the text.
    pub(super) fn field_tests(&self) -> impl Iterator<Item = &FieldTest> {
        self.when.iter().filter_map(|condition| match condition {
            Condition::Field(test) => Some(test),
            Condition::Model(_) | Condition::Header { .. } => None,
        })
    }

    /// Where its path leads to, as it stands in the file.
    pub(super) fn path_text(&self) -> String {
        path_text(&self.path, &mut std::iter::repeat(None))
    }

    /// The path of the object that it edits in, or of the element that it edits.
    pub(super) fn holder(&self) -> &[Segment] {
        match self.path.split_last() {
            Some((Segment::Member(_), holder)) => holder,
            Some((Segment::Each, _)) | None => &self.path,
        }
    }

    /// Whether the result of both depends on their order, or one walk could not place their commas.
    fn meets(&self, other: &Self) -> bool {
        let overlap = |left: &[Segment], right: &[Segment]| left.starts_with(right) || right.starts_with(left);
        let any_overlap = |left: &[Vec<Segment>], right: &[Vec<Segment>]| {
            left.iter().any(|left| right.iter().any(|right| overlap(left, right)))
        };
        let commas_meet = matches!(
            (&self.op, &other.op),
            (BodyOp::Set { .. }, BodyOp::Remove) | (BodyOp::Remove, BodyOp::Set { .. })
        ) && self.parent() == other.parent();
        commas_meet
            || any_overlap(&self.writes(), &other.writes())
            || any_overlap(&self.writes(), &other.reads())
            || any_overlap(&self.reads(), &other.writes())
    }

    fn parent(&self) -> &[Segment] {
        self.path.split_last().map_or(&[], |(_, parent)| parent)
    }

    /// The places that it may change.
    fn writes(&self) -> Vec<Vec<Segment>> {
        match &self.op {
            BodyOp::Rename { to } => {
                let mut renamed = self.parent().to_vec();
                renamed.push(Segment::Member(to.clone()));
                vec![self.path.clone(), renamed]
            }
            BodyOp::Set { .. } | BodyOp::Remove | BodyOp::Clamp { .. } | BodyOp::Map { .. } => vec![self.path.clone()],
            BodyOp::Refuse { .. } => Vec::new(),
        }
    }

    /// The places that it only looks at.
    fn reads(&self) -> Vec<Vec<Segment>> {
        let mut places: Vec<Vec<Segment>> = self
            .field_tests()
            .map(|test| {
                let base = match test.base {
                    FieldBase::Holder => self.holder(),
                    FieldBase::Root => &[],
                };
                let members = test.path.iter().cloned().map(Segment::Member);
                base.iter().cloned().chain(members).collect()
            })
            .collect();
        if matches!(self.op, BodyOp::Refuse { .. }) {
            places.push(self.path.clone());
        }
        places
    }
}

/// A path as people read it. Each `[]` takes the next index; `None` leaves it open.
pub(super) fn path_text(path: &[Segment], indexes: &mut dyn Iterator<Item = Option<usize>>) -> String {
    let mut text = String::new();
    for segment in path {
        match segment {
            Segment::Member(name) => {
                if !text.is_empty() {
                    text.push('.');
                }
                text.push_str(name);
            }
            Segment::Each => match indexes.next().flatten() {
                Some(index) => text.push_str(&format!("[{index}]")),
                None => text.push_str("[]"),
            },
        }
    }
    text
}
