//! Answers of several models, from the running request to its settlement.

use super::*;
use crate::domain::{
    ledger::settlement_after_crash,
    money::price::{OtherModel, PricedRun},
    wire::usage::{Run, RunKind},
};

/// 10 tokens of the model asked for, and 4 of an advisor that costs ten times as much.
fn advised() -> Consumption {
    let text = "version = \"v1\"\n[[price]]\nname = \"wise\"\ntiers = [{ input = \"0.01\", output = \"0.01\" }]";
    let list = PriceList::read("p.toml", text).unwrap();
    let run = |kind, usage, other| PricedRun {
        run: Run {
            kind,
            model: None,
            usage,
        },
        other,
    };
    let wise = OtherModel {
        name: "wise".to_owned(),
        priced_as: None,
        price: Arc::clone(list.find("wise", "p").unwrap()),
    };
    Consumption {
        runs: vec![
            run(RunKind::Answer, tokens(7, 3), None),
            run(RunKind::Advisor, tokens(3, 1), Some(wise)),
        ],
        ..consumed(tokens(10, 4))
    }
}

#[tokio::test]
async fn each_models_part_is_in_the_checkpoint_and_in_the_settlement() {
    let fixture = fixture(10_000).await;
    let key = record(1);
    let bill = fixture.admit(&key, "r1").await.unwrap();
    bill.sample(clock::instant(), SERVED, advised(), (0, 0));
    fixture.billing.engine.checkpoint();
    bill.close(&End::Complete, SERVED, advised(), clock::instant());
    let records = fixture.records();
    let [
        Record::Admit(admitted),
        Record::Checkpoints(checkpoints),
        Record::Step { .. },
    ] = &records[..]
    else {
        panic!("{records:?}")
    };
    let [settled] = &fixture.settlements()[..] else {
        panic!("one")
    };
    let crashed = settlement_after_crash(*admitted.clone(), checkpoints.first().cloned());
    for settlement in [settled, &crashed] {
        let row = settlement.row.as_ref().unwrap();
        let parts: Vec<_> = row
            .parts
            .iter()
            .map(|part| (part.run, part.model.as_str(), part.cost_nano_usd))
            .collect();
        let wanted = [
            (RunKind::Answer, row.model.as_str(), nanos(10)),
            (RunKind::Advisor, "wise", nanos(40)),
        ];
        assert_eq!(parts, wanted);
        assert_eq!((settlement.cost, row.cost_nano_usd), (nanos(50), nanos(50)));
        assert_eq!((row.usage, settlement.tokens_used), (tokens(10, 4), 14));
    }
}

#[tokio::test]
async fn the_price_is_that_of_the_endpoint_that_served() {
    let fixture = fixture(100_000).await;
    let key = Arc::new(record(1));
    let text = "version = \"v2\"\n[[price]]\nname = \"m\"\ntiers = [{ input = \"0.002\", output = \"0.002\" }]";
    let list = PriceList::read("p.toml", text).unwrap();
    let mut route = PricedRoute::clone(&ROUTE);
    // The name does not tell the endpoints apart.
    route.others.push(PricedEndpoint {
        provider: route.first.provider.clone(),
        price: Arc::clone(list.find("m", "p").unwrap()),
    });
    let route = Arc::new(route);
    for (endpoint, version, cost) in [(0, "v1", 800), (1, "v2", 1_600)] {
        let request_id = SmolStr::from(format!("r{endpoint}"));
        let found = FoundKey {
            digest: &digest(1),
            record: &key,
        };
        let request = AdmissionRequest {
            route: &route,
            ..request(found, &request_id)
        };
        let bill = fixture.billing.try_admit(&key, &request).await.unwrap();
        assert_eq!(bill.running.hold(), nanos(2_000), "the dearest's");
        let progress = RequestProgress { endpoint, ..SERVED };
        bill.sample(clock::instant(), progress, consumed(tokens(300, 500)), (0, 0));
        fixture.billing.engine.checkpoint();
        bill.close(&End::Complete, progress, consumed(tokens(300, 500)), clock::instant());
        let row = fixture.settlements().pop().unwrap().row.unwrap();
        assert_eq!((row.price_version.as_str(), row.cost_nano_usd), (version, nanos(cost)));
        let checkpoint = fixture.records().into_iter().rev().find_map(|record| match record {
            Record::Checkpoints(checkpoints) => checkpoints.into_iter().next(),
            _ => None,
        });
        assert_eq!(checkpoint.unwrap().cost, nanos(cost));
    }
}
