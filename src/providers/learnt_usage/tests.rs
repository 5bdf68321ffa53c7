//! Tests of `learnt_usage`.

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

fn typical(learnt: &LearnedUsage, kind: &UsageKey<'_>) -> Option<TypicalUsage> {
    learnt.typical(&learnt.handle(kind))
}

fn learn(learnt: &LearnedUsage, kind: &UsageKey<'_>, reported: &Usage, input_scanned: u64, output_observed: u64) {
    learnt.learn(&learnt.handle(kind), reported, input_scanned, output_observed);
}

fn kind<'a>(account: &'a str, key: &'a KeyId, model: &'a str) -> UsageKey<'a> {
    UsageKey {
        account,
        key,
        model,
        turns: ConversationTurns::default(),
    }
}

#[test]
fn a_key_learns_for_itself_and_a_model_for_all() {
    let learnt = LearnedUsage::new();
    let (one, other) = (key("k1"), key("k2"));
    let mine = kind("a", &one, "m");
    assert_eq!(typical(&learnt, &mine), None);
    for _ in 0..200 {
        learn(&learnt, &mine, &reported(1_200, 300, 500), 1_000, 600);
    }
    assert!((790..=800).contains(&typical(&learnt, &mine).unwrap().output.tokens()));
    assert_eq!(typical(&learnt, &kind("b", &other, "m")), None, "of another account");
    assert_eq!(typical(&learnt, &kind("a", &one, "n")), None, "of another model");
    let factors = learnt.factors(&learnt.handle(&mine));
    assert!(factors.input.apply(1_000).abs_diff(1_200) <= 1);
    // Without the reasoning.
    assert!(factors.output.apply(1_000).abs_diff(500) <= 1);
    assert_eq!(
        learnt.factors(&learnt.handle(&kind("a", &one, "n"))).input,
        TokenFactor::ONE
    );
}

#[test]
fn a_new_key_is_like_the_others_of_its_account_until_it_has_shown_more() {
    let learnt = LearnedUsage::new();
    let (old, new) = (key("k1"), key("k2"));
    learn(&learnt, &kind("a", &old, "m"), &reported(10, 700, 0), 10, 700);
    assert_eq!(typical(&learnt, &kind("a", &new, "m")).unwrap().output.tokens(), 700);
    learn(&learnt, &kind("a", &new, "m"), &reported(10, 90, 0), 10, 90);
    assert_eq!(typical(&learnt, &kind("a", &new, "m")).unwrap().output.tokens(), 90);
}

#[test]
fn conversations_that_begin_and_those_that_go_on_are_told_apart() {
    let learnt = LearnedUsage::new();
    let one = key("k1");
    let begins = kind("a", &one, "m");
    let goes_on = UsageKey {
        turns: ConversationTurns {
            since_answer: Some(500),
            marks_cache: true,
        },
        ..begins
    };
    learn(&learnt, &begins, &reported(9_000, 40, 0), 9_000, 40);
    assert_eq!(typical(&learnt, &goes_on), None);
    let cached = Usage {
        cache_read: 8_500,
        ..reported(500, 900, 0)
    };
    learn(&learnt, &goes_on, &cached, 9_000, 900);
    let parts = |kind: &UsageKey<'_>| {
        let usual = typical(&learnt, kind).unwrap();
        usual.input.estimate(20_000, kind.turns.since_answer)
    };
    assert_eq!((parts(&goes_on).cache_read, parts(&begins).cache_read), (19_500, 0));
}

fn length<T>(table: &UsageTable<T>) -> usize {
    let shards = table.shards.iter().map(|shard| shard.lock());
    shards.map(|shard| shard.young.len() + shard.old.len()).sum()
}

#[test]
fn the_tables_are_bounded_and_what_is_used_stays() {
    let learnt = LearnedUsage::new();
    let (kept, many) = (key("kept"), key("many"));
    learn(&learnt, &kind("a", &kept, "m"), &reported(1, 70_000, 0), 1, 1);
    for number in 0..2 * KINDS_MAX {
        learn(
            &learnt,
            &kind("b", &many, &format!("m{number}")),
            &reported(1, 1, 0),
            1,
            1,
        );
        if number % 256 == 0 {
            assert!(typical(&learnt, &kind("a", &kept, "m")).is_some(), "{number}");
        }
    }
    let (kinds, models) = (length(&learnt.kinds), length(&learnt.models));
    assert!(kinds <= KINDS_MAX && kinds > KINDS_MAX / 4, "{kinds}");
    assert!(models <= MODELS_MAX, "{models}");
    assert_eq!(
        typical(&learnt, &kind("a", &kept, "m")).unwrap().output.tokens(),
        70_000
    );
}
