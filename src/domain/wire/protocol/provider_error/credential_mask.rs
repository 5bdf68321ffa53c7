//! Finds and masks the parts of an error that resemble a credential, even if the error is in an answer that arrives in pieces.

#[cfg(test)]
mod tests;

use std::ops::Range;

use memchr::{memchr_iter, memchr3_iter, memmem, memrchr_iter};

use crate::domain::wire::protocol::{
    MessageBoundaries,
    provider_error::{can_be_masked, mask_in_place, mask_range},
};

/// The minimum number of consecutive bytes of the credential that are masked even if no filler is next to them. Shorter runs
/// occur by chance.
pub(super) const RUN_BYTES_MIN: usize = 8;
/// The minimum number of bytes from the credential's beginning, and from its end, that are recognised as an echo if a filler is
/// between the two parts.
const ECHO_BOTH_BYTES_MIN: usize = 2;
/// The minimum number of bytes from the credential's beginning or end that are recognised as an echo if only this part is next to
/// a filler.
const ECHO_ONE_BYTES_MIN: usize = 4;
/// The ways to write the omitted part of a shortened credential, the longest first.
const FILLERS: [&[u8]; 6] = [
    b"\\u2026",
    b"\\u2022",
    "\u{2026}".as_bytes(),
    "\u{2022}".as_bytes(),
    b"...",
    b"*",
];
/// The incomplete fillers that can be at the end of the bytes so far, the longest first. A full stop may belong to an unfinished
/// `...`.
const FILLERS_BEGUN: [&[u8]; 8] = [b"\\u202", b"\\u20", b"\\u2", b"\\u", b"\\", b"\xE2\x80", b"\xE2", b"."];

/// The maximum length, in bytes, of the consecutive fillers at a text's end that are treated as part of an incomplete echo.
const FILLERS_BYTES_MAX: usize = 256;

/// The length of a gram in bytes. A gram is the part of a run that is looked up in the filter.
const GRAM_BYTES: usize = 4;
/// The distance between the grams that are looked up, in bytes. Every run contains a gram that begins at a multiple of this
/// distance.
const STRIDE: usize = RUN_BYTES_MIN - GRAM_BYTES + 1;
/// The binary logarithm of the number of bits in the filter.
const FILTER_BITS_LOG: u32 = 15;
const FILTER_WORDS: usize = 1 << (FILTER_BITS_LOG - u64::BITS.trailing_zeros());

/// A search for one credential: for the credential itself, any 8 consecutive bytes of it, and shortened echoes such as
/// `sk-ab***wxyz`, whose beginning and end are those of the credential.
///
/// It is created on the stack, where it is needed. It occupies 4 KiB, and its creation takes a few instructions for each byte of
/// the credential.
pub(super) struct CredentialSearch<'c> {
    credential: &'c [u8],
    /// The filter: a bit for each gram of the credential, at the position of the gram's hash.
    filter: [u64; FILTER_WORDS],
}

impl<'c> CredentialSearch<'c> {
    pub(super) fn new(credential: &'c [u8]) -> Self {
        let mut filter = [0; FILTER_WORDS];
        for gram in credential.windows(GRAM_BYTES) {
            let (word, bit) = filter_bit(gram);
            if let Some(word) = filter.get_mut(word) {
                *word |= bit;
            }
        }
        Self { credential, filter }
    }

    /// Calls `found` with each part of the text that resembles the credential. Parts can overlap, and are not ordered.
    pub(super) fn for_each_match(&self, text: &[u8], mut found: impl FnMut(Range<usize>)) {
        self.for_each_run(text, &mut found);
        self.for_each_echo(text, &mut found);
    }

    /// Returns the offset of the first part that resembles the credential or could resemble it after more bytes arrive; the
    /// text's end if there is no such part. Also returns whether a part resembles the credential already.
    pub(super) fn suspected_from(&self, text: &[u8]) -> (usize, bool) {
        let (mut from, mut resembles) = (self.unfinished_from(text), false);
        self.for_each_match(text, |part| {
            from = from.min(part.start);
            resembles = true;
        });
        (from, resembles)
    }

    /// Returns the offset of the part at the text's end that could resemble the credential after more bytes arrive; the text's
    /// end if there is no such part.
    pub(super) fn unfinished_from(&self, text: &[u8]) -> usize {
        let run = (1..=text.len().min(self.credential.len()))
            .take_while(|length| self.contains(text.get(text.len() - length..).unwrap_or_default()))
            .last()
            .unwrap_or(0);
        // After a filler, the text's end could be the beginning of the credential's tail, or of another filler.
        let mut from = text.len() - run;
        for tail in 0..=run {
            let before = text.get(..text.len() - tail).unwrap_or_default();
            let begun = FILLERS_BEGUN.iter().find(|begun| tail == 0 && before.ends_with(begun));
            let mut rest = before.len() - begun.map_or(0, |begun| begun.len());
            while let Some(filler) = last_filler(before.get(..rest).unwrap_or_default())
                && before.len() - rest < FILLERS_BYTES_MAX
            {
                rest -= filler;
            }
            if rest < before.len() {
                from = from.min(rest - self.head_at_end(before.get(..rest).unwrap_or_default()));
            }
        }
        from
    }

    fn contains(&self, part: &[u8]) -> bool {
        memmem::find(self.credential, part).is_some()
    }

    fn for_each_run(&self, text: &[u8], found: &mut impl FnMut(Range<usize>)) {
        for (number, gram) in text.windows(GRAM_BYTES).enumerate().step_by(STRIDE) {
            let (word, bit) = filter_bit(gram);
            if self.filter.get(word).is_none_or(|word| word & bit == 0) {
                continue;
            }
            for start in number.saturating_sub(STRIDE - 1)..=number {
                let run = start..start + RUN_BYTES_MIN;
                if text.get(run.clone()).is_some_and(|run| self.contains(run)) {
                    found(run);
                }
            }
        }
    }

    fn for_each_echo(&self, text: &[u8], found: &mut impl FnMut(Range<usize>)) {
        let mut end = 0;
        for at in filler_starts(text) {
            let (before, rest) = text.split_at_checked(at).unwrap_or((text, &[]));
            let filler = if at < end { 0 } else { fillers_length(rest) };
            if filler == 0 {
                continue;
            }
            end = at + filler;
            let head = self.head_at_end(before);
            let tail = self.tail_at_start(rest.get(filler..).unwrap_or_default());
            let both = head >= ECHO_BOTH_BYTES_MIN && tail >= ECHO_BOTH_BYTES_MIN;
            if both || head >= ECHO_ONE_BYTES_MIN || tail >= ECHO_ONE_BYTES_MIN {
                found(at - head..end + tail);
            }
        }
    }

    /// Returns the length of the longest prefix of the credential that is at the end of the text.
    fn head_at_end(&self, text: &[u8]) -> usize {
        let Some(last) = text.last() else { return 0 };
        let mut heads = memrchr_iter(*last, self.credential).map(|at| at + 1);
        let ends_with = |head: &usize| self.credential.get(..*head).is_some_and(|head| text.ends_with(head));
        heads.find(ends_with).unwrap_or(0)
    }

    /// Returns the length of the longest suffix of the credential that is at the beginning of the text.
    fn tail_at_start(&self, text: &[u8]) -> usize {
        let Some(first) = text.first() else { return 0 };
        let mut tails = memchr_iter(*first, self.credential);
        let starts_with = |at: &usize| self.credential.get(*at..).is_some_and(|tail| text.starts_with(tail));
        tails.find(starts_with).map_or(0, |at| self.credential.len() - at)
    }
}

/// Returns the position of a gram's bit in the filter: the index of the word, and the bit in it.
fn filter_bit(gram: &[u8]) -> (usize, u64) {
    let number = gram.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
    // Fibonacci hashing: the upper bits of the product depend on all of the number.
    let hash = number.wrapping_mul(0x9E37_79B1) >> (u32::BITS - FILTER_BITS_LOG);
    let word = usize::try_from(hash >> u64::BITS.trailing_zeros()).unwrap_or(0);
    (word, 1 << (hash % u64::BITS))
}

/// Returns the offsets in the text at which a filler can begin.
fn filler_starts(text: &[u8]) -> impl Iterator<Item = usize> {
    let mut plain = memchr3_iter(b'*', b'.', b'\\', text).peekable();
    let mut points = memchr_iter(0xE2, text).peekable();
    std::iter::from_fn(move || match (plain.peek(), points.peek()) {
        (Some(one), Some(other)) if other < one => points.next(),
        (Some(_), _) => plain.next(),
        (None, _) => points.next(),
    })
}

/// Returns the length of all fillers at the beginning of `text`, in any mixture; 0 if there are none.
fn fillers_length(text: &[u8]) -> usize {
    let mut length = 0;
    while let Some(filler) = FILLERS
        .iter()
        .find(|filler| text.get(length..).is_some_and(|rest| rest.starts_with(filler)))
    {
        length += filler.len();
    }
    length
}

/// Returns the length of the filler, or of the full stop, with which the text ends; `None` if it ends with neither.
fn last_filler(text: &[u8]) -> Option<usize> {
    let mut fillers = FILLERS.iter().filter(|filler| text.ends_with(filler));
    let filler = fillers.next().map(|filler| filler.len());
    filler.or_else(|| text.ends_with(b".").then_some(1))
}

/// The maximum number of bytes that weir holds back until it knows whether they belong to an error. Errors are short. In a longer
/// message, weir masks only the credential itself, which must not be in any answer, and lets everything else pass.
const WAITING_BYTES_MAX: usize = 64 * 1024;

/// The state of masking one answer, whose pieces pass through weir one by one.
#[derive(Debug, Default)]
pub(crate) struct PassingMask {
    /// The bytes that are held back: the incomplete message, beginning with the first byte that may have to be masked.
    waiting: Vec<u8>,
    /// Whether a part of the bytes in `waiting` resembles the credential. If so, weir holds back all of these bytes, because
    /// their message may be an error.
    resembles: bool,
    has_masked: bool,
}

/// The part of a piece that can pass now.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum MaskedPiece {
    /// This number of bytes from the beginning of the piece, unchanged.
    First(usize),
    /// These bytes instead of the piece.
    Instead(Vec<u8>),
}

impl PassingMask {
    /// Handles the next piece of the answer. `boundaries` are the message boundaries that the observer has found in the piece.
    /// The bytes that pass do not depend on how the answer is split.
    pub(crate) fn push(&mut self, piece: &[u8], boundaries: MessageBoundaries, credential: &str) -> MaskedPiece {
        let MessageBoundaries { error_from, open_from } = boundaries;
        let is_plain = self.is_plain(boundaries);
        if self.can_pass(piece, boundaries) || !can_be_masked(credential.as_bytes()) {
            return MaskedPiece::First(piece.len());
        }
        let search = CredentialSearch::new(credential.as_bytes());
        let open = piece.get(open_from..).unwrap_or_default();
        if is_plain {
            let (suspected, resembles) = search.suspected_from(open);
            if open.len() - suspected <= WAITING_BYTES_MAX {
                self.resembles = resembles;
                self.waiting
                    .extend_from_slice(open.get(suspected..).unwrap_or_default());
                return MaskedPiece::First(open_from + suspected);
            }
        }
        let mut out = Vec::new();
        let error_from = error_from.unwrap_or(open_from).min(open_from);
        if error_from > 0 {
            // The waiting bytes do not belong to an error, so they pass unmasked.
            out.append(&mut self.waiting);
            self.resembles = false;
            out.extend_from_slice(piece.get(..error_from).unwrap_or_default());
        }
        if error_from < open_from {
            let errors = piece.get(error_from..open_from).unwrap_or_default();
            self.waiting.extend_from_slice(errors);
            self.release(&search, &mut out);
        }
        self.waiting.extend_from_slice(open);
        if !self.resembles {
            let (suspected, resembles) = search.suspected_from(&self.waiting);
            out.extend(self.waiting.drain(..suspected));
            self.resembles = resembles;
        }
        if self.waiting.len() > WAITING_BYTES_MAX {
            self.release_long(&search, credential.as_bytes(), &mut out);
        }
        MaskedPiece::Instead(out)
    }

    /// Whether the next piece passes unchanged for any credential, because it consists of complete messages that are not errors.
    pub(crate) fn can_pass(&self, piece: &[u8], boundaries: MessageBoundaries) -> bool {
        self.is_plain(boundaries) && boundaries.open_from >= piece.len()
    }

    /// Whether no bytes are held back and no error has arrived.
    fn is_plain(&self, boundaries: MessageBoundaries) -> bool {
        self.waiting.is_empty() && boundaries.error_from.is_none()
    }

    /// Ends the answer, even within a message. Returns the bytes that are held back, masked as if they belonged to an error.
    pub(crate) fn finish(&mut self, credential: &str) -> Vec<u8> {
        let mut out = Vec::new();
        if !self.waiting.is_empty() {
            self.release(&CredentialSearch::new(credential.as_bytes()), &mut out);
        }
        out
    }

    /// Whether a part of the answer was masked.
    pub(crate) fn has_masked(&self) -> bool {
        self.has_masked
    }

    /// Whether bytes are held back. These bytes may belong to an error.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    fn release(&mut self, search: &CredentialSearch<'_>, out: &mut Vec<u8>) {
        self.has_masked |= mask_in_place(&mut self.waiting, search);
        out.append(&mut self.waiting);
        self.resembles = false;
    }

    /// Masks the credential in the bytes that are held back, and releases them. If the last of these bytes could be the beginning
    /// of a part to mask, they remain held back.
    fn release_long(&mut self, search: &CredentialSearch<'_>, credential: &[u8], out: &mut Vec<u8>) {
        let places: Vec<usize> = memmem::find_iter(&self.waiting, credential).collect();
        for at in &places {
            mask_range(&mut self.waiting, *at..*at + credential.len());
        }
        self.has_masked |= !places.is_empty();
        let masked_to = places.last().map_or(0, |at| at + credential.len());
        let unfinished = search.unfinished_from(&self.waiting).max(masked_to);
        out.extend(self.waiting.drain(..unfinished));
        self.resembles = false;
    }
}
