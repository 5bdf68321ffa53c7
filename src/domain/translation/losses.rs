//! The losses of a translation: the verdict on each lost member, and the limited list that weir reports.

use std::{borrow::Cow, fmt::Write};

use serde::Deserialize;

use crate::domain::wire::{Protocol, UpstreamProtocol};

/// The maximum number of losses that are listed by path; further losses are only counted.
pub(crate) const LOSSES_MAX: usize = 256;
/// The maximum length of the value of the header `weir-translation` in bytes, excluding the number of omitted losses.
pub(crate) const HEADER_BYTES_MAX: usize = 1024;

/// The treatment of a request member that affects the client's answer and cannot be carried over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TranslationMode {
    /// The request is refused, and the refusal names the member.
    Strict,
    /// The member is dropped and reported.
    Lossy,
}

impl TranslationMode {
    /// Both modes.
    pub(crate) const ALL: [Self; 2] = [Self::Strict, Self::Lossy];

    /// Returns the name of the mode in configuration files.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Strict => "strict",
            Self::Lossy => "lossy",
        }
    }
}

/// The verdict on a member that was not carried over unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum LossVerdict {
    /// The member was carried over in a different form, for the same purpose.
    Adapted,
    /// The member was dropped.
    Dropped,
    /// The member was dropped, because weir does not know it.
    Unknown,
}

impl LossVerdict {
    /// All verdicts, in the order in which the header lists them.
    pub(crate) const ALL: [Self; 3] = [Self::Adapted, Self::Dropped, Self::Unknown];

    /// Returns the name of the verdict in the header, the access log and the metric.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Adapted => "adapted",
            Self::Dropped => "dropped",
            Self::Unknown => "unknown",
        }
    }
}

/// A member that was not carried over unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TranslationLoss {
    /// Whether the member was adapted, dropped or unknown.
    pub(crate) verdict: LossVerdict,
    /// The member's path in the client's body, for example `tools[9].strict`; never its value.
    pub(crate) path: String,
}

/// The refusal of a request that cannot be translated, because content or state would be lost.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {reason}")]
pub(crate) struct Untranslatable {
    /// The path of the member in the client's body.
    pub(crate) path: String,
    /// The reason for the refusal, and what the client can do about it.
    pub(crate) reason: Cow<'static, str>,
}

impl Untranslatable {
    /// Creates the refusal of the member at `path`.
    pub(crate) fn new(path: impl Into<String>, reason: impl Into<Cow<'static, str>>) -> Self {
        Self {
            path: path.into(),
            reason: reason.into(),
        }
    }
}

/// The losses of one translation, in the order in which they were found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TranslationLosses {
    mode: TranslationMode,
    listed: Vec<TranslationLoss>,
    omitted: usize,
}

impl TranslationLosses {
    /// Creates an empty list for a translation in this mode.
    pub(crate) const fn new(mode: TranslationMode) -> Self {
        Self {
            mode,
            listed: Vec::new(),
            omitted: 0,
        }
    }

    /// Reports a member that is carried over in a different form.
    pub(crate) fn adapted(&mut self, path: impl Into<String>) {
        self.add(LossVerdict::Adapted, path.into());
    }

    /// Reports a member that is dropped.
    pub(crate) fn dropped(&mut self, path: impl Into<String>) {
        self.add(LossVerdict::Dropped, path.into());
    }

    /// Reports a member that is dropped because weir does not know it.
    pub(crate) fn unknown(&mut self, path: impl Into<String>) {
        self.add(LossVerdict::Unknown, path.into());
    }

    /// Refuses a member in strict mode; reports it as dropped in lossy mode.
    ///
    /// # Errors
    /// The member is refused, in strict mode.
    pub(crate) fn refused_in_strict(
        &mut self,
        path: impl Into<String>,
        reason: impl Into<Cow<'static, str>>,
    ) -> Result<(), Untranslatable> {
        match self.mode {
            TranslationMode::Strict => Err(Untranslatable::new(path, reason)),
            TranslationMode::Lossy => {
                self.dropped(path);
                Ok(())
            }
        }
    }

    fn add(&mut self, verdict: LossVerdict, path: String) {
        let loss = TranslationLoss { verdict, path };
        if self.listed.contains(&loss) {
            return;
        }
        if self.listed.len() < LOSSES_MAX {
            self.listed.push(loss);
        } else {
            self.omitted += 1;
        }
    }

    /// Returns the listed losses.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &TranslationLoss> {
        self.listed.iter()
    }

    /// Returns the number of losses beyond [`LOSSES_MAX`], which are not listed.
    pub(crate) fn omitted(&self) -> usize {
        self.omitted
    }

    /// Returns the number of listed losses with this verdict.
    pub(crate) fn count(&self, verdict: LossVerdict) -> usize {
        self.listed.iter().filter(|loss| loss.verdict == verdict).count()
    }

    /// Returns the value of the header `weir-translation`. It is a dictionary (RFC 9651) that contains both protocols and, for
    /// each verdict, the paths of the members with this verdict. Paths that would make the value longer than [`HEADER_BYTES_MAX`]
    /// are only counted, in `more`.
    pub(crate) fn header(&self, from: Protocol, to: UpstreamProtocol) -> String {
        let mut value = format!("from={}, to={}", from.as_str(), to.as_str());
        let mut more = self.omitted;
        for verdict in LossVerdict::ALL {
            let mut losses = self.listed.iter().filter(|loss| loss.verdict == verdict).peekable();
            if losses.peek().is_none() {
                continue;
            }
            let mut list = String::new();
            for loss in losses {
                let text = quoted(&loss.path);
                if value.len() + list.len() + text.len() + verdict.as_str().len() + 6 > HEADER_BYTES_MAX {
                    more += 1;
                    continue;
                }
                if !list.is_empty() {
                    list.push(' ');
                }
                list.push_str(&text);
            }
            if !list.is_empty() {
                // Writing to a string cannot fail.
                let _ = write!(value, ", {}=({list})", verdict.as_str());
            }
        }
        if more > 0 {
            let _ = write!(value, ", more={more}");
        }
        value
    }
}

/// Returns a path as a string of a structured field. A character that is not allowed in such a string becomes `?`.
fn quoted(path: &str) -> String {
    let mut text = String::with_capacity(path.len() + 2);
    text.push('"');
    for character in path.chars() {
        match character {
            '"' | '\\' => text.extend(['\\', character]),
            ' '..='~' => text.push(character),
            _ => text.push('?'),
        }
    }
    text.push('"');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lossy() -> TranslationLosses {
        TranslationLosses::new(TranslationMode::Lossy)
    }

    #[test]
    fn the_header_names_both_protocols_and_each_loss_once_by_its_verdict() {
        let mut losses = lossy();
        losses.dropped("tools[9]");
        losses.adapted("reasoning");
        losses.dropped("text.verbosity");
        losses.dropped("tools[9]");
        losses.unknown("a \"new\" \u{e9}");
        assert_eq!(
            losses.header(Protocol::Responses, UpstreamProtocol::Chat),
            r#"from=responses, to=chat, adapted=("reasoning"), dropped=("tools[9]" "text.verbosity"), unknown=("a \"new\" ?")"#
        );
    }

    #[test]
    fn a_long_header_counts_what_it_leaves_out() {
        let mut losses = lossy();
        for number in 0..LOSSES_MAX + 10 {
            losses.dropped(format!("messages[{number}].content[0].cache_control"));
        }
        let header = losses.header(Protocol::Messages, UpstreamProtocol::Chat);
        let listed = header.matches("cache_control").count();
        assert!(header.len() <= HEADER_BYTES_MAX + 12, "{}", header.len());
        assert!(
            header.ends_with(&format!(", more={}", LOSSES_MAX + 10 - listed)),
            "{header}"
        );
    }

    #[test]
    fn strict_refuses_what_lossy_drops() {
        let mut losses = TranslationLosses::new(TranslationMode::Strict);
        let refusal = losses.refused_in_strict("stop_sequences", "Responses has no stop sequences");
        assert_eq!(
            refusal.unwrap_err().to_string(),
            "stop_sequences: Responses has no stop sequences"
        );
        let mut losses = lossy();
        losses
            .refused_in_strict("stop_sequences", "Responses has no stop sequences")
            .unwrap();
        assert_eq!(losses.count(LossVerdict::Dropped), 1);
    }
}
