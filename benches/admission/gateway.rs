//! Small requests through the whole gateway: billed ones, and counts of tokens, which are not.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::{
    AT_ONCE, Scale, cells,
    driver::{Connection, Expect},
    fleet::{Fleet, Proxy, RedisRow, Script},
    reference::Reference,
    request::Form,
    row::quantile,
};

const FORMS: [(Form, &str); 2] = [(Form::Unary, "a small answer"), (Form::Count, "a count of tokens")];

/// What one proxy took for one kind of request.
#[derive(Default)]
struct Taken {
    single: Vec<f64>,
    many: Vec<f64>,
    rates: Vec<f64>,
}

/// Prints a table.
pub(crate) async fn measure(scale: Scale) -> Result<(), String> {
    let fleet = Fleet::start(
        Script {
            deltas: 8,
            delta_bytes: 12,
            gap: Duration::ZERO,
        },
        RedisRow::In,
    );
    println!(
        "| through the gateway | p50 (us) | p99 (us) | {AT_ONCE} at a time: p50 (us) | p99 (us) | requests per second |\n\
         |---|---:|---:|---:|---:|---:|"
    );
    for (form, name) in FORMS {
        let reference = Reference::read(&fleet, form).await?;
        let mut taken: Vec<Taken> = fleet.proxies.iter().map(|_| Taken::default()).collect();
        // The first round warms everything up.
        for round in 0..=scale.rounds {
            for (proxy, taken) in fleet.proxies.iter().zip(&mut taken) {
                let single = ask(proxy, form, &reference, 1, scale.single).await?;
                let many = ask(proxy, form, &reference, AT_ONCE, scale.many).await?;
                if round > 0 {
                    taken.rates.push(many.len() as f64 / many.elapsed.as_secs_f64());
                    taken.single.extend(single.micros);
                    taken.many.extend(many.micros);
                }
            }
        }
        for (proxy, taken) in fleet.proxies.iter().zip(&taken) {
            println!(
                "| {name}: {} | {} | {} | {:.0} |",
                proxy.subject.title(),
                cells(&taken.single),
                cells(&taken.many),
                quantile(&taken.rates, 0.5).expect("rounds"),
            );
        }
    }
    Ok(())
}

struct Asked {
    micros: Vec<f64>,
    elapsed: Duration,
}

impl Asked {
    fn len(&self) -> usize {
        self.micros.len()
    }
}

/// Asks `repeats` times on each of `at_once` new connections; the first request of each is not counted.
async fn ask(
    proxy: &Proxy,
    form: Form,
    reference: &Reference,
    at_once: usize,
    repeats: usize,
) -> Result<Asked, String> {
    let mut tasks = JoinSet::new();
    for _ in 0..at_once {
        let (mut connection, request) = (Connection::new(proxy.address), proxy.request(form));
        let (body, name) = (reference.body.clone(), proxy.subject.name());
        tasks.spawn(async move {
            let mut micros = Vec::with_capacity(repeats);
            for turn in 0..=repeats {
                let started = Instant::now();
                let answer = connection.ask(&request, Expect::Whole(&body)).await;
                answer.map_err(|bad| format!("{name}: {bad}"))?;
                if turn > 0 {
                    micros.push(started.elapsed().as_secs_f64() * 1e6);
                }
            }
            Ok::<_, String>(micros)
        });
    }
    let started = Instant::now();
    let mut micros = Vec::new();
    for one in tasks.join_all().await {
        micros.extend(one?);
    }
    Ok(Asked {
        micros,
        elapsed: started.elapsed(),
    })
}
