//! A mixture of what clients ask, at a rate far below what a proxy can bear.

use std::time::Duration;

use crate::{
    billed::Billed,
    delays::{add, rows},
    due::{Address, Asked},
    load::SETTLE,
    options::{Mixture, Scale},
    phases::{Report, order},
    request::Form,
    row::{Compared, Row},
};

/// Of each twenty requests, in an order that spreads them: which [`KINDS`] each is.
const PATTERN: [usize; 20] = [0, 0, 1, 0, 0, 2, 0, 1, 0, 0, 0, 1, 0, 0, 3, 0, 0, 1, 0, 0];

/// What is asked.
const KINDS: [&str; 4] = ["small requests", "short streams", "paced streams", "larger bodies"];

/// Requests before those that are measured.
const WARM: usize = PATTERN.len();

pub(crate) async fn measure(billed: &Billed, scale: &Scale, report: &mut Report) -> Result<(), String> {
    let mixture = scale.mixture;
    let forms = [
        Form::Unary,
        Form::Stream,
        Form::Paced {
            deltas: mixture.paced.deltas,
            gap_ms: mixture.paced.gap_ms,
        },
        Form::Long(mixture.body_bytes),
    ];
    let every = Duration::from_secs(1) / mixture.rate;
    let mut references = Vec::new();
    for form in forms {
        references.push((form, billed.references(form).await?));
    }
    let subjects = billed.fleet.proxies.iter().map(|proxy| {
        let asked = references.iter().map(|(form, references)| Asked {
            request: proxy.request(*form).into(),
            reference: references.of(proxy.subject),
        });
        (proxy, Address::new(proxy.address), asked.collect::<Vec<_>>())
    });
    let subjects: Vec<_> = subjects.collect();
    let mut cpu = Row::new("mixture: CPU per request (us)", Compared::AsRatio);
    let mut kernel = Row::new("mixture: of it in the kernel (us)", Compared::AsRatio);
    let mut delays: Vec<Vec<Row>> = KINDS
        .iter()
        .map(|kind| rows(&format!("mixture: first byte of {kind}"), "us"))
        .collect();
    let which = |number: usize| PATTERN[number % PATTERN.len()];
    for round in 0..scale.rounds {
        for place in order(subjects.len(), round) {
            let (proxy, address, asked) = &subjects[place];
            let failed = |bad: String| format!("mixture, {}: {bad}", proxy.subject.name());
            address.ask(asked, which, every, WARM).await.map_err(failed)?;
            let before = proxy.process.cpu();
            let came = address
                .ask(asked, which, every, mixture.requests)
                .await
                .map_err(failed)?;
            tokio::time::sleep(SETTLE).await;
            let spent = proxy.process.cpu().since(&before);
            cpu.add(proxy.subject, spent.total / mixture.requests as f64);
            kernel.add(proxy.subject, spent.system / mixture.requests as f64);
            for (kind, delays) in delays.iter_mut().enumerate() {
                let of_kind = came.iter().filter(|came| came.which == kind);
                let first_bytes: Vec<f64> = of_kind.map(|came| came.first_byte * 1e3).collect();
                add(delays, proxy.subject, &first_bytes);
            }
        }
    }
    report.rows.extend([cpu, kernel]);
    report.rows.extend(delays.into_iter().flatten());
    report.notes.push(described(mixture));
    Ok(())
}

fn described(mixture: Mixture) -> String {
    let share = |kind: usize| {
        let of_kind = PATTERN.iter().filter(|which| **which == kind).count();
        of_kind * 100 / PATTERN.len()
    };
    let Mixture {
        rate,
        requests,
        short,
        paced,
        body_bytes,
    } = mixture;
    format!(
        "Mixture: {rate} requests a second at even times, {requests} in each round: {} % small requests, {} % streams of {} deltas \
         {} ms apart, {} % streams of {} deltas {} ms apart, {} % bodies of {} KB with small answers.",
        share(0),
        share(1),
        short.deltas,
        short.gap_ms,
        share(2),
        paced.deltas,
        paced.gap_ms,
        share(3),
        body_bytes / 1000
    )
}
