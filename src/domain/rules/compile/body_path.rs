//! Paths into bodies, parsed from text.

use crate::domain::rules::body::{BodyPathStep, PATH_STEPS_MAX};

/// Parses the steps of a path: names joined by dots, each followed by one `[]` for every array it enters.
pub(super) fn path_steps(text: &str) -> Option<Vec<BodyPathStep>> {
    let mut path = Vec::new();
    for part in text.split('.') {
        let name = part.trim_end_matches("[]");
        if name.is_empty() || name.contains(['[', ']']) {
            return None;
        }
        path.push(BodyPathStep::Member(name.to_owned()));
        path.extend(std::iter::repeat_n(BodyPathStep::Each, (part.len() - name.len()) / 2));
    }
    (path.len() <= PATH_STEPS_MAX).then_some(path)
}

/// Parses the names of a path that enters no arrays.
pub(super) fn path_members(text: &str) -> Option<Vec<String>> {
    let name = |segment| match segment {
        BodyPathStep::Member(name) => Some(name),
        BodyPathStep::Each => None,
    };
    path_steps(text)?.into_iter().map(name).collect()
}
