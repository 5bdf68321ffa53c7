//! Sound and images among the tokens of a report.

use crate::domain::wire::usage::fields::Field;

/// Tokens of sound and of images: a part of some count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::domain) struct Modalities {
    pub(in crate::domain) audio: u64,
    pub(in crate::domain) image: u64,
}

impl Modalities {
    /// Those of a list of counts, each with its modality, as a Gemini-style report has it.
    pub(in crate::domain) fn of_list(counts: Field<'_>) -> Self {
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

    /// Those of a count for each, as a Responses report has them.
    pub(in crate::domain) fn of_counts(audio: Field<'_>, image: Field<'_>) -> Self {
        Self {
            audio: audio.count().unwrap_or(0),
            image: image.count().unwrap_or(0),
        }
    }

    /// The same, and no more than the count that they are a part of.
    #[must_use]
    pub(in crate::domain) fn within(self, whole: u64) -> Self {
        let image = self.image.min(whole);
        let audio = self.audio.min(whole - image);
        Self { audio, image }
    }

    /// What is more than in the other.
    #[must_use]
    pub(in crate::domain) fn beyond(self, other: Self) -> Self {
        Self {
            audio: self.audio.saturating_sub(other.audio),
            image: self.image.saturating_sub(other.image),
        }
    }

    /// What of a count is neither.
    pub(in crate::domain) fn rest(self, whole: u64) -> u64 {
        whole.saturating_sub(self.audio).saturating_sub(self.image)
    }
}
