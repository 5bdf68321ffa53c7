//! Masks whatever resembles a credential.

use std::ops::Range;

use super::credential_search::CredentialSearch;

/// The minimum length of a provider's secret, in characters. Parts of a shorter one also occur in unrelated texts, so it could
/// not be masked where a provider repeats it.
pub(crate) const CREDENTIAL_CHARS_MIN: usize = 12;
/// Replaces a part that resembles the credential.
const MASK: &[u8] = b"***";
/// Replaces each byte of such a part where the length must not change.
const MASK_BYTE: u8 = b'*';

/// Masks the parts of a provider's error body that resemble `credential`: the credential itself, any 8 consecutive bytes of it,
/// and shortened echoes such as `sk-ab***wxyz` whose head and tail are the credential's. `None` if there is nothing to mask.
pub(crate) fn redact(body: &[u8], credential: &str) -> Option<Vec<u8>> {
    let credential = Some(credential.as_bytes()).filter(|credential| can_be_masked(credential))?;
    let parts = matching_parts(body, &CredentialSearch::new(credential));
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

/// Whether a credential is long enough to be masked: a shorter one would remove words from every text.
pub(super) fn can_be_masked(credential: &[u8]) -> bool {
    credential.len() >= CREDENTIAL_CHARS_MIN
}

/// Masks the parts that the search finds, keeping the length. Returns whether it found any.
pub(super) fn mask_in_place(text: &mut [u8], search: &CredentialSearch<'_>) -> bool {
    let parts = matching_parts(text, search);
    for part in &parts {
        mask_range(text, part.clone());
    }
    !parts.is_empty()
}

/// Masks this part of a text, keeping the length.
pub(super) fn mask_range(text: &mut [u8], part: Range<usize>) {
    if let Some(part) = text.get_mut(part) {
        part.fill(MASK_BYTE);
    }
}

/// The parts that the search finds, in order; overlapping and adjacent ones are merged.
fn matching_parts(text: &[u8], search: &CredentialSearch<'_>) -> Vec<Range<usize>> {
    let mut parts = Vec::new();
    search.for_each_match(text, |part| parts.push(part));
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
