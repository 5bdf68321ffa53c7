//! Paths into bodies, read from their text.

use crate::domain::rules::body::{PATH_STEPS_MAX, Segment};

/// The steps of a path: names joined by dots, each with `[]` for every array that it enters.
pub(super) fn steps(text: &str) -> Option<Vec<Segment>> {
    let mut path = Vec::new();
    for part in text.split('.') {
        let name = part.trim_end_matches("[]");
        if name.is_empty() || name.contains(['[', ']']) {
            return None;
        }
        path.push(Segment::Member(name.to_owned()));
        path.extend(std::iter::repeat_n(Segment::Each, (part.len() - name.len()) / 2));
    }
    (path.len() <= PATH_STEPS_MAX).then_some(path)
}

/// The names of a path that enters no arrays.
pub(super) fn members(text: &str) -> Option<Vec<String>> {
    let name = |segment| match segment {
        Segment::Member(name) => Some(name),
        Segment::Each => None,
    };
    steps(text)?.into_iter().map(name).collect()
}
