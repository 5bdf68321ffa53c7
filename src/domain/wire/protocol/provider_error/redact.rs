//! Masks whatever resembles a credential.

use std::ops::Range;

use super::credential_search::CredentialSearch;

/// The shortest secret of a provider, in characters. What a shorter one is made of also stands in texts that have nothing to do
/// with it, so it could not be masked where a provider repeats it.
pub(crate) const CREDENTIAL_CHARS_MIN: usize = 12;
/// What stands in its place.
const MASK: &[u8] = b"***";
/// What stands in the place of each of its bytes where the length has to stay.
const MASK_BYTE: u8 = b'*';

/// A provider's error body without what resembles `credential`: the credential itself, any 8 bytes in a row of it,
/// and shortened echoes such as `sk-ab***wxyz` of which head and tail are the credential's. `None` when there is nothing to mask.
pub(crate) fn redact(body: &[u8], credential: &str) -> Option<Vec<u8>> {
    let credential = Some(credential.as_bytes()).filter(|credential| can_be_masked(credential))?;
    let parts = parts(body, &CredentialSearch::new(credential));
    if parts.is_empty() {
        return None;
    }
    let (mut clean, mut end) = (Vec::with_capacity(body.len()), 0);
    for part in parts {
        clean.extend_from_slice(body.get(end..part.start).unwrap_or_default());
        clean.extend_from_slice(MASK);
        end = part.end;
    }
    clean.extend_from_slice(body.get(end..).unwrap_or_default());
    Some(clean)
}

/// Whether a credential is long enough to be masked: a shorter one would take words out of every text.
pub(super) fn can_be_masked(credential: &[u8]) -> bool {
    credential.len() >= CREDENTIAL_CHARS_MIN
}

/// Masks what the search finds, with as many bytes. Returns whether it found anything.
pub(super) fn mask_in_place(text: &mut [u8], search: &CredentialSearch<'_>) -> bool {
    let parts = parts(text, search);
    for part in &parts {
        hide(text, part.clone());
    }
    !parts.is_empty()
}

/// Masks this part of a text.
pub(super) fn hide(text: &mut [u8], part: Range<usize>) {
    if let Some(part) = text.get_mut(part) {
        part.fill(MASK_BYTE);
    }
}

/// What the search finds, in order and with a gap between any two.
fn parts(text: &[u8], search: &CredentialSearch<'_>) -> Vec<Range<usize>> {
    let mut parts = Vec::new();
    search.each(text, |part| parts.push(part));
    parts.sort_unstable_by_key(|part| part.start);
    parts.dedup_by(|next, part| {
        let touches = next.start <= part.end;
        if touches {
            part.end = part.end.max(next.end);
        }
        touches
    });
    parts
}
