//! Body edits, checked and grouped: what may be done in one walk over the text, and what needs a walk of its own.

use crate::domain::protocol::Protocol;

/// The most edits of one file, so that a request's cost stays bounded.
pub const BODY_EDITS_MAX: usize = 64;
/// The deepest path, in members.
pub const PATH_MEMBERS_MAX: usize = 8;

/// All body edits of a provider, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BodyRules {
    /// Each batch sees the text that the one before has left; within a batch no edit touches what another touches, so
    /// that one walk does them all.
    pub(super) batches: Vec<Vec<BodyEdit>>,
}

/// One edit at one place.
#[derive(Clone, Debug, PartialEq)]
pub struct BodyEdit {
    /// Where.
    pub(super) path: Vec<Segment>,
    /// For requests of these protocols only.
    pub(super) protocols: Option<Vec<Protocol>>,
    /// What.
    pub(super) op: BodyOp,
}

/// One step of a path. Steps into arrays would be variants beside this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Segment {
    /// A member of an object, by its unescaped name.
    Member(String),
}

/// What an edit does. Texts are JSON texts.
#[derive(Clone, Debug, PartialEq)]
pub enum BodyOp {
    /// Replaces the value, or appends the member.
    Set {
        /// The value.
        value: String,
    },
    /// Drops the member with one comma.
    Remove,
    /// Replaces the name.
    Rename {
        /// The new name, unescaped.
        to: String,
    },
    /// Replaces a number beyond a bound by the bound.
    Clamp {
        /// The least value allowed.
        min: Option<Bound>,
        /// The greatest value allowed.
        max: Option<Bound>,
    },
    /// Replaces equal strings: unescaped string to JSON text.
    Map {
        /// From and to.
        values: Vec<(String, String)>,
    },
}

/// A bound of a clamp.
#[derive(Clone, Debug, PartialEq)]
pub struct Bound {
    /// As it is written into the body.
    pub(super) text: String,
    /// Its value; exact for integers.
    pub(super) value: Number,
}

/// A number as far as it can be compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// Exact.
    Integer(i128),
    /// With a fraction, an exponent, or more digits than an `i128` has; may be infinite.
    Float(f64),
}

impl Number {
    /// Reads a JSON number.
    pub(super) fn read(text: &str) -> Option<Self> {
        match text.parse() {
            Ok(integer) => Some(Self::Integer(integer)),
            Err(_) => text.parse().ok().map(Self::Float),
        }
    }

    /// Whether it is less than `other`.
    pub(super) fn is_below(self, other: Self) -> bool {
        match (self, other) {
            (Self::Integer(left), Self::Integer(right)) => left < right,
            (left, right) => left.nearest_float() < right.nearest_float(),
        }
    }

    fn nearest_float(self) -> f64 {
        match self {
            Self::Integer(integer) => integer as f64,
            Self::Float(float) => float,
        }
    }
}

impl BodyRules {
    /// Groups edits: each joins the last batch unless it meets an edit there.
    pub(super) fn new(edits: Vec<BodyEdit>) -> Self {
        let mut batches: Vec<Vec<BodyEdit>> = Vec::new();
        for edit in edits {
            match batches.last_mut() {
                Some(batch) if batch.iter().all(|other| !edit.meets(other)) => batch.push(edit),
                Some(_) | None => batches.push(vec![edit]),
            }
        }
        Self { batches }
    }

    /// Whether no request is ever edited.
    pub fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }
}

impl BodyEdit {
    /// Whether the edit is for requests of this protocol.
    pub(super) fn is_for(&self, protocol: Protocol) -> bool {
        self.protocols
            .as_ref()
            .is_none_or(|protocols| protocols.contains(&protocol))
    }

    /// Whether the result of both depends on their order, or one walk could not place their commas.
    fn meets(&self, other: &Self) -> bool {
        let overlap = |left: &[Segment], right: &[Segment]| left.starts_with(right) || right.starts_with(left);
        let touched = |edit: &Self| [Some(edit.path.clone()), edit.renamed()];
        let places_meet = touched(self)
            .iter()
            .flatten()
            .any(|left| touched(other).iter().flatten().any(|right| overlap(left, right)));
        let commas_meet = matches!(
            (&self.op, &other.op),
            (BodyOp::Set { .. }, BodyOp::Remove) | (BodyOp::Remove, BodyOp::Set { .. })
        ) && self.parent() == other.parent();
        places_meet || commas_meet
    }

    fn parent(&self) -> &[Segment] {
        self.path.split_last().map_or(&[], |(_, parent)| parent)
    }

    fn renamed(&self) -> Option<Vec<Segment>> {
        match &self.op {
            BodyOp::Rename { to } => {
                let mut path = self.parent().to_vec();
                path.push(Segment::Member(to.clone()));
                Some(path)
            }
            BodyOp::Set { .. } | BodyOp::Remove | BodyOp::Clamp { .. } | BodyOp::Map { .. } => None,
        }
    }
}
