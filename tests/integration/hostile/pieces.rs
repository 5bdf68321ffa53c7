//! Bytes as the files of cases write them: text or hexadecimal, as often as is said.

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::harness::tools::repository;

/// What the file of a family holds.
pub(super) fn file<T: DeserializeOwned>(family: &str) -> T {
    let path = repository().join(format!("tests/hostile/{family}.toml"));
    let text = std::fs::read_to_string(&path).unwrap();
    toml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A text, or an object with more to say.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Piece {
    /// Sent once.
    Text(String),
    /// Sent `times` times.
    Repeated { text: String, times: usize },
    /// Bytes in hexadecimal, with white space anywhere.
    Hex {
        hex: String,
        #[serde(default = "once")]
        times: usize,
    },
}

fn once() -> usize {
    1
}

/// The bytes of all pieces; in texts, each name of `words` stands for its value.
pub(super) fn bytes(pieces: &[Piece], words: &[(&str, &str)]) -> Vec<u8> {
    pieces.iter().flat_map(|piece| one(piece, words)).collect()
}

fn one(piece: &Piece, words: &[(&str, &str)]) -> Vec<u8> {
    match piece {
        Piece::Text(text) => filled(text, words).into_bytes(),
        Piece::Repeated { text, times } => filled(text, words).into_bytes().repeat(*times),
        Piece::Hex { hex: text, times } => hex(text).repeat(*times),
    }
}

/// A text with each name of `words` replaced.
pub(super) fn filled(text: &str, words: &[(&str, &str)]) -> String {
    words
        .iter()
        .fold(text.to_owned(), |text, (name, value)| text.replace(name, value))
}

/// The bytes of a text in hexadecimal.
pub(super) fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .chars()
        .filter(|one| !one.is_whitespace())
        .map(|one| u8::try_from(one.to_digit(16).unwrap_or_else(|| panic!("no digit: {one:?}"))).unwrap())
        .collect();
    assert!(digits.len().is_multiple_of(2), "half a byte: {text}");
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}
