//! The rows of the table: one measure, one value per round and subject.

use std::collections::BTreeMap;

use crate::request::MODEL;

/// Who was measured. The order is that of the columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Subject {
    /// The provider without a proxy.
    Direct,
    /// The bare Pingora proxy.
    Bare,
    /// nginx, as a proxy that does nothing else.
    Nginx,
    /// HAProxy, the same.
    Haproxy,
    /// weir with the embedded store.
    Embedded,
    /// weir with the Redis store.
    Redis,
    /// LiteLLM's proxy.
    Litellm,
    /// Portkey's gateway.
    Portkey,
}

impl Subject {
    /// In the order of the columns.
    pub(crate) const ALL: [Self; 8] = [
        Self::Direct,
        Self::Bare,
        Self::Nginx,
        Self::Haproxy,
        Self::Embedded,
        Self::Redis,
        Self::Litellm,
        Self::Portkey,
    ];

    /// For files and JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Bare => "bare",
            Self::Nginx => "nginx",
            Self::Haproxy => "haproxy",
            Self::Embedded => "weir-embedded",
            Self::Redis => "weir-redis",
            Self::Litellm => "litellm",
            Self::Portkey => "portkey",
        }
    }

    /// For people.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Bare => "bare Pingora",
            Self::Nginx => "nginx",
            Self::Haproxy => "HAProxy",
            Self::Embedded => "weir, embedded store",
            Self::Redis => "weir, Redis store",
            Self::Litellm => "LiteLLM",
            Self::Portkey => "Portkey",
        }
    }

    /// The model that it is asked for where bills are told apart by it. All names are of the same length.
    pub(crate) fn model(self) -> &'static str {
        match self {
            Self::Embedded => "embed",
            Self::Redis => "redis",
            _ => MODEL,
        }
    }

    /// Whether it is weir.
    pub(crate) fn is_weir(self) -> bool {
        matches!(self, Self::Embedded | Self::Redis)
    }
}

/// What is to be reached.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Aim {
    /// At most this.
    Most(f64),
    /// At most this more than another one's value of the same round.
    MostOver(f64, Subject),
    /// At most this many times another one's value of the same round.
    MostTimes(f64, Subject),
    /// At least this many times another one's value of the same round.
    LeastTimes(f64, Subject),
}

/// Both weirs.
pub(crate) const WEIRS: &[Subject] = &[Subject::Embedded, Subject::Redis];

/// Whether weir's value is divided by the bare proxy's.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compared {
    /// It is.
    AsRatio,
    /// It is not, for instance because both may be near zero.
    Not,
}

/// One measure.
pub(crate) struct Row {
    /// What is measured, with its unit.
    pub(crate) name: String,
    /// How weir and the bare proxy are compared.
    pub(crate) compared: Compared,
    /// What is to be reached, and by whom.
    pub(crate) aims: Vec<(&'static [Subject], Aim)>,
    /// One value per round.
    pub(crate) values: BTreeMap<Subject, Vec<f64>>,
}

impl Row {
    /// Without values yet.
    pub(crate) fn new(name: &str, compared: Compared) -> Self {
        Self {
            name: name.to_owned(),
            compared,
            aims: Vec::new(),
            values: BTreeMap::new(),
        }
    }

    /// With an aim of some.
    pub(crate) fn aiming(mut self, subjects: &'static [Subject], aim: Aim) -> Self {
        self.aims.push((subjects, aim));
        self
    }

    /// Adds the value of the next round.
    pub(crate) fn add(&mut self, subject: Subject, value: f64) {
        self.values.entry(subject).or_default().push(value);
    }

    /// The median over the rounds.
    pub(crate) fn median(&self, subject: Subject) -> Option<f64> {
        self.values.get(&subject).and_then(|values| quantile(values, 0.5))
    }

    /// The value of each round divided by another one's of the same round.
    pub(crate) fn ratios(&self, subject: Subject, other: Subject) -> Vec<f64> {
        if self.compared == Compared::Not {
            return Vec::new();
        }
        let pairs = self.pairs(subject, other).filter(|(_, other)| *other > 0.0);
        pairs.map(|(own, other)| own / other).collect()
    }

    /// The value of each round less another one's of the same round.
    pub(crate) fn differences(&self, subject: Subject, other: Subject) -> Vec<f64> {
        self.pairs(subject, other).map(|(own, other)| own - other).collect()
    }

    fn pairs(&self, subject: Subject, other: Subject) -> impl Iterator<Item = (f64, f64)> {
        let of = |subject| self.values.get(&subject).map_or(&[][..], Vec::as_slice);
        of(subject).iter().copied().zip(of(other).iter().copied())
    }
}

/// The value below which the share `share` of the values lies, interpolated.
pub(crate) fn quantile(values: &[f64], share: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let place = share * sorted.len().checked_sub(1)? as f64;
    let (low, high) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    Some(low + (high - low) * place.fract())
}
