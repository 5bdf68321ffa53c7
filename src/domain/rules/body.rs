//! Checked body edits, grouped into batches. One walk over the body applies all edits of a batch.

use std::sync::Arc;

pub(crate) use crate::domain::rules::condition::JsonNumber;
use crate::domain::{
    rules::condition::{Condition, FieldBase, FieldTest, RequestFacts},
    wire::UpstreamProtocol,
};

/// The maximum number of edits in one list, which bounds the cost of a request.
pub(crate) const BODY_EDITS_MAX: usize = 64;
/// The maximum number of steps in an edit's path: names and `[]`.
pub(crate) const PATH_STEPS_MAX: usize = 12;

/// All edits of a provider's requests, or of its answers, in the order of the provider file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BodyRules {
    /// The batches of edits. Each batch edits the output of the previous batch. Within a batch, no edit writes a value that
    /// another edit reads or writes, so one walk applies them all.
    pub(super) batches: Vec<Vec<Arc<BodyEdit>>>,
}

/// An edit of one member or array element of a body, or of several if its path contains `[]`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct BodyEdit {
    /// The edit's line in the provider's file, counted from 1.
    pub(super) line: usize,
    /// The path of the members or elements to edit.
    pub(super) path: Vec<BodyPathStep>,
    /// The protocols of the requests to which the edit applies; `None` means all protocols.
    pub(super) protocols: Option<Vec<UpstreamProtocol>>,
    /// The conditions for the edit, which must all hold.
    pub(super) when: Vec<Condition>,
    /// The operation on the members or elements at `path`.
    pub(super) op: BodyOp,
}

/// One step of a path in a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BodyPathStep {
    /// A member of an object, by its unescaped name.
    Member(String),
    /// Each element of an array.
    Each,
}

/// The operation of an edit. Its strings are JSON texts unless stated otherwise.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum BodyOp {
    /// Sets the value of the member or element, or adds the missing member.
    Set {
        /// The new value as JSON text.
        value: String,
    },
    /// Removes the member or element, together with one comma.
    Remove,
    /// Renames the member at the edit's path.
    Rename {
        /// The new name, unescaped.
        to: String,
    },
    /// Replaces a number outside `range` with the bound that it exceeds.
    Clamp {
        /// The range of the numbers that stay unchanged.
        range: NumberRange,
    },
    /// Replaces the strings that are listed in `values`.
    Map {
        /// The strings to replace, unescaped, each with the JSON text of its replacement.
        values: Vec<(String, String)>,
    },
    /// Refuses the request because of a value.
    Refuse {
        /// The values for which the request is refused.
        which: RefusedValues,
        /// The message to the client, with the placeholders `{value}`, `{path}` and `{holder}`.
        message: String,
    },
}

/// The values for which an edit refuses a request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum RefusedValues {
    /// Any value of the member.
    Any,
    /// Numbers outside this range. Values that are not numbers pass, because the provider checks them.
    Outside(NumberRange),
    /// Strings that are equal to one of these unescaped strings.
    Listed(Vec<String>),
}

/// A range of allowed numbers. A bound of `None` means that the range is unlimited in that direction.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct NumberRange {
    /// The least number that is allowed.
    pub(super) min: Option<NumberBound>,
    /// The greatest number that is allowed.
    pub(super) max: Option<NumberBound>,
}

impl NumberRange {
    /// Returns the bound that a value, given as JSON text, exceeds; `None` if it exceeds neither or is not a number.
    pub(super) fn exceeded_by(&self, value: &[u8]) -> Option<&NumberBound> {
        let number = JsonNumber::from_token(value)?;
        match (&self.min, &self.max) {
            (Some(min), _) if number.is_below(min.value) => Some(min),
            (_, Some(max)) if max.value.is_below(number) => Some(max),
            _ => None,
        }
    }
}

/// One bound of a [`NumberRange`].
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NumberBound {
    /// The bound as JSON text, which replaces a number that exceeds it.
    pub(super) text: String,
    /// The bound as a number; exact if it is an integer.
    pub(super) value: JsonNumber,
}

impl BodyRules {
    /// Groups edits into batches. An edit joins the last batch, unless it conflicts with an edit in that batch.
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

    /// Whether the rules contain no edits.
    pub fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// Returns all edits in the order of the provider file.
    pub(super) fn edits(&self) -> impl Iterator<Item = &Arc<BodyEdit>> {
        self.batches.iter().flatten()
    }

    /// Returns the edits that can apply to one request, regardless of its body.
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

    /// Returns the edit's conditions on the body.
    pub(super) fn field_tests(&self) -> impl Iterator<Item = &FieldTest> {
        self.when.iter().filter_map(|condition| match condition {
            Condition::Field(test) => Some(test),
            Condition::Model(_) | Condition::Translated(_) | Condition::Header { .. } => None,
        })
    }

    /// Returns the edit's path as it is written in the provider file.
    pub(super) fn path_text(&self) -> String {
        path_text(&self.path, &mut std::iter::repeat(None))
    }

    /// Returns the path of the object that contains the edited member, or of the edited array element itself.
    pub(super) fn holder(&self) -> &[BodyPathStep] {
        match self.path.split_last() {
            Some((BodyPathStep::Member(_), holder)) => holder,
            Some((BodyPathStep::Each, _)) | None => &self.path,
        }
    }

    /// Whether this edit needs a later batch than `other`, which comes before it in the provider's file. This is the case if the
    /// result depends on the order of the two edits, or if a single walk could not decide which commas to add and remove.
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
            || any_overlap(&self.writes(), &other.reads())
            || (!other.removes_elements_around(self)
                && (any_overlap(&self.writes(), &other.writes()) || any_overlap(&self.reads(), &other.writes())))
    }

    /// Whether two conditions hold: this edit removes elements of an array, and `inner` reads and changes only values inside
    /// elements of that array. If both hold, the removal does not change what `inner` finds in the remaining elements.
    fn removes_elements_around(&self, inner: &Self) -> bool {
        let is_element_removal = self.op == BodyOp::Remove && self.path.last() == Some(&BodyPathStep::Each);
        let is_inside = |path: &Vec<BodyPathStep>| path.len() > self.path.len() && path.starts_with(&self.path);
        is_element_removal
            && !matches!(inner.op, BodyOp::Refuse { .. })
            && inner.writes().iter().all(is_inside)
            && inner.reads().iter().all(is_inside)
    }

    fn parent(&self) -> &[BodyPathStep] {
        self.path.split_last().map_or(&[], |(_, parent)| parent)
    }

    /// Returns the paths of the values that the edit can change.
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

    /// Returns the paths of the values that the edit reads but does not change.
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

/// Returns a path as text. For each `[]` of the path, takes the next of `indexes` and writes it between the brackets. If this
/// index is `None`, the brackets stay empty.
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
