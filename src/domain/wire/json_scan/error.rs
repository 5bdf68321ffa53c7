//! Why a body is refused: the fault and its offset, without a quote of the body.

/// Why a request body cannot be routed. Offsets (`at`) are bytes from the start of the body, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ScanError {
    /// The body has nothing but white space.
    #[error("the body is empty")]
    Empty,
    /// A sender must not add one (RFC 8259 section 8.1), and not all parsers skip it.
    #[error("the body starts with a byte order mark, which JSON does not allow")]
    ByteOrderMark,
    /// The body is not UTF-8.
    #[error("the body is not valid UTF-8 at byte {at}")]
    NotUtf8 {
        /// The first byte that is not part of a valid sequence.
        at: usize,
    },
    /// The grammar of RFC 8259 is broken.
    #[error("the body is not valid JSON at byte {at}: {fault}")]
    Malformed {
        /// The offset of the fault; the body's length if it ends too early.
        at: usize,
        /// The fault.
        fault: JsonFault,
    },
    /// The top-level value is not an object.
    #[error("the body must be a JSON object")]
    NotObject,
    /// The body nests deeper than [`super::ScanLimits::depth_max`].
    #[error("the body nests deeper than {depth_max} levels")]
    TooDeep {
        /// The byte that opens the first level beyond the limit.
        at: usize,
        /// The limit, in levels.
        depth_max: usize,
    },
    /// A second value, or anything else, after the object.
    #[error("data follows the JSON value at byte {at}")]
    TrailingData {
        /// The first byte after the object that is not white space.
        at: usize,
    },
    /// Two keys that are `model` once unescaped: parsers differ in which one counts.
    #[error("`model` occurs twice (byte {at})")]
    ModelTwice {
        /// The opening quote of the second key.
        at: usize,
    },
    /// `model` is a number, boolean, null, array or object.
    #[error("`model` must be a string")]
    ModelNotString {
        /// The first byte of the value.
        at: usize,
    },
    /// The body has more references to state at a provider than [`super::ScanLimits::references_max`].
    #[error("the body names more than {references_max} files, items and other things at the provider (byte {at})")]
    TooManyReferences {
        /// The first byte of the first identifier beyond the limit.
        at: usize,
        /// The limit.
        references_max: usize,
    },
    /// Two keys that are `stream` once unescaped: parsers differ in which one counts.
    #[error("`stream` occurs twice (byte {at})")]
    StreamTwice {
        /// The opening quote of the second key.
        at: usize,
    },
}

/// A violation of the JSON grammar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum JsonFault {
    /// The body stops inside a value.
    #[error("the body ends too early")]
    EndsEarly,
    /// No value can start here.
    #[error("a value was expected")]
    ValueExpected,
    /// An object needs a key here.
    #[error("a key in double quotes was expected")]
    KeyExpected,
    /// A key without its colon.
    #[error("a colon was expected")]
    ColonExpected,
    /// Neither a further member nor the end of the object.
    #[error("a comma or a closing brace was expected")]
    CommaOrBraceExpected,
    /// Neither a further element nor the end of the array.
    #[error("a comma or a closing bracket was expected")]
    CommaOrBracketExpected,
    /// A misspelt `true`, `false` or `null`.
    #[error("an unknown literal")]
    Literal,
    /// A number outside the grammar.
    #[error("a digit was expected")]
    DigitExpected,
    /// A raw byte below 0x20 in a string.
    #[error("a control character in a string must be escaped")]
    ControlCharacter,
    /// A backslash before anything but `"\/bfnrtu`.
    #[error("an unknown escape")]
    Escape,
    /// `\u` without four hexadecimal digits.
    #[error("an escape without four hexadecimal digits")]
    HexDigits,
    /// Half of a surrogate pair, which is not valid text, in a member's name or in a value that weir reads.
    #[error("an escaped surrogate without its other half, in a name or an identifier")]
    LoneSurrogate,
}
