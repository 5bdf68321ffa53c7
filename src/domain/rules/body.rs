//! Body edits, checked, and grouped into batches that each need one walk over the text.

use std::sync::Arc;

pub(crate) use crate::domain::rules::condition::JsonNumber;
use crate::domain::{
    rules::condition::{Condition, FieldBase, FieldTest, RequestFacts},
    wire::protocol::Protocol,
};

/// Maximum number of edits of one list, which bounds the cost of a request.
pub(crate) const BODY_EDITS_MAX: usize = 64;
/// Maximum length of a path, in steps: names and `[]`.
pub(crate) const PATH_STEPS_MAX: usize = 12;

/// All edits of a provider's bodies in one direction, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BodyRules {
    /// Each batch edits the output of the one before. Within a batch, no edit writes what another one writes or reads, so one
    /// walk applies them all.
    pub(super) batches: Vec<Vec<Arc<BodyEdit>>>,
}

/// One edit, of one member, or of several if its path has `[]`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct BodyEdit {
    /// Its line in the provider's file, counted from 1.
    pub(super) line: usize,
    /// The path of the members or elements to edit.
    pub(super) path: Vec<BodyPathStep>,
    /// The protocols that it applies to; `None` for all.
    pub(super) protocols: Option<Vec<Protocol>>,
    /// The conditions, which must all hold.
    pub(super) when: Vec<Condition>,
    /// The operation.
    pub(super) op: BodyOp,
}

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BodyPathStep {
    /// A member of an object, by its unescaped name.
    Member(String),
    /// Each element of an array.
    Each,
}

/// The operation of an edit. Texts are JSON texts unless noted.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum BodyOp {
    /// Replaces the value, or appends the member.
    Set {
        /// The value's JSON text.
        value: String,
    },
    /// Removes the member or element, and one comma.
    Remove,
    /// Renames the member.
    Rename {
        /// The new name, unescaped.
        to: String,
    },
    /// Replaces a number outside the range by the bound it exceeds.
    Clamp {
        /// The allowed range.
        range: NumberRange,
    },
    /// Replaces listed strings.
    Map {
        /// Strings, unescaped, each with the JSON text that replaces it.
        values: Vec<(String, String)>,
    },
    /// Refuses the request.
    Refuse {
        /// The values to refuse.
        which: RefusedValues,
        /// The message to the client, with the placeholders `{value}`, `{path}` and `{holder}`.
        message: String,
    },
}

/// The values for which a request is refused.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum RefusedValues {
    /// All values.
    Any,
    /// Numbers outside the range. Values that are not numbers pass: the provider judges them.
    Outside(NumberRange),
    /// These strings, unescaped.
    Listed(Vec<String>),
}

/// A range of allowed numbers.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct NumberRange {
    /// The minimum.
    pub(super) min: Option<NumberBound>,
    /// The maximum.
    pub(super) max: Option<NumberBound>,
}

impl NumberRange {
    /// The bound that a value, given as JSON text, exceeds; `None` if it exceeds none or is not a number.
    pub(super) fn exceeded_by(&self, value: &[u8]) -> Option<&NumberBound> {
        let number = JsonNumber::from_token(value)?;
        match (&self.min, &self.max) {
            (Some(min), _) if number.is_below(min.value) => Some(min),
            (_, Some(max)) if max.value.is_below(number) => Some(max),
            _ => None,
        }
    }
}

/// A bound of a range.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NumberBound {
    /// Its JSON text, as it is written into a body.
    pub(super) text: String,
    /// Its value; exact for integers.
    pub(super) value: JsonNumber,
}

impl BodyRules {
    /// Groups edits into batches: each joins the last batch unless it conflicts with an edit there.
    pub(super) fn new(edits: impl IntoIterator<Item = Arc<BodyEdit>>) -> Self {
        let mut batches: Vec<Vec<Arc<BodyEdit>>> = Vec::new();
        for edit in edits {
            match batches.last_mut() {
                Some(batch) if batch.iter().all(|other| !edit.conflicts_with(other)) => batch.push(edit),
                Some(_) | None => batches.push(vec![edit]),
            }
        }
        Self { batches }
    }

    /// Whether there are no edits.
    pub fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// All edits in order.
    pub(super) fn edits(&self) -> impl Iterator<Item = &Arc<BodyEdit>> {
        self.batches.iter().flatten()
    }

    /// The edits that can apply to one request.
    pub(super) fn for_request(&self, facts: &RequestFacts<'_>) -> Self {
        let left = |batch: &Vec<Arc<BodyEdit>>| -> Vec<Arc<BodyEdit>> {
            batch
                .iter()
                .filter(|edit| edit.applies_to(facts))
                .map(Arc::clone)
                .collect()
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
    /// Whether the edit can apply to this request, regardless of its body.
    pub(super) fn applies_to(&self, facts: &RequestFacts<'_>) -> bool {
        let protocol = facts.operation.protocol();
        let protocols = self.protocols.as_ref();
        protocols.is_none_or(|protocols| protocols.contains(&protocol))
            && self.when.iter().all(|condition| condition.may_hold(facts))
    }

    /// Its conditions on the body.
    pub(super) fn field_tests(&self) -> impl Iterator<Item = &FieldTest> {
        self.when.iter().filter_map(|condition| match condition {
            Condition::Field(test) => Some(test),
            Condition::Model(_) | Condition::Header { .. } => None,
        })
    }

    /// Its path as text, as in the provider file.
    pub(super) fn path_text(&self) -> String {
        path_text(&self.path, &mut std::iter::repeat(None))
    }

    /// The path of the object that contains the edited member, or of the edited array element.
    pub(super) fn holder(&self) -> &[BodyPathStep] {
        match self.path.split_last() {
            Some((BodyPathStep::Member(_), holder)) => holder,
            Some((BodyPathStep::Each, _)) | None => &self.path,
        }
    }

    /// Whether the result depends on the order of both edits, or one walk could not place their commas.
    fn conflicts_with(&self, other: &Self) -> bool {
        let overlap =
            |left: &[BodyPathStep], right: &[BodyPathStep]| left.starts_with(right) || right.starts_with(left);
        let any_overlap = |left: &[Vec<BodyPathStep>], right: &[Vec<BodyPathStep>]| {
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

    fn parent(&self) -> &[BodyPathStep] {
        self.path.split_last().map_or(&[], |(_, parent)| parent)
    }

    /// The paths that it may change.
    fn writes(&self) -> Vec<Vec<BodyPathStep>> {
        match &self.op {
            BodyOp::Rename { to } => {
                let mut renamed = self.parent().to_vec();
                renamed.push(BodyPathStep::Member(to.clone()));
                vec![self.path.clone(), renamed]
            }
            BodyOp::Set { .. } | BodyOp::Remove | BodyOp::Clamp { .. } | BodyOp::Map { .. } => vec![self.path.clone()],
            BodyOp::Refuse { .. } => Vec::new(),
        }
    }

    /// The paths that it only reads.
    fn reads(&self) -> Vec<Vec<BodyPathStep>> {
        let mut places: Vec<Vec<BodyPathStep>> = self
            .field_tests()
            .map(|test| {
                let base = match test.base {
                    FieldBase::Holder => self.holder(),
                    FieldBase::Root => &[],
                };
                let members = test.path.iter().cloned().map(BodyPathStep::Member);
                base.iter().cloned().chain(members).collect()
            })
            .collect();
        if matches!(self.op, BodyOp::Refuse { .. }) {
            places.push(self.path.clone());
        }
        places
    }
}

/// A path as text. Each `[]` takes the next index; for `None` it stays `[]`.
pub(super) fn path_text(path: &[BodyPathStep], indexes: &mut dyn Iterator<Item = Option<usize>>) -> String {
    let mut text = String::new();
    for segment in path {
        match segment {
            BodyPathStep::Member(name) => {
                if !text.is_empty() {
                    text.push('.');
                }
                text.push_str(name);
            }
            BodyPathStep::Each => match indexes.next().flatten() {
                Some(index) => text.push_str(&format!("[{index}]")),
                None => text.push_str("[]"),
            },
        }
    }
    text
}
