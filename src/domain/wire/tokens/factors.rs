//! The worth of each kind of byte.

/// The number of kinds of bytes; one of them is worth nothing.
const KINDS: usize = 80;

/// Tokens per byte of each kind, in millionths.
///
/// Fitted on o200k: least squares of the relative error, no factor below zero, over about 2,500 texts of 3 KB from
/// documentation, fiction, web pages and source code in about 30 languages. English, Chinese, Russian, code, JSON and Markdown
/// had three times the weight of the rest, Ukrainian and Arabic less. The texts of `tests/golden/tokens/` were not among them.
pub(super) const O200K: [u32; KINDS] = [
    0, 267_654, 767_685, 381_894, 683_593, 977_851, 509_102, 0, 256_857, 0, 0, 0, 0, 0, 0, 641_797, 0, 628_985,
    1_084_597, 0, 373_840, 851_929, 898_806, 485_110, 0, 0, 124_959, 3_187_927, 1_533_381, 2_103_995, 0, 1_157_149, 0,
    810_021, 0, 0, 1_308_779, 0, 1_156_845, 767_212, 0, 110_187, 0, 1_148_324, 1_416_082, 857_188, 0, 0, 430_604,
    1_380_608, 0, 0, 21_997, 338_008, 947_883, 89_655, 518_862, 447_699, 414_940, 150_000, 0, 206_060, 1_776_524, 0,
    806_297, 708_430, 1_614_998, 1_189_944, 0, 0, 631_810, 1_283_898, 0, 2_111_196, 170_479, 518_318, 1_095_742, 0,
    917_997, 51_763,
];
