//! Tests of `usual`.

use super::*;

fn key(id: &str) -> KeyId {
    KeyId::parse(&format!("key_{id:0>16}")).unwrap()
}

fn reported(input: u64, output_text: u64, output_reasoning: u64) -> Usage {
    Usage {
        input_uncached: input,
        output_text,
        output_reasoning,
        ..Usage::default()
    }
}

#[test]
fn a_key_learns_for_itself_and_a_model_for_all() {
    let learnt = Learnt::new();
    let (one, other) = (key("k1"), key("k2"));
    assert_eq!(learnt.usual(&one, "m"), None);
    for _ in 0..200 {
        learnt.learn(&one, "m", &reported(1_200, 300, 500), 1_000, 600);
    }
    assert!((800..830).contains(&learnt.usual(&one, "m").unwrap().with_headroom()));
    assert_eq!((learnt.usual(&other, "m"), learnt.usual(&one, "n")), (None, None));
    let factors = learnt.factors("m");
    assert!(factors.input.thousandths().abs_diff(1_200) <= 1);
    // Without the reasoning.
    assert!(factors.output.thousandths().abs_diff(500) <= 1);
    assert_eq!(learnt.factors("n").input, Factor::ONE);
}

#[test]
fn the_tables_are_bounded_and_what_is_used_stays() {
    let learnt = Learnt::new();
    let kept = key("kept");
    learnt.learn(&kept, "m", &reported(1, 70_000, 0), 1, 1);
    for number in 0..2 * PAIRS_MAX {
        learnt.learn(&key("many"), &format!("m{number}"), &reported(1, 1, 0), 1, 1);
        if number % 512 == 0 {
            assert!(learnt.usual(&kept, "m").is_some(), "{number}");
        }
    }
    let (pairs, models) = learnt.sizes();
    assert!(pairs <= PAIRS_MAX && pairs > PAIRS_MAX / 4, "{pairs}");
    assert!(models <= MODELS_MAX, "{models}");
    assert!(learnt.usual(&kept, "m").unwrap().with_headroom() > 60_000);
}
