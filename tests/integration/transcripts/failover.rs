//! Requests that a second provider serves, or none.

use super::answers::{answer_well, word};
use super::play;
use super::stage::{Case, Stage};
use crate::harness::WeirBuilder;
use crate::harness::answer::Answer;
use crate::harness::provider::Recorded;
use crate::harness::request::{ALL_WIRES, Wire};
use crate::harness::rules::{RuleFolder, provider_file};

type Fail = fn(&mut Answer<'_>);

const FAILURES: [(&str, Fail); 4] = [
    ("500", |answer| {
        answer.full(
            500,
            &[("content-type", "application/json")],
            b"{\"error\":{\"message\":\"broken\"}}",
        );
    }),
    ("429", |answer| {
        answer.full(429, &[("retry-after", "1")], b"{\"error\":{\"message\":\"later\"}}")
    }),
    ("cut", |answer| answer.cut()),
    ("401", |answer| {
        answer.full(401, &[], b"{\"error\":{\"message\":\"no\"}}")
    }),
];

pub(super) fn groups() -> Vec<(&'static str, Vec<Case>)> {
    FAILURES.map(|(name, fail)| ("failover", cases(name, fail))).into()
}

/// A gateway with a model that two providers serve, both at one address.
fn build(base_url: &str) -> (Option<RuleFolder>, WeirBuilder) {
    let files = ["first", "second"].map(|name| provider_file(name, &format!("{base_url}/{name}")));
    let rules = RuleFolder::new(&[("first", &files[0]), ("second", &files[1])]);
    let mut model = toml::Table::new();
    model.insert("name".to_owned(), "two".into());
    model.insert("providers".to_owned(), vec!["first", "second"].into());
    let price = |provider: &str| {
        format!("[[price]]\nname = \"two\"\nprovider = \"{provider}\"\ntiers = [{{ input = \"1\", output = \"2\" }}]\n")
    };
    let prices = rules.path().join("prices.list");
    let list = format!("version = \"tests\"\n{}{}", price("first"), price("second"));
    std::fs::write(&prices, list).unwrap();
    let builder = rules
        .weir()
        .set("prices.file", prices.to_str().unwrap())
        .set("prices.shipped", false)
        .variable("SECRET", "a-secret-of-the-tests")
        .set_top("model", vec![toml::Value::from(model)]);
    (Some(rules), builder)
}

/// A provider whose address tells which of the two is asked.
fn cases(name: &'static str, fail: Fail) -> Vec<Case> {
    let first_fails = move |_: usize, request: &Recorded, answer: &mut Answer<'_>| {
        if request.target.starts_with("/first/") {
            return fail(answer);
        }
        let mut request = request.clone();
        request.target = request.target.replace("/second", "");
        answer_well(&request, answer);
    };
    let both_fail = move |_: usize, _: &Recorded, answer: &mut Answer<'_>| fail(answer);
    let mut cases = Vec::new();
    for wire in ALL_WIRES {
        cases.push(Case::new(format!("{}-{name}", word(wire)), first_fails, move |stage| {
            stage.ask(&wire.streaming_for("two", &stage.key, "hi"))
        }));
    }
    cases.push(Case::new(format!("messages-{name}-twice"), both_fail, move |stage| {
        stage.ask(&Wire::Messages.streaming_for("two", &stage.key, "hi"))
    }));
    cases
}

/// Each case has a gateway of its own: what one provider has done decides who is asked next.
#[test]
fn is_as_its_transcripts() {
    for (name, fail) in FAILURES {
        for case in cases(name, fail) {
            play("failover", &mut Stage::start(build), &[case]);
        }
    }
}
