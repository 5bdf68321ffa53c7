//! Tests of `secret`.

use proptest::prelude::*;
use rand::SeedableRng;
use rand::rngs::StdRng;

use super::*;

fn prefix() -> KeyPrefix {
    KeyPrefix::new("weir").unwrap()
}

fn key(seed: u64) -> ServiceKey {
    ServiceKey::generate(&prefix(), &mut StdRng::seed_from_u64(seed))
}

#[test]
fn the_format_is_pinned() {
    let body = format!("weir-{}", "0123456789".repeat(5).get(..KEY_RANDOM_CHARS).unwrap());
    assert_eq!(
        checksum_of("123456789"),
        "3jZRME",
        "CRC32's check value 0xCBF43926 in base 62"
    );
    let text = format!("{body}{}", checksum_of(&body));
    let key = ServiceKey::parse(&prefix(), &text).unwrap();
    assert_eq!(key.as_str().len(), 4 + 1 + 43 + 6);
    assert_eq!(key.hint().len(), KEY_HINT_CHARS);
    assert!(
        text.ends_with(&key.hint()),
        "users compare it with the end of their key"
    );
}

#[test]
fn the_digest_is_sha_256_of_the_whole_text() {
    let key = key(1);
    assert_eq!(key.digest().as_bytes()[..], Sha256::digest(key.as_str())[..]);
}

#[test]
fn nothing_secret_is_printed() {
    let key = key(2);
    let shown = format!("{key:?} {:?} {:?}", Secret::new("hunter2"), key.digest());
    assert!(!shown.contains("hunter2") && !shown.contains(&key.hint()) && !shown.contains(&key.digest().to_hex()));
    assert!(shown.starts_with("ServiceKey(..) Secret(..) KeyDigest("));
}

#[test]
fn prefixes_are_short_and_lower_case() {
    for bad in ["", "a-b", "Weir", "w ", "seventeen17171717", "é"] {
        assert!(KeyPrefix::new(bad).is_err(), "{bad:?}");
    }
    assert!(KeyPrefix::new("sixteencharslong").is_ok());
}

#[test]
fn each_fault_has_its_name() {
    let text = key(3).as_str().to_owned();
    let parse = |text: &str| ServiceKey::parse(&prefix(), text).map(|_| ()).unwrap_err();
    assert_eq!(parse(&text.replacen("weir", "wier", 1)), KeyFormatError::Prefix);
    assert_eq!(parse("weir"), KeyFormatError::Prefix);
    assert_eq!(parse(&format!("{text}0")), KeyFormatError::Length);
    assert_eq!(parse(text.get(..53).unwrap()), KeyFormatError::Length);
    let mut odd = text.clone();
    odd.replace_range(10..11, "_");
    assert_eq!(parse(&odd), KeyFormatError::Alphabet);
    assert_eq!(
        parse(&format!("weir-{}", "é".repeat(24) + "x")),
        KeyFormatError::Alphabet
    );
}

proptest! {
    #[test]
    fn what_was_generated_parses(seed: u64, name in "[a-z0-9]{1,16}") {
        let prefix = KeyPrefix::new(&name).unwrap();
        let key = ServiceKey::generate(&prefix, &mut StdRng::seed_from_u64(seed));
        prop_assert_eq!(ServiceKey::parse(&prefix, key.as_str()).unwrap(), key.clone());
        prop_assert!(key.as_str().ends_with(&key.hint()));
    }

    #[test]
    fn any_one_wrong_character_is_noticed(seed: u64, at in 0usize..54, with in "[0-9A-Za-z_-]") {
        let good = key(seed);
        let mut text = good.as_str().to_owned();
        text.replace_range(at..at + 1, &with);
        prop_assert_eq!(ServiceKey::parse(&prefix(), &text).is_ok(), text == good.as_str());
    }

    #[test]
    fn any_two_swapped_neighbours_are_noticed(seed: u64, at in 5usize..53) {
        let good = key(seed);
        let mut bytes = good.as_str().as_bytes().to_vec();
        bytes.swap(at, at + 1);
        let text = String::from_utf8(bytes).unwrap();
        prop_assert_eq!(ServiceKey::parse(&prefix(), &text).is_ok(), text == good.as_str());
    }

    #[test]
    fn parsing_takes_any_text(text in ".{0,80}") {
        let _ = ServiceKey::parse(&prefix(), &text);
    }

    #[test]
    fn hex_round_trips(bytes: [u8; 32]) {
        let digest = KeyDigest::from_bytes(bytes);
        prop_assert_eq!(KeyDigest::from_hex(&digest.to_hex()), Some(digest));
        prop_assert_eq!(KeyDigest::from_hex(&digest.to_hex().to_uppercase()).is_some(),
            !digest.to_hex().contains(|c: char| c.is_ascii_lowercase()));
    }

    #[test]
    fn hex_of_the_wrong_form_is_refused(text in "[0-9a-g]{0,70}") {
        let right = text.len() == 64 && !text.contains('g');
        prop_assert_eq!(KeyDigest::from_hex(&text).is_some(), right);
    }
}

#[test]
fn a_seed_makes_one_text_for_each_purpose() {
    let prefix = KeyPrefix::default();
    let key = |seed: &[u8], purpose: &str| ServiceKey::from_seed(&prefix, seed, purpose);
    let made = key(b"seed", "op_1");
    assert_eq!(
        ServiceKey::parse(&prefix, made.as_str()).as_ref(),
        Ok(&made),
        "it is a key like any other"
    );
    assert_eq!(key(b"seed", "op_1"), made);
    assert_ne!(key(b"seed", "op_2"), made);
    assert_ne!(key(b"other", "op_1"), made);
    // All digits come, as often as each other: 62,000 of them, some 1,000 of each.
    let mut counts = std::collections::BTreeMap::<char, u32>::new();
    for number in 0..1_442_u32 {
        for digit in key(b"seed", &number.to_string()).random().chars() {
            *counts.entry(digit).or_default() += 1;
        }
    }
    assert_eq!(counts.len(), 62);
    assert!(counts.values().all(|count| (800..1_200).contains(count)), "{counts:?}");
}
