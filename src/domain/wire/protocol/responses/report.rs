//! The usage that an answer of the Responses protocol reports.

use crate::domain::wire::usage::{Modalities, Usage, fields::ReportField};

/// The fields of a usage object.
pub(super) const FIELDS: [&str; 5] = [
    "input_tokens",
    "input_tokens_details",
    "output_tokens",
    "output_tokens_details",
    "total_tokens",
];

/// The counts of a usage object.
#[derive(Clone, Debug)]
pub(super) struct ResponsesReport {
    /// The usage without the calls of tools.
    pub(super) tokens: Usage,
    /// Both input and output are reported.
    pub(super) has_both: bool,
}

impl ResponsesReport {
    /// `input_tokens` and `output_tokens` include cached, written and reasoning tokens; reasoning comes in addition if the total
    /// shows so. Both include audio and image tokens, as do the cached tokens.
    pub(super) fn from_fields(
        [input, input_details, output, output_details, total]: [ReportField<'_>; FIELDS.len()],
    ) -> Self {
        let (counted_input, counted_output) = (input.count(), output.count());
        let input = counted_input.unwrap_or(0);
        let [cached, cached_details, written, split, audio, image] = input_details.fields(&[
            "cached_tokens",
            "cached_tokens_details",
            "cache_write_tokens",
            "cache_write_tokens_details",
            "audio_tokens",
            "image_tokens",
        ]);
        let fresh = Modalities::from_counts(audio, image);
        let [audio, image] = cached_details.fields(&["audio_tokens", "image_tokens"]);
        let read = Modalities::from_counts(audio, image);
        let [reasoning, audio, image] = output_details.fields(&["reasoning_tokens", "audio_tokens", "image_tokens"]);
        let spoken = Modalities::from_counts(audio, image);
        let cache_read = cached.count().unwrap_or(0).min(input);
        let split = split.fields(&["ttl_30m_tokens", "ttl_12h_tokens"]);
        let [short, long] = split.map(|count| count.count().unwrap_or(0));
        let written = written.count().unwrap_or(short.saturating_add(long));
        let written = written.min(input - cache_read);
        let cache_write_long = long.min(written);
        let said = counted_output.unwrap_or(0);
        let reasoning = reasoning.count().unwrap_or(0);
        let with_reasoning = said.saturating_add(reasoning);
        let is_beside = total.count() == Some(input.saturating_add(with_reasoning));
        let output = if is_beside { with_reasoning } else { said };
        let reasoning = reasoning.min(output);
        let uncached = input - cache_read - written;
        let read = read.at_most(cache_read);
        let fresh = fresh.minus(read).at_most(uncached);
        let spoken = spoken.at_most(output - reasoning);
        let tokens = Usage {
            input_uncached: fresh.remaining(uncached),
            input_audio: fresh.audio,
            input_image: fresh.image,
            cache_read: read.remaining(cache_read),
            cache_read_audio: read.audio,
            cache_read_image: read.image,
            cache_write_short: written - cache_write_long,
            cache_write_long,
            output_text: spoken.remaining(output - reasoning),
            output_audio: spoken.audio,
            output_image: spoken.image,
            output_reasoning: reasoning,
            ..Usage::default()
        };
        let has_both = counted_input.is_some() && counted_output.is_some();
        Self { tokens, has_both }
    }
}
