//! Audio and image tokens of a report.

use crate::domain::wire::usage::fields::ReportField;

/// The audio and image tokens that a count includes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::domain) struct Modalities {
    pub(in crate::domain) audio: u64,
    pub(in crate::domain) image: u64,
}

impl Modalities {
    /// Reads a list of counts, each with its modality, as in a Gemini-style report.
    pub(in crate::domain) fn from_list(counts: ReportField<'_>) -> Self {
        let counts = counts.objects(&["modality", "tokenCount"]);
        counts.fold(Self::default(), |sum, [modality, count]| {
            let count = count.count().unwrap_or(0);
            match modality.text().as_deref() {
                Some("AUDIO") => Self {
                    audio: sum.audio.saturating_add(count),
                    ..sum
                },
                Some("IMAGE") => Self {
                    image: sum.image.saturating_add(count),
                    ..sum
                },
                _ => sum,
            }
        })
    }

    /// Reads one count for each, as in a Responses report.
    pub(in crate::domain) fn from_counts(audio: ReportField<'_>, image: ReportField<'_>) -> Self {
        Self {
            audio: audio.count().unwrap_or(0),
            image: image.count().unwrap_or(0),
        }
    }

    /// The same, but at most `whole` together, the count that includes them.
    #[must_use]
    pub(in crate::domain) fn at_most(self, whole: u64) -> Self {
        let image = self.image.min(whole);
        let audio = self.audio.min(whole - image);
        Self { audio, image }
    }

    /// The difference to `other`; zero where `other` is larger.
    #[must_use]
    pub(in crate::domain) fn minus(self, other: Self) -> Self {
        Self {
            audio: self.audio.saturating_sub(other.audio),
            image: self.image.saturating_sub(other.image),
        }
    }

    /// The part of the count `whole` that is neither.
    pub(in crate::domain) fn remaining(self, whole: u64) -> u64 {
        whole.saturating_sub(self.audio).saturating_sub(self.image)
    }
}
