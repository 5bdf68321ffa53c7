//! Sound and images among the tokens of a report.

use crate::domain::wire::usage::fields::Fields;

/// Tokens of sound and of images: a part of some count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::domain) struct Modalities {
    pub(in crate::domain) audio: u64,
    pub(in crate::domain) image: u64,
}

impl Modalities {
    /// Those of a list of counts, each with its modality, as a Gemini-style report has it.
    pub(in crate::domain) fn of_list(counts: &[Fields<'_>]) -> Self {
        counts.iter().fold(Self::default(), |sum, one| {
            let count = one.count("tokenCount").unwrap_or(0);
            match one.text("modality").as_deref() {
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

    /// Those of an object with a count for each modality, as a Responses report has it.
    pub(in crate::domain) fn of_object(counts: &Fields<'_>) -> Self {
        Self {
            audio: counts.count("audio_tokens").unwrap_or(0),
            image: counts.count("image_tokens").unwrap_or(0),
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
