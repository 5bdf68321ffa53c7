//! The time for which a key's old text remains valid beside a new one, as an option: `24h`.

use crate::domain::keys::rotation::OVERLAP_MAX_SECONDS;

/// The error for anything else.
const OVERLAP_HINT: &str =
    "give a whole number with s, m, h or d, such as 24h, at most 30d; or 0 to end the old text at once";

/// A time in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverlapArg(pub u64);

impl OverlapArg {
    /// Parses one.
    ///
    /// # Errors
    /// Says what to give.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
        let number: u64 = digits.parse().map_err(|_| OVERLAP_HINT)?;
        let unit = match text.strip_prefix(digits) {
            Some("s") => 1,
            Some("m") => 60,
            Some("h") => 3600,
            Some("d") => 24 * 3600,
            Some("") if number == 0 => 1,
            _ => return Err(OVERLAP_HINT),
        };
        let seconds = number
            .checked_mul(unit)
            .filter(|seconds| *seconds <= OVERLAP_MAX_SECONDS);
        seconds.map(Self).ok_or(OVERLAP_HINT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overlap_has_a_unit_and_an_end() {
        let seconds = |text| OverlapArg::parse(text).map(|overlap| overlap.0);
        for (text, expected) in [
            ("0", 0),
            ("90s", 90),
            ("5m", 300),
            ("24h", 86_400),
            ("30d", OVERLAP_MAX_SECONDS),
        ] {
            assert_eq!(seconds(text), Ok(expected), "{text}");
        }
        for text in [
            "",
            "h",
            "24",
            "-1h",
            "1.5h",
            "1w",
            "1 h",
            "31d",
            "721h",
            "99999999999999999999s",
            "9223372036854775807d",
        ] {
            assert_eq!(seconds(text), Err(OVERLAP_HINT), "{text}");
        }
    }
}
