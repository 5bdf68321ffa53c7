//! Estimates the input tokens of a request before the provider reports them.
//!
//! The scan of the body passes every key and value to the estimate. The first [`EXACT_BYTES`] of the text are counted completely.
//! Of the rest of the text, only one block in [`SAMPLED_EVERY`] is counted, so that the estimate takes much less time than a
//! second pass over a long conversation. A base64 payload is estimated from its kind and length, and only its first and last
//! bytes are read. The structure is estimated as providers render it for the model: field names in messages take few tokens, and
//! the schemas of tools are text.

use crate::domain::wire::json_pick::TextCounter;
use crate::domain::wire::tokens::TokenFactor;

/// The number of tokens that the estimate assumes for every image. Providers charge this number for an image of a megapixel or
/// more.
const IMAGE_TOKENS: u64 = 1_600;
/// The number of tokens that each block of [`DOCUMENT_STEP_BYTES`] in a base64 document takes. The last block can be shorter. A
/// document is a PDF or an unknown payload.
const DOCUMENT_STEP_TOKENS: u64 = 3_000;
/// The length of about two pages in base64, in bytes.
const DOCUMENT_STEP_BYTES: u64 = 100 << 10;
/// The number of bytes of base64 audio per token: 32 tokens a second at 128 kbit/s.
const SOUND_BYTES_PER_TOKEN: u64 = 667;
/// The number of bytes of base64 video per token: 260 tokens a second at 2 Mbit/s.
const FILM_BYTES_PER_TOKEN: u64 = 1_300;
/// The minimum length of a base64 payload, in bytes. A shorter string is text, unless it begins like a data URL.
const PAYLOAD_BYTES_MIN: usize = 1 << 10;
/// The number of bytes at each end of a string that are checked for base64.
const PAYLOAD_ENDS: usize = 256;

/// The number of bytes of text that are counted completely.
const EXACT_BYTES: u64 = 16 << 10;
/// The number of bytes in a block of the sampled text. Small blocks cover many parts of a conversation.
const BLOCK_BYTES: u64 = 128;
/// The number of blocks in each group of the sampled text. Only the first block of a group is counted, and represents all of
/// them.
const SAMPLED_EVERY: u64 = 32;
/// The number of bytes in [`SAMPLED_EVERY`] blocks.
const ROUND_BYTES: u64 = BLOCK_BYTES * SAMPLED_EVERY;

/// The number of half tokens for the name of a field outside of tools. Providers add about four tokens per message for all such
/// fields and their values.
const FIELD_HALVES: u64 = 1;
/// The number of half tokens for the punctuation around a field's name and value in the schema of a tool.
const SCHEMA_FIELD_HALVES: u64 = 3;
/// The number of half tokens for a number or literal.
const SCALAR_HALVES: u64 = 2;

/// The estimated input tokens of the part of a body that was scanned so far.
#[derive(Debug, Default)]
pub(in crate::domain) struct InputTokenEstimate {
    exact: TextCounter,
    sampled: TextCounter,
    /// The number of bytes of text that were read so far, whether they were counted or not.
    text_bytes: u64,
    sampled_bytes: u64,
    payload_tokens: u64,
    halves: u64,
}

impl InputTokenEstimate {
    /// Counts the name of a field, as it is written between its quotes. `in_tools` is true in the tools that the request
    /// declares.
    pub(in crate::domain) fn on_key(&mut self, raw: &[u8], in_tools: bool) {
        if in_tools {
            self.halves = self.halves.saturating_add(SCHEMA_FIELD_HALVES);
            self.add_text(raw);
        } else {
            self.halves = self.halves.saturating_add(FIELD_HALVES);
        }
    }

    /// Counts a number or literal.
    pub(in crate::domain) fn on_scalar(&mut self) {
        self.halves = self.halves.saturating_add(SCALAR_HALVES);
    }

    /// Counts a string, as it is written between its quotes.
    pub(in crate::domain) fn on_string(&mut self, raw: &[u8]) {
        if raw.is_empty() {
            return;
        }
        match payload_tokens(raw) {
            Some(tokens) => self.payload_tokens = self.payload_tokens.saturating_add(tokens),
            None => self.add_text(raw),
        }
    }

    fn add_text(&mut self, raw: &[u8]) {
        if self.is_skipped(raw.len()) {
            self.text_bytes = self.text_bytes.saturating_add(raw.len() as u64);
        } else {
            self.count_text(raw);
        }
    }

    /// Whether the next `length` bytes are entirely in blocks that are not counted.
    fn is_skipped(&self, length: usize) -> bool {
        let place = self.text_bytes % ROUND_BYTES;
        self.text_bytes >= EXACT_BYTES && place >= BLOCK_BYTES && length as u64 <= ROUND_BYTES - place
    }

    fn count_text(&mut self, raw: &[u8]) {
        let mut rest = raw;
        while !rest.is_empty() {
            let is_exact = self.text_bytes < EXACT_BYTES;
            let place = self.text_bytes % ROUND_BYTES;
            let room = match (is_exact, place) {
                (true, _) => EXACT_BYTES - self.text_bytes,
                (false, 0..BLOCK_BYTES) => BLOCK_BYTES - place,
                (false, _) => ROUND_BYTES - place,
            };
            let length = usize::try_from(room).unwrap_or(rest.len());
            let (piece, after) = rest.split_at_checked(length).unwrap_or((rest, &[]));
            if is_exact {
                self.exact.push(piece);
            } else if place < BLOCK_BYTES {
                self.sampled.push(piece);
                self.sampled_bytes = self.sampled_bytes.saturating_add(piece.len() as u64);
            }
            self.text_bytes = self.text_bytes.saturating_add(piece.len() as u64);
            rest = after;
        }
        self.exact.end_text();
        self.sampled.end_text();
    }

    /// Returns the estimate in tokens, as the tokenizer o200k counts them.
    pub(in crate::domain) fn tokens(&self) -> u64 {
        let tokens = |heard: &TextCounter| heard.classes().tokens();
        let behind = u128::from(self.text_bytes.saturating_sub(EXACT_BYTES));
        let sampled = u128::from(tokens(&self.sampled)) * behind / u128::from(self.sampled_bytes.max(1));
        [
            tokens(&self.exact),
            u64::try_from(sampled).unwrap_or(u64::MAX),
            self.payload_tokens,
            self.halves.div_ceil(2),
        ]
        .into_iter()
        .fold(0, u64::saturating_add)
    }
}

/// Returns the estimated input of a request in tokens: the scan's estimate times the model's factor, but at most the model's
/// context.
pub(crate) fn input_estimate(scanned: u64, factor: TokenFactor, context_tokens: Option<u64>) -> u64 {
    factor.apply(scanned).min(context_tokens.unwrap_or(u64::MAX))
}

/// Returns the number of tokens of a base64 payload; `None` if the string is text.
fn payload_tokens(raw: &[u8]) -> Option<u64> {
    if let Some(url) = raw.strip_prefix(b"data:") {
        let head = url.get(..PAYLOAD_ENDS).unwrap_or(url);
        let comma = memchr::memchr(b',', head)?;
        let (media_type, data) = url.split_at_checked(comma)?;
        if media_type.ends_with(b";base64") {
            return Some(
                PayloadKind::from_media_type(media_type)
                    .unwrap_or(PayloadKind::from_data(data))
                    .tokens(data.len()),
            );
        }
        return None;
    }
    let is_payload = raw.len() >= PAYLOAD_BYTES_MIN
        && raw.get(..PAYLOAD_ENDS).is_some_and(is_base64)
        && raw.get(raw.len() - PAYLOAD_ENDS..).is_some_and(is_base64);
    is_payload.then(|| PayloadKind::from_data(raw).tokens(raw.len()))
}

/// Whether all bytes belong to base64, in the standard or the URL-safe alphabet. A backslash is allowed, because it can escape a
/// slash or a line end.
fn is_base64(bytes: &[u8]) -> bool {
    bytes
        .iter()
        .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=' | b'-' | b'_' | b'\\'))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PayloadKind {
    Image,
    Document,
    Sound,
    Film,
}

/// The characters with which files of known types begin in base64, each with the kind of the payload.
const MAGIC: [(&[u8], PayloadKind); 13] = [
    (b"iVBORw0", PayloadKind::Image),
    (b"/9j/", PayloadKind::Image),
    (b"\\/9j\\/", PayloadKind::Image),
    (b"R0lGOD", PayloadKind::Image),
    (b"Qk0", PayloadKind::Image),
    (b"SUkqA", PayloadKind::Image),
    (b"JVBERi", PayloadKind::Document),
    (b"SUQz", PayloadKind::Sound),
    (b"//u", PayloadKind::Sound),
    (b"T2dnUw", PayloadKind::Sound),
    (b"ZkxhQw", PayloadKind::Sound),
    (b"GkXfo", PayloadKind::Film),
    (b"AAAA", PayloadKind::Film),
];

impl PayloadKind {
    fn from_media_type(media_type: &[u8]) -> Option<Self> {
        match media_type.get(..6)? {
            b"image/" => Some(Self::Image),
            b"audio/" => Some(Self::Sound),
            b"video/" => Some(Self::Film),
            _ => None,
        }
    }

    /// Returns the kind of a payload with these first bytes. If the first bytes are unknown, the kind is a document.
    fn from_data(data: &[u8]) -> Self {
        let data = data.strip_prefix(b",").unwrap_or(data);
        if data.starts_with(b"UklGR") {
            // RIFF: the file's kind begins at byte 8, and its last three letters at byte 9. `QVZF` is `AVE` of `WAVE`.
            return if data.get(12..16) == Some(b"QVZF") {
                Self::Sound
            } else {
                Self::Image
            };
        }
        MAGIC
            .iter()
            .find(|(magic, _)| data.starts_with(magic))
            .map_or(Self::Document, |(_, payload)| *payload)
    }

    fn tokens(self, length: usize) -> u64 {
        let bytes = u64::try_from(length).unwrap_or(u64::MAX);
        match self {
            Self::Image => IMAGE_TOKENS,
            Self::Document => bytes.div_ceil(DOCUMENT_STEP_BYTES).saturating_mul(DOCUMENT_STEP_TOKENS),
            Self::Sound => bytes.div_ceil(SOUND_BYTES_PER_TOKEN),
            Self::Film => bytes.div_ceil(FILM_BYTES_PER_TOKEN),
        }
    }
}

#[cfg(test)]
mod tests;
