//! The code that a person compares or types: eight consonants, which spell no word (RFC 8628, section 6.1).

use std::{fmt, str::FromStr};

use rand::{CryptoRng, RngExt};

use crate::domain::{keys::secret::KeyDigest, sign_in::document_name};

const LETTERS: &[u8; 20] = b"BCDFGHJKLMNPQRSTVWXZ";
const CHARS: usize = 8;

/// A user code, which a person compares or types: eight consonants, which spell no word (RFC 8628, section 6.1). Of 20^8 codes,
/// few are valid at the same time, each for minutes.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct UserCode(String);

impl UserCode {
    /// Draws a new code.
    pub(crate) fn generate(rng: &mut impl CryptoRng) -> Self {
        let mut letter = || LETTERS.get(rng.random_range(0..LETTERS.len())).copied().unwrap_or(b'B');
        Self((0..CHARS).map(|_| char::from(letter())).collect())
    }

    /// Parses what a person typed: in upper or lower case, with or without the hyphen.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let typed = text.chars().filter(|char| !matches!(char, '-' | ' '));
        // One more than allowed, so that longer texts are rejected.
        let letters: String = typed.map(|char| char.to_ascii_uppercase()).take(CHARS + 1).collect();
        let is_code = letters.len() == CHARS && letters.bytes().all(|byte| LETTERS.contains(&byte));
        is_code.then_some(Self(letters))
    }

    /// The letters without the hyphen.
    pub(crate) fn letters(&self) -> &str {
        &self.0
    }

    /// The name of its document.
    pub(crate) fn document_name(&self) -> KeyDigest {
        document_name("device", &self.0)
    }
}

impl FromStr for UserCode {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        Self::parse(text).ok_or("the eight letters that the agent shows")
    }
}

/// Formats the code as people see it, such as `WDJB-MJHT`.
impl fmt::Display for UserCode {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, second) = self.0.split_at_checked(CHARS / 2).unwrap_or_default();
        write!(out, "{first}-{second}")
    }
}

impl fmt::Debug for UserCode {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("UserCode(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_read_as_people_type_it() {
        let code = UserCode::generate(&mut rand::rng());
        assert_eq!(code.letters().len(), CHARS);
        let shown = code.to_string();
        assert_eq!((shown.len(), shown.as_bytes()[4]), (CHARS + 1, b'-'));
        for typed in [
            shown.clone(),
            shown.to_lowercase(),
            code.letters().to_owned(),
            format!(" {} ", shown.replace('-', " ")),
        ] {
            assert_eq!(UserCode::parse(&typed).as_ref(), Some(&code), "{typed}");
        }
        for wrong in ["", "BCDF", "BCDFGHJKL", "ABCD-EFGH", "BCDF-GHJ\u{212a}", "12345678"] {
            assert_eq!(UserCode::parse(wrong), None, "{wrong}");
        }
        assert!(!format!("{code:?}").contains(code.letters()));
    }
}
