//! Tests of `tokens`.

use proptest::prelude::*;

use super::*;

fn classes(text: &[u8]) -> CharClasses {
    let mut classes = CharClasses::default();
    classes.push(text);
    classes
}

/// The estimate's relative error against o200k.
#[expect(clippy::cast_precision_loss, reason = "counts of small texts")]
fn error(text: &str) -> f64 {
    let exact = bpe_openai::o200k_base().count(text) as f64;
    classes(text.as_bytes()).tokens() as f64 / exact - 1.0
}

/// None of these was fitted on.
const SAMPLES: [(&str, &str); 17] = [
    ("english", include_str!("../../../../tests/golden/tokens/english.txt")),
    ("chinese", include_str!("../../../../tests/golden/tokens/chinese.txt")),
    ("japanese", include_str!("../../../../tests/golden/tokens/japanese.txt")),
    ("korean", include_str!("../../../../tests/golden/tokens/korean.txt")),
    ("russian", include_str!("../../../../tests/golden/tokens/russian.txt")),
    ("german", include_str!("../../../../tests/golden/tokens/german.txt")),
    ("markdown", include_str!("../../../../README.md")),
    ("documentation", include_str!("../../../../ARCHITECTURE.md")),
    ("rust, cache", include_str!("../../../store/key_cache.rs")),
    ("rust, stream", include_str!("../sse.rs")),
    ("rust, gateway", include_str!("../../../gateway.rs")),
    ("python", include_str!("../../../../tests/sdk/test_anthropic.py")),
    ("javascript", include_str!("../../../../tests/sdk/node/openai.test.js")),
    ("json", include_str!("../../../../tests/golden/tokens/orders.json")),
    (
        "json, compact",
        include_str!("../../../../tests/golden/tokens/orders-compact.json"),
    ),
    (
        "json, lock file",
        include_str!("../../../../tests/agents/package-lock.json"),
    ),
    ("toml", include_str!("../../../../Cargo.toml")),
];

#[test]
fn the_estimate_is_within_a_tenth_of_o200k_on_texts_it_was_not_fitted_on() {
    let errors: Vec<(&str, f64)> = SAMPLES.map(|(name, text)| (name, error(text))).to_vec();
    for (name, error) in &errors {
        println!("{name:16} {:+.1} %", error * 100.0);
    }
    let far: Vec<_> = errors.iter().filter(|(_, error)| error.abs() > 0.1).collect();
    assert!(far.is_empty(), "{far:?}");
}

#[test]
fn every_byte_moves_the_machine_within_its_tables() {
    let classes = usize::from(*CLASS.iter().max().unwrap());
    for turn in &PACKED_STEPS {
        assert!(usize::try_from(turn.row).unwrap() + classes < PACKED_STEPS.len());
    }
}

#[test]
fn nothing_has_no_tokens_and_a_letter_has_one() {
    assert_eq!(CharClasses::default().tokens(), 0);
    assert!(CharClasses::default().is_empty());
    assert_eq!(classes(b"a").tokens(), 1);
    assert!(!classes(b"a").is_empty());
    assert_eq!((unreadable_tokens(0), unreadable_tokens(9)), (0, 3));
}

/// Words, numbers, signs and scripts in any order, and bytes that are no text.
fn text() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        "[ -~äß中文かなカナ한국кто\u{1F600}\n\t]{0,80}".prop_map(String::into_bytes),
        prop::collection::vec(any::<u8>(), 0..80),
    ]
}

proptest! {
    #[test]
    fn any_split_gives_the_same_counts(text in text(), cuts in prop::collection::vec(0_usize..80, 0..8)) {
        let mut split = CharClasses::default();
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
        cuts.sort_unstable();
        let mut from = 0;
        for cut in cuts {
            split.push(&text[from..cut]);
            from = cut;
        }
        split.push(&text[from..]);
        prop_assert_eq!(split, classes(&text));
    }

    #[test]
    fn an_estimate_never_shrinks_while_a_text_grows(text in text()) {
        let mut growing = CharClasses::default();
        let mut before = 0;
        for byte in &text {
            growing.push(std::slice::from_ref(byte));
            let now = growing.tokens();
            prop_assert!(now >= before);
            before = now;
        }
    }
}
