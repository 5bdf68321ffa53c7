//! The usage that an answer of the Responses protocol reports.

use crate::domain::wire::usage::{Modalities, Usage, fields::Field};

/// The fields of a usage object.
pub(super) const FIELDS: [&str; 5] = [
    "input_tokens",
    "input_tokens_details",
    "output_tokens",
    "output_tokens_details",
    "total_tokens",
];

/// What a usage object says.
#[derive(Clone, Debug)]
pub(super) struct Report {
    /// All but the calls of tools.
    pub(super) tokens: Usage,
    /// Input and output are counted.
    pub(super) has_both: bool,
}

impl Report {
    /// Cached, written and reasoning tokens lie inside `input_tokens` and `output_tokens`; reasoning beside them where the total
    /// has it once more. Sound and images are a part of both, and of what was cached.
    pub(super) fn of([input, input_details, output, output_details, total]: [Field<'_>; FIELDS.len()]) -> Self {
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
        let fresh = Modalities::of_counts(audio, image);
        let [audio, image] = cached_details.fields(&["audio_tokens", "image_tokens"]);
        let read = Modalities::of_counts(audio, image);
        let [reasoning, audio, image] = output_details.fields(&["reasoning_tokens", "audio_tokens", "image_tokens"]);
        let spoken = Modalities::of_counts(audio, image);
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
        let read = read.within(cache_read);
        let fresh = fresh.beyond(read).within(uncached);
        let spoken = spoken.within(output - reasoning);
        let tokens = Usage {
            input_uncached: fresh.rest(uncached),
            input_audio: fresh.audio,
            input_image: fresh.image,
            cache_read: read.rest(cache_read),
            cache_read_audio: read.audio,
            cache_read_image: read.image,
            cache_write_short: written - cache_write_long,
            cache_write_long,
            output_text: spoken.rest(output - reasoning),
            output_audio: spoken.audio,
            output_image: spoken.image,
            output_reasoning: reasoning,
            ..Usage::default()
        };
        let has_both = counted_input.is_some() && counted_output.is_some();
        Self { tokens, has_both }
    }
}
