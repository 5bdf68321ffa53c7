//! Masks whatever resembles a credential.

use std::collections::HashSet;

/// What stands in its place.
const MASK: &[u8] = b"***";
/// Bytes in a row of the credential that are masked wherever they are. Shorter runs occur by chance.
pub(super) const RUN_BYTES_MIN: usize = 8;
/// A credential shorter than this is none: masking it would take single letters out of every text.
const CREDENTIAL_BYTES_MIN: usize = 4;
/// With a mask between them, this much of the credential's head and of its tail is taken for an echo of it.
const ECHO_BOTH_BYTES_MIN: usize = 2;
/// The same where only the head or only the tail is there.
const ECHO_ONE_BYTES_MIN: usize = 4;
/// Ways to write a part that is left out, the longest first.
const FILLERS: [&[u8]; 6] = [
    b"\\u2026",
    b"\\u2022",
    "\u{2026}".as_bytes(),
    "\u{2022}".as_bytes(),
    b"...",
    b"*",
];

/// A provider's error body without what resembles `credential`: the credential itself, any 8 bytes in a row of it,
/// and shortened echoes such as `sk-ab***wxyz` of which head and tail are the credential's. `None` when there is nothing to mask.
pub(crate) fn redact(body: &[u8], credential: &str) -> Option<Vec<u8>> {
    let credential = credential.as_bytes();
    if credential.len() < CREDENTIAL_BYTES_MIN {
        return None;
    }
    let mut hidden = vec![false; body.len()];
    mark_runs(body, credential, &mut hidden);
    mark_echoes(body, credential, &mut hidden);
    if !hidden.contains(&true) {
        return None;
    }
    let mut clean = Vec::with_capacity(body.len());
    let mut was_hidden = false;
    for (byte, is_hidden) in body.iter().zip(hidden) {
        if !is_hidden {
            clean.push(*byte);
        } else if !was_hidden {
            clean.extend_from_slice(MASK);
        }
        was_hidden = is_hidden;
    }
    Some(clean)
}

fn mark_runs(body: &[u8], credential: &[u8], hidden: &mut [bool]) {
    let width = RUN_BYTES_MIN.min(credential.len());
    let pieces: HashSet<&[u8]> = credential.windows(width).collect();
    for (at, window) in body.windows(width).enumerate() {
        if pieces.contains(window) {
            hide(hidden, at, at + width);
        }
    }
}

fn mark_echoes(body: &[u8], credential: &[u8], hidden: &mut [bool]) {
    let mut at = 0;
    while let Some(rest) = body.get(at..).filter(|rest| !rest.is_empty()) {
        let filler = filler_length(rest);
        if filler == 0 {
            at += 1;
            continue;
        }
        let (before, after) = (
            body.get(..at).unwrap_or_default(),
            rest.get(filler..).unwrap_or_default(),
        );
        let head = longest(credential.len(), |length| {
            before.ends_with(credential.get(..length).unwrap_or_default())
        });
        let tail = longest(credential.len(), |length| {
            after.starts_with(credential.get(credential.len() - length..).unwrap_or_default())
        });
        let both = head >= ECHO_BOTH_BYTES_MIN && tail >= ECHO_BOTH_BYTES_MIN;
        if both || head >= ECHO_ONE_BYTES_MIN || tail >= ECHO_ONE_BYTES_MIN {
            hide(hidden, at - head, at + filler + tail);
        }
        at += filler;
    }
}

/// The length of the filler that begins here, in any mixture; 0 when none does.
fn filler_length(text: &[u8]) -> usize {
    let mut length = 0;
    while let Some(filler) = FILLERS
        .iter()
        .find(|filler| text.get(length..).is_some_and(|rest| rest.starts_with(filler)))
    {
        length += filler.len();
    }
    length
}

fn longest(max: usize, fits: impl Fn(usize) -> bool) -> usize {
    (1..=max).rev().find(|length| fits(*length)).unwrap_or(0)
}

fn hide(hidden: &mut [bool], from: usize, to: usize) {
    if let Some(range) = hidden.get_mut(from..to) {
        range.fill(true);
    }
}
