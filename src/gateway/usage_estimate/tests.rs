//! Tests of `estimate`: what is held, beside what it costs, on a replay of mixed traffic of agents and others.

use rand::{RngExt, SeedableRng, rngs::StdRng};

use super::*;
use crate::domain::{
    catalogue::CatalogueSettings,
    keys::{KeyId, KeyState},
    ledger::{KeyTerms, calibration::InputEstimate, consumption::PriceModifiers},
    money::{
        NanoUsd,
        price::{Price, PriceList, SHIPPED_FILE},
    },
    wire::{json_scan::ConversationTurns, usage::Usage},
};

/// The shipped price of a model at a provider.
fn price(model: &str, provider: &str) -> Arc<Price> {
    let list = PriceList::read(SHIPPED_FILE, include_str!("../../../conf/prices.toml")).unwrap();
    Arc::clone(list.find(model, provider).unwrap())
}

fn model(name: &str) -> Arc<Model> {
    Arc::new(Model {
        name: name.to_owned(),
        display_name: name.to_owned(),
        aliases: Vec::new(),
        upstream_name: name.to_owned(),
        upstream_names: Default::default(),
        providers: Vec::new(),
        protocols: Vec::new(),
        translate: None,
        context_tokens: None,
        output_tokens: None,
        price: name.to_owned(),
        free: false,
        hidden_reasoning: false,
        prices: Default::default(),
        created_unix: 0,
    })
}

/// About so many tokens, rarely several times as many: as answers and the outputs of tools are.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "some thousands of tokens"
)]
fn about(rng: &mut StdRng, usual: f64, spread: f64) -> u64 {
    // The sum of twelve is nearly normal.
    let normal: f64 = (0..12).map(|_| rng.random::<f64>()).sum::<f64>() - 6.0;
    ((usual * (spread * normal).exp()) as u64).max(1)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    /// Marks its prompt for the cache, each turn what is new of it.
    MarkingAgent,
    /// Its provider caches by itself, in blocks.
    PlainAgent,
    /// One short question of an agent's own, uncached.
    Title,
    /// Documents behind the same instructions.
    Reader,
    /// A short conversation without a cache.
    Chat,
}

/// One conversation.
struct Talk {
    who: Who,
    key: KeyRecord,
    model: Arc<Model>,
    price: Arc<Price>,
    /// The instructions and tools that all conversations of the agent begin with.
    base: u64,
    turns_left: u32,
    /// The input of the turn before, and its output.
    before: Option<(u64, u64)>,
}

/// One request: what weir sees of it, and what its provider reports.
struct Turn {
    scan: Scan,
    reported: Usage,
}

impl Talk {
    fn new(rng: &mut StdRng) -> Self {
        let who = match rng.random_range(0..17) {
            0..6 => Who::MarkingAgent,
            6..10 => Who::PlainAgent,
            10..13 => Who::Title,
            13..15 => Who::Reader,
            _ => Who::Chat,
        };
        let (model, provider) = match who {
            Who::MarkingAgent => (
                ["claude-opus-5-5", "claude-sonnet-5-5"][rng.random_range(0..2)],
                "anthropic",
            ),
            Who::PlainAgent | Who::Reader => ("gpt-5.6-sol", "openai"),
            Who::Title => ("claude-haiku-4-5", "anthropic"),
            Who::Chat => ("claude-sonnet-5-5", "anthropic"),
        };
        Self {
            who,
            key: key(rng.random_range(0..4)),
            model: self::model(model),
            price: price(model, provider),
            base: rng.random_range(12_000..25_000),
            turns_left: match who {
                Who::MarkingAgent | Who::PlainAgent => rng.random_range(8..60),
                Who::Title | Who::Reader => 1,
                Who::Chat => rng.random_range(1..8),
            },
            before: None,
        }
    }

    fn turn(&mut self, rng: &mut StdRng) -> Turn {
        self.turns_left = self.turns_left.saturating_sub(1);
        let is_agent = matches!(self.who, Who::MarkingAgent | Who::PlainAgent);
        let told = match self.who {
            // Outputs of tools: usually a file, rarely a long log.
            Who::MarkingAgent | Who::PlainAgent => about(rng, 900.0, 1.2).min(20_000),
            Who::Title => rng.random_range(200..1_200),
            Who::Reader => about(rng, 8_000.0, 0.7),
            Who::Chat => rng.random_range(50..400),
        };
        let new = told + self.before.map_or(0, |(_, output)| output);
        let input = match (self.before, self.who) {
            (Some((input, _)), _) => input + new,
            (None, Who::Reader) => 2_000 + new,
            (None, _) if is_agent => self.base + new,
            (None, _) => new,
        };
        // A cache is gone when an agent's user comes back late.
        let is_warm = rng.random_range(0..100) >= 4;
        let read = match (self.before, self.who) {
            (Some((input, _)), _) if is_agent && is_warm => input,
            (None, _) if is_agent && is_warm => self.base,
            (None, Who::Reader) => 1_920,
            _ => 0,
        };
        let read = if self.who == Who::MarkingAgent {
            read
        } else {
            read / 128 * 128
        };
        let output = match self.who {
            Who::Title => rng.random_range(5..30),
            Who::MarkingAgent | Who::PlainAgent | Who::Reader | Who::Chat => about(rng, 250.0, 0.9),
        };
        let fresh = input - read;
        let written = if self.who == Who::MarkingAgent { fresh } else { 0 };
        // Estimates from bytes are off by some percent, those of a few messages by more.
        let mut off = |tokens: u64, percent: u64| tokens * rng.random_range(100 - percent..=100 + percent) / 100;
        let scan = Scan {
            input_tokens: off(input, 7),
            output_max: Some(32_000),
            turns: ConversationTurns {
                since_answer: self.before.map(|_| off(new, 20)),
                marks_cache: self.who == Who::MarkingAgent,
            },
            ..Scan::default()
        };
        self.before = Some((input, output));
        Turn {
            scan,
            reported: Usage {
                input_uncached: fresh - written,
                cache_read: read,
                cache_write_short: written,
                output_text: output,
                ..Usage::default()
            },
        }
    }

    fn is_over(&self) -> bool {
        self.turns_left == 0 || self.before.is_some_and(|(input, _)| input > 190_000)
    }
}

fn key(number: u64) -> KeyRecord {
    KeyRecord {
        id: KeyId::parse(&format!("key_{number:016}")).unwrap(),
        name: "desk".to_owned(),
        account: if number.is_multiple_of(2) { "other" } else { "acme" }.into(),
        created_at: 1,
        expires_at: None,
        models: None,
        state: KeyState::Active,
        hint: "wxyz".to_owned(),
        revision: 1,
        terms: KeyTerms::default(),
        former: None,
        text_since: None,
    }
}

/// For a Messages request, with a catalogue that has nothing: no answer here is of several models.
fn basis(learnt: &Arc<LearnedUsage>, key: &KeyRecord, model: &Arc<Model>, scan: &Scan) -> UsageEstimator {
    let none = CatalogueSettings::default();
    let (catalogue, _) = Catalogue::build(&[], &none, &PriceList::default(), &|_| Ok(None)).unwrap();
    let route = Arc::new(PricedRoute {
        model: model.name.clone().into(),
        first: PricedEndpoint {
            provider: "p".into(),
            price: Arc::new(Price::free()),
        },
        others: Vec::new(),
    });
    UsageEstimator::new(
        learnt,
        &Arc::new(catalogue),
        key,
        model,
        route,
        Operation::Messages,
        scan,
    )
}

fn cost(price: &Price, usage: &Usage) -> NanoUsd {
    price.cost(usage, &PriceModifiers::default())
}

/// What is held for each request beside its cost, as a part of that: above zero where too much is held. Ten conversations run
/// at any time, over four keys of two accounts, each turn after some other's.
fn replay(seed: u64, turns: usize) -> Vec<(Who, f64)> {
    let rng = &mut StdRng::seed_from_u64(seed);
    let learnt = Arc::new(LearnedUsage::new());
    let mut talks: Vec<Talk> = (0..10).map(|_| Talk::new(rng)).collect();
    let mut errors = Vec::new();
    for _ in 0..turns {
        let place = rng.random_range(0..talks.len());
        let talk = &mut talks[place];
        let Turn { scan, reported } = talk.turn(rng);
        let basis = basis(&learnt, &talk.key, &talk.model, &scan);
        let held = basis.estimate(&scan).cost(&talk.price).nanos() as f64;
        let costs = cost(&talk.price, &reported).nanos() as f64;
        errors.push((talk.who, (held - costs) / costs));
        learnt.learn(&basis.handle, &reported, scan.input_tokens, reported.output_text);
        if talk.is_over() {
            talks[place] = Talk::new(rng);
        }
    }
    errors
}

fn median(errors: impl Iterator<Item = f64>) -> f64 {
    let mut sizes: Vec<f64> = errors.map(f64::abs).collect();
    sizes.sort_by(f64::total_cmp);
    sizes[sizes.len() / 2]
}

#[test]
fn what_is_held_is_near_what_it_costs_on_mixed_traffic_of_agents() {
    for seed in 1..=5 {
        let errors = replay(seed, 3_000);
        let all = median(errors.iter().map(|(_, error)| *error));
        let agents = median(
            errors
                .iter()
                .filter(|(who, _)| matches!(who, Who::MarkingAgent | Who::PlainAgent))
                .map(|(_, error)| *error),
        );
        assert!(all <= 0.25 && agents <= 0.25, "seed {seed}: {all}, agents {agents}");
    }
}

#[test]
fn a_request_of_which_nothing_is_learnt_is_held_for_as_if_nothing_was_cached() {
    let learnt = Arc::new(LearnedUsage::new());
    let scan = Scan {
        input_tokens: 150_000,
        turns: ConversationTurns {
            since_answer: Some(900),
            marks_cache: true,
        },
        ..Scan::default()
    };
    let expected = |number| basis(&learnt, &key(number), &model("claude-opus-5-5"), &scan).estimate(&scan);
    assert_eq!(expected(1).input.uncached, 150_000);
    let basis = basis(&learnt, &key(1), &model("claude-opus-5-5"), &scan);
    let hit = Usage {
        cache_read: 149_100,
        cache_write_short: 900,
        output_text: 400,
        ..Usage::default()
    };
    learnt.learn(&basis.handle, &hit, 150_000, 400);
    let as_hit = Estimate {
        input: InputEstimate {
            cache_read: 149_100,
            cache_write_short: 900,
            ..InputEstimate::default()
        },
        output: 400,
    };
    assert_eq!(
        (expected(1), expected(3)),
        (as_hit, as_hit),
        "the account's other keys are alike"
    );
    assert_eq!(expected(2).input.uncached, 150_000, "another account's are not");
}
