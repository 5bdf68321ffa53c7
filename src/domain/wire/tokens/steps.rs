//! The state machine that determines the kind of each byte, from the byte's class and the bytes before it. Its states are called
//! places.
//!
//! A tokenizer first splits a text into pieces at the edges of words, numbers, punctuation and white space. Then it splits each
//! piece into tokens of its vocabulary. So a byte at the beginning of a piece has a higher value, and a long piece is worth more
//! than a short one. For this reason, there are different places within a word, within a number, and within a series of other
//! characters of one kind. Counting a byte takes two lookups and no branches.

use crate::domain::wire::tokens::O200K;

/// The kind of bytes that have the value zero: usually the bytes after the first byte of a character.
pub(super) const NOTHING: u8 = 0;

/// The number of entries in a row of [`PACKED_STEPS`]: at least the number of classes.
const CLASSES: usize = ROW_CLASSES as usize;
const ROW_CLASSES: u32 = 32;
/// The number of rows of [`PACKED_STEPS`]: at least the number of places.
const PLACES: usize = 64;

// The classes of bytes.
const LOWER: u8 = 0;
const UPPER: u8 = 1;
const DIGIT: u8 = 2;
const SPACE: u8 = 3;
const TAB: u8 = 4;
const NEWLINE: u8 = 5;
/// Punctuation that often belongs to the word after it: `_`, `.`, `-`, `/`, `'`.
const JOINER: u8 = 6;
const PUNCTUATION: u8 = 7;
const CONTROL: u8 = 8;
/// The byte 0x80. Like the bytes of the class `WITHIN`, it continues a character and never begins one.
const WITHIN_80: u8 = 9;
const WITHIN: u8 = 10;
/// The byte C2, which begins a character of two bytes. The next four classes contain the other bytes that begin a character of
/// two bytes. The characters are Latin letters, Greek letters, Cyrillic letters, and letters of other scripts, in this order.
const LATIN_SIGN: u8 = 11;
const LATIN: u8 = 12;
const GREEK: u8 = 13;
const CYRILLIC: u8 = 14;
const TWO_BYTES: u8 = 15;
/// The byte that begins the characters of three bytes in the scripts of India and South-East Asia. The next six classes contain
/// the other bytes that begin a character of three bytes: `E1` for Vietnamese Latin letters, Georgian and other scripts, `SIGN`
/// for symbols, `E3` for Japanese syllables and symbols, `HAN` for Chinese characters, `HANGUL` for Korean syllables, and `WIDE`
/// for wide forms. `FOUR_BYTES` is for characters of four bytes, which are mostly emoji.
const INDIC: u8 = 16;
const E1: u8 = 17;
const SIGN: u8 = 18;
const E3: u8 = 19;
const HAN: u8 = 20;
const HANGUL: u8 = 21;
const WIDE: u8 = 22;
const FOUR_BYTES: u8 = 23;
const QUOTE: u8 = 24;

// The places. In a word, the place is the number of letters so far.
const START: u8 = 0;
const AFTER_SPACE: u8 = 1;
const IN_SPACES: u8 = 2;
const AFTER_NEWLINE: u8 = 3;
const AFTER_JOINER: u8 = 4;
const AFTER_MARK: u8 = 5;
const IN_MARKS: u8 = 6;
const IN_NUMBER: u8 = 7; // 7, 8, 9: one, two, three digits
const IN_WORD: u8 = 10; // 10..=23: 1 to 14 letters
const WORD_MAX: u8 = 14;
const IN_CAPITALS: u8 = 24; // 24..=27: 1 to 4
const CAPITALS_MAX: u8 = 4;
const IN_LETTERS: u8 = 28; // 28..=37: words of other scripts, 1 to 10
const LETTERS_MAX: u8 = 10;
const IN_HAN: u8 = 38; // 38..=41
const HAN_MAX: u8 = 4;
const IN_KANA: u8 = 42; // 42..=45
const KANA_MAX: u8 = 4;
const IN_HANGUL: u8 = 46; // 46..=49
const HANGUL_MAX: u8 = 4;
/// The place after the byte E3. The byte after E3 determines the kind of the character. There are five such places, because a
/// place also says how many Japanese syllables precede E3: zero, one, two, three, or at least four.
const AFTER_E3: u8 = 50; // 50..=54
const IN_WIDE: u8 = 55;
const IN_INDIC: u8 = 56; // 56..=59
const INDIC_MAX: u8 = 4;

// The kinds of bytes. Each kind has a value in `O200K`.
const WORD_AT_START: u8 = 1;
const WORD_AFTER_SPACE: u8 = 2;
const WORD_AFTER_JOINER: u8 = 3;
const WORD_AFTER_MARK: u8 = 4;
const WORD_AFTER_MARKS: u8 = 5;
const WORD_AFTER_DIGIT: u8 = 6;
const WORD_AFTER_OTHER: u8 = 7;
const LETTER: u8 = 8; // 8..=20: the second to the fourteenth letter, and all further ones
const CAPITAL_FIRST: u8 = 21;
const CAPITAL_AFTER_SPACE: u8 = 22;
const CAPITAL_IN_WORD: u8 = 23;
const CAPITAL: u8 = 24; // 24..=26: the second, third, fourth and more
const WORD_AFTER_CAPITALS: u8 = 27;
const DIGIT_FIRST: u8 = 28;
const DIGIT_AFTER_SPACE: u8 = 29;
const DIGIT_NEXT: u8 = 30;
const DIGIT_AGAIN: u8 = 31;
const SPACE_FIRST: u8 = 32;
const SPACE_SECOND: u8 = 33;
const SPACE_NEXT: u8 = 34;
const NEWLINE_AFTER_MARK: u8 = 35;
const NEWLINE_FIRST: u8 = 36;
const NEWLINE_NEXT: u8 = 37;
const MARK_AFTER_SPACE: u8 = 38;
const MARK_FIRST: u8 = 39;
const MARK_SECOND: u8 = 40;
const MARK_NEXT: u8 = 41;
const CONTROLS: u8 = 42;
const LATIN_SIGNS: u8 = 43;
const LATIN_LETTER: u8 = 44;
const LATIN_FIRST: u8 = 45;
const CYRILLIC_FIRST: u8 = 46; // 46..=55: by the place in the word
const GREEK_LETTER: u8 = 56;
const OTHER_LETTER: u8 = 57;
const INDIC_LETTER: u8 = 58;
const E1_LETTER: u8 = 59;
const SIGN_FIRST: u8 = 60;
const SIGN_NEXT: u8 = 61;
const HAN_FIRST: u8 = 62; // 62..=65
const HAN_AFTER_KANA: u8 = 66;
const KANA_FIRST: u8 = 67; // 67..=70
const CJK_SIGN: u8 = 71;
const HANGUL_FIRST: u8 = 72; // 72..=75
const WIDE_SIGN: u8 = 76;
const PICTURE: u8 = 77;
const QUOTE_FIRST: u8 = 78;
const GREEK_FIRST: u8 = 79;

/// The kind of a byte at a place, and the place after the byte.
#[derive(Clone, Copy, Debug)]
struct PlaceStep {
    kind: u8,
    place: u8,
}

/// A [`PlaceStep`] prepared for reading: the byte's value in millionths of a token, and the index of the next place's row in
/// [`PACKED_STEPS`]. Each lookup depends on the one before it, so the table contains both numbers ready for use.
#[derive(Clone, Copy, Debug)]
pub(super) struct PackedStep {
    pub(super) row: u32,
    pub(super) worth: u32,
}

/// The row of the place before the first byte of a text.
pub(super) const FIRST_ROW: u32 = row(START);

/// The class of each byte value.
pub(super) static CLASS: [u8; 256] = classes();
/// The step of each class at each place. Its index is the place's row plus the class.
pub(super) static PACKED_STEPS: [PackedStep; CLASSES * PLACES] = packed_steps();

const fn row(place: u8) -> u32 {
    place as u32 * ROW_CLASSES
}

#[expect(
    clippy::indexing_slicing,
    reason = "evaluated by the compiler: a wrong place does not compile"
)]
const fn classes() -> [u8; 256] {
    let mut all = [0; 256];
    let mut byte = 0_u8;
    loop {
        all[byte as usize] = class(byte);
        if byte == u8::MAX {
            return all;
        }
        byte += 1;
    }
}

const fn class(byte: u8) -> u8 {
    match byte {
        b'a'..=b'z' => LOWER,
        b'A'..=b'Z' => UPPER,
        b'0'..=b'9' => DIGIT,
        b' ' => SPACE,
        b'\t' => TAB,
        b'\n' | b'\r' => NEWLINE,
        b'_' | b'.' | b'-' | b'/' | b'\'' => JOINER,
        b'"' => QUOTE,
        0..0x20 | 0x7F | 0xC0 | 0xC1 | 0xF5..=0xFF => CONTROL,
        0x21..0x7F => PUNCTUATION,
        0x80 => WITHIN_80,
        0x81..=0xBF => WITHIN,
        0xC2 => LATIN_SIGN,
        0xC3..=0xCB => LATIN,
        0xCC..=0xCF => GREEK,
        0xD0..=0xD3 => CYRILLIC,
        0xD4..=0xDF => TWO_BYTES,
        0xE0 => INDIC,
        0xE1 => E1,
        0xE2 => SIGN,
        0xE3 => E3,
        0xE4..=0xE9 => HAN,
        0xEA..=0xED => HANGUL,
        0xEE | 0xEF => WIDE,
        0xF0..=0xF4 => FOUR_BYTES,
    }
}

#[expect(
    clippy::indexing_slicing,
    reason = "evaluated by the compiler: a wrong place does not compile"
)]
const fn packed_steps() -> [PackedStep; CLASSES * PLACES] {
    let mut all = [PackedStep {
        row: FIRST_ROW,
        worth: 0,
    }; CLASSES * PLACES];
    let mut place = 0;
    while place < PLACES {
        let mut class = 0;
        while class < CLASSES {
            #[expect(clippy::cast_possible_truncation, reason = "both are below 256")]
            let step = step(place as u8, class as u8);
            all[place * CLASSES + class] = PackedStep {
                row: row(step.place),
                worth: O200K[step.kind as usize],
            };
            class += 1;
        }
        place += 1;
    }
    all
}

const fn step(place: u8, class: u8) -> PlaceStep {
    match class {
        LOWER => lower(place),
        UPPER => upper(place),
        DIGIT => digit(place),
        SPACE | TAB => space(place, class == TAB),
        NEWLINE => newline(place),
        JOINER => mark(place, MARK_FIRST, AFTER_JOINER),
        PUNCTUATION => mark(place, MARK_FIRST, AFTER_MARK),
        QUOTE => mark(place, QUOTE_FIRST, AFTER_MARK),
        CONTROL => to(CONTROLS, IN_MARKS),
        WITHIN_80 if is_after_e3(place) => to(CJK_SIGN, IN_WIDE),
        WITHIN if is_after_e3(place) => kana(place - AFTER_E3),
        LATIN_SIGN => to(LATIN_SIGNS, AFTER_MARK),
        LATIN => {
            let kind = if in_run(place, IN_WORD, WORD_MAX) == 0 {
                LATIN_FIRST
            } else {
                LATIN_LETTER
            };
            to(kind, IN_WORD + next(in_run(place, IN_WORD, WORD_MAX), WORD_MAX) - 1)
        }
        GREEK => letters(place, GREEK_FIRST, GREEK_LETTER),
        CYRILLIC => {
            let nth = next(in_run(place, IN_LETTERS, LETTERS_MAX), LETTERS_MAX);
            to(CYRILLIC_FIRST + nth - 1, IN_LETTERS + nth - 1)
        }
        TWO_BYTES => letters(place, OTHER_LETTER, OTHER_LETTER),
        INDIC => {
            let nth = next(in_run(place, IN_INDIC, INDIC_MAX), INDIC_MAX);
            to(INDIC_LETTER, IN_INDIC + nth - 1)
        }
        E1 => to(
            E1_LETTER,
            IN_WORD + next(in_run(place, IN_WORD, WORD_MAX), WORD_MAX) - 1,
        ),
        SIGN if place == IN_MARKS => to(SIGN_NEXT, IN_MARKS),
        SIGN => to(SIGN_FIRST, IN_MARKS),
        E3 => to(NOTHING, AFTER_E3 + in_run(place, IN_KANA, KANA_MAX)),
        HAN => {
            let nth = next(in_run(place, IN_HAN, HAN_MAX), HAN_MAX);
            let after_kana = in_run(place, IN_KANA, KANA_MAX) > 0;
            to(
                if after_kana {
                    HAN_AFTER_KANA
                } else {
                    HAN_FIRST + nth - 1
                },
                IN_HAN + nth - 1,
            )
        }
        HANGUL => {
            let nth = next(in_run(place, IN_HANGUL, HANGUL_MAX), HANGUL_MAX);
            to(HANGUL_FIRST + nth - 1, IN_HANGUL + nth - 1)
        }
        WIDE => to(WIDE_SIGN, IN_WIDE),
        FOUR_BYTES => to(PICTURE, IN_MARKS),
        _ => to(NOTHING, place),
    }
}

const fn to(kind: u8, place: u8) -> PlaceStep {
    PlaceStep { kind, place }
}

/// Returns how many characters of a series have been counted at `place`. The series has `max` places, and `first` is the first of
/// them. Returns 0 if `place` is not one of them.
const fn in_run(place: u8, first: u8, max: u8) -> u8 {
    if place >= first && place < first + max {
        place - first + 1
    } else {
        0
    }
}

const fn next(nth: u8, max: u8) -> u8 {
    if nth < max { nth + 1 } else { max }
}

const fn is_after_e3(place: u8) -> bool {
    in_run(place, AFTER_E3, KANA_MAX + 1) > 0
}

const fn lower(place: u8) -> PlaceStep {
    let letters = in_run(place, IN_WORD, WORD_MAX);
    if letters > 0 {
        let nth = next(letters, WORD_MAX);
        return to(LETTER + nth - 2, IN_WORD + nth - 1);
    }
    let capitals = in_run(place, IN_CAPITALS, CAPITALS_MAX);
    match capitals {
        0 => {}
        // A capital letter begins the word.
        1 => return to(LETTER, IN_WORD + 1),
        _ => return to(WORD_AFTER_CAPITALS, IN_WORD + 1),
    }
    let kind = match place {
        START | AFTER_NEWLINE => WORD_AT_START,
        AFTER_SPACE | IN_SPACES => WORD_AFTER_SPACE,
        AFTER_JOINER => WORD_AFTER_JOINER,
        AFTER_MARK => WORD_AFTER_MARK,
        IN_MARKS => WORD_AFTER_MARKS,
        7..=9 => WORD_AFTER_DIGIT,
        _ => WORD_AFTER_OTHER,
    };
    to(kind, IN_WORD)
}

const fn upper(place: u8) -> PlaceStep {
    let capitals = in_run(place, IN_CAPITALS, CAPITALS_MAX);
    if capitals > 0 {
        let nth = next(capitals, CAPITALS_MAX);
        return to(CAPITAL + nth - 2, IN_CAPITALS + nth - 1);
    }
    let kind = if in_run(place, IN_WORD, WORD_MAX) > 0 {
        CAPITAL_IN_WORD
    } else if place == AFTER_SPACE || place == IN_SPACES {
        CAPITAL_AFTER_SPACE
    } else {
        CAPITAL_FIRST
    };
    to(kind, IN_CAPITALS)
}

const fn digit(place: u8) -> PlaceStep {
    match place {
        7 | 8 => to(DIGIT_NEXT, place + 1),
        9 => to(DIGIT_AGAIN, IN_NUMBER),
        AFTER_SPACE | IN_SPACES => to(DIGIT_AFTER_SPACE, IN_NUMBER),
        _ => to(DIGIT_FIRST, IN_NUMBER),
    }
}

const fn space(place: u8, tab: bool) -> PlaceStep {
    match place {
        AFTER_SPACE => to(SPACE_SECOND, IN_SPACES),
        IN_SPACES => to(SPACE_NEXT, IN_SPACES),
        _ if tab => to(SPACE_SECOND, IN_SPACES),
        _ => to(SPACE_FIRST, AFTER_SPACE),
    }
}

const fn newline(place: u8) -> PlaceStep {
    match place {
        AFTER_NEWLINE => to(NEWLINE_NEXT, AFTER_NEWLINE),
        AFTER_JOINER | AFTER_MARK | IN_MARKS => to(NEWLINE_AFTER_MARK, AFTER_NEWLINE),
        _ => to(NEWLINE_FIRST, AFTER_NEWLINE),
    }
}

const fn mark(place: u8, first: u8, after: u8) -> PlaceStep {
    match place {
        AFTER_JOINER | AFTER_MARK => to(MARK_SECOND, IN_MARKS),
        IN_MARKS => to(MARK_NEXT, IN_MARKS),
        AFTER_SPACE | IN_SPACES => to(MARK_AFTER_SPACE, after),
        _ => to(first, after),
    }
}

/// Returns the step of a letter. The first letter of a word has the kind `first`, and every further letter has the kind `other`.
const fn letters(place: u8, first: u8, other: u8) -> PlaceStep {
    let before = in_run(place, IN_LETTERS, LETTERS_MAX);
    to(
        if before == 0 { first } else { other },
        IN_LETTERS + next(before, LETTERS_MAX) - 1,
    )
}

const fn kana(before: u8) -> PlaceStep {
    let nth = next(before, KANA_MAX);
    to(KANA_FIRST + nth - 1, IN_KANA + nth - 1)
}
