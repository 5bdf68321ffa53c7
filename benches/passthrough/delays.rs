//! Delays at rates far below what a proxy can bear: of the first byte, and of each chunk of a paced stream.

use std::time::Duration;

use crate::{
    billed::Billed,
    due::{Address, Asked, Came},
    options::Scale,
    phases::{DELTA_BYTES, Report, order},
    request::{Form, direct_request},
    row::{Compared, Row, Subject, quantile},
};

/// What is told of many delays.
pub(crate) const SHARES: [(&str, f64); 3] = [("p50", 0.5), ("p99", 0.99), ("p999", 0.999)];

/// Requests that open connections, before those that are measured.
const WARM: usize = 4;

pub(crate) async fn measure(billed: &Billed, scale: &Scale, report: &mut Report) -> Result<(), String> {
    let (fleet, load) = (&billed.fleet, scale.delayed);
    let direct = (Subject::Direct, fleet.provider, direct_request(Form::Stream));
    let proxies = fleet.proxies.iter();
    let proxies = proxies.map(|proxy| (proxy.subject, proxy.address, proxy.request(Form::Stream)));
    let references = billed.references(Form::Stream).await?;
    let mut subjects = Vec::new();
    for (subject, address, request) in std::iter::once(direct).chain(proxies) {
        let asked = Asked {
            request: request.into(),
            reference: references.of(subject),
        };
        subjects.push((subject, Address::new(address), [asked]));
    }
    for rate in &scale.delayed_rates {
        let every = Duration::from_secs(1) / *rate;
        let name = format!("{rate} streams a second");
        let mut first = rows(&format!("{name}: first byte"), "us");
        let mut chunks = rows(&format!("{name}: each chunk"), "ms");
        for round in 0..scale.rounds {
            for place in order(subjects.len(), round) {
                let (subject, address, asked) = &subjects[place];
                let failed = |bad: String| format!("{name}, {}: {bad}", subject.name());
                address.ask(asked, |_| 0, every, WARM).await.map_err(failed)?;
                let came = address.ask(asked, |_| 0, every, load.requests).await.map_err(failed)?;
                let first_bytes: Vec<f64> = came.iter().map(|came| came.first_byte * 1e3).collect();
                add(&mut first, *subject, &first_bytes);
                add(&mut chunks, *subject, &late(&came, load.gap_ms));
            }
        }
        report.rows.extend(first.into_iter().chain(chunks));
    }
    report.notes.push(format!(
        "Streams a second: {} requests in each round, at even times, whatever has become of those before; {} deltas of {DELTA_BYTES} \
         bytes, {} ms apart. A delay counts from when the request was due, or the chunk by the provider's pace.",
        load.requests, load.deltas, load.gap_ms
    ));
    Ok(())
}

/// How late chunks are by the provider's pace, which begins when the request was due.
fn late(came: &[Came], gap_ms: u64) -> Vec<f64> {
    let of_one = |came: &Came| -> Vec<f64> {
        let paced = came.deltas.iter().enumerate();
        paced.map(|(number, at)| at - number as f64 * gap_ms as f64).collect()
    };
    came.iter().flat_map(of_one).collect()
}

/// A row for each of [`SHARES`].
pub(crate) fn rows(name: &str, unit: &str) -> Vec<Row> {
    let compared = Compared::AsRatio;
    let row = |(share, _): (&str, f64)| Row::new(&format!("{name}, {share} ({unit})"), compared);
    SHARES.into_iter().map(row).collect()
}

/// Adds what is told of the delays of a round.
pub(crate) fn add(rows: &mut [Row], subject: Subject, delays: &[f64]) {
    for (row, (_, share)) in rows.iter_mut().zip(SHARES) {
        row.add(subject, quantile(delays, share).expect("delays"));
    }
}
