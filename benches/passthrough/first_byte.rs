//! Time to the first byte of a streamed answer, one request at a time: direct and through each proxy in turn.

use crate::{
    billed::Billed,
    driver::Connection,
    options::Scale,
    phases::{Report, order},
    request::{Form, direct_request},
    row::{Aim, Compared, Row, Subject, WEIRS, quantile},
};

/// More than the bare proxy's, in microseconds.
const MEDIAN_AIM: Aim = Aim::MostOver(60.0, Subject::Bare);
const TAIL_AIM: Aim = Aim::MostOver(250.0, Subject::Bare);

pub(crate) async fn measure(billed: &Billed, scale: &Scale, report: &mut Report) -> Result<(), String> {
    let fleet = &billed.fleet;
    let references = billed.references(Form::Stream).await?;
    let mut subjects = vec![(
        Subject::Direct,
        Connection::new(fleet.provider),
        direct_request(Form::Stream),
        references.of(Subject::Direct),
    )];
    for proxy in &fleet.proxies {
        subjects.push((
            proxy.subject,
            Connection::new(proxy.address),
            proxy.request(Form::Stream),
            references.of(proxy.subject),
        ));
    }
    let mut median = Row::new("first byte: p50 (us)", Compared::AsRatio).aiming(WEIRS, MEDIAN_AIM);
    let mut tail = Row::new("first byte: p99 (us)", Compared::AsRatio).aiming(WEIRS, TAIL_AIM);
    let mut added_median = Row::new("first byte: added to the direct p50 (us)", Compared::Not);
    let mut added_tail = Row::new("first byte: added to the direct p99 (us)", Compared::Not);
    let mut paired = Row::new(
        "first byte: p99 of what is added to the direct request beside it (us)",
        Compared::Not,
    );
    for _ in 0..scale.rounds {
        let mut samples = vec![Vec::with_capacity(scale.first_bytes); subjects.len()];
        for turn in 0..=scale.first_bytes {
            for place in order(subjects.len(), turn) {
                let (subject, connection, request, reference) = &mut subjects[place];
                let asked = connection.ask(request, reference.expected()).await;
                let answer = asked.map_err(|bad| format!("{}: {bad}", subject.name()))?;
                // The first turn opens connections.
                if turn > 0 {
                    samples[place].push(answer.first_byte.as_secs_f64() * 1e6);
                }
            }
        }
        let of = |place: usize, share: f64| quantile(&samples[place], share).expect("samples");
        for (place, (subject, ..)) in subjects.iter().enumerate() {
            median.add(*subject, of(place, 0.5));
            tail.add(*subject, of(place, 0.99));
            if place > 0 {
                added_median.add(*subject, of(place, 0.5) - of(0, 0.5));
                added_tail.add(*subject, of(place, 0.99) - of(0, 0.99));
                let pairs = samples[place].iter().zip(&samples[0]).map(|(own, direct)| own - direct);
                paired.add(*subject, quantile(&pairs.collect::<Vec<_>>(), 0.99).expect("samples"));
            }
        }
    }
    report.rows.extend([median, tail, added_median, added_tail, paired]);
    Ok(())
}
