//! The results as Markdown and as JSON.

use std::{collections::BTreeMap, fmt::Write};

use serde_json::{Value, json};

use crate::{
    machine::Machine,
    phases::{Judged, Report},
    row::{Aim, Row, Subject, quantile},
};

/// The report as a Markdown table with the machine above and the aims below it.
pub(crate) fn markdown(report: &Report, machine: &Machine) -> String {
    let present = |subject: &Subject| report.rows.iter().any(|row| row.values.contains_key(subject));
    let subjects: Vec<Subject> = Subject::ALL.into_iter().filter(present).collect();
    let weirs: Vec<Subject> = subjects.iter().copied().filter(|subject| subject.is_weir()).collect();
    let mut text = format!("{}\n\n", machine.line());
    let mut head = vec!["median of the rounds".to_owned()];
    head.extend(subjects.iter().map(|subject| subject.title().to_owned()));
    let others: Vec<Subject> = [Subject::Bare, Subject::Nginx]
        .into_iter()
        .filter(present_in(&subjects))
        .collect();
    let mut compared: Vec<(Subject, Subject)> = others
        .iter()
        .flat_map(|other| weirs.iter().map(|weir| (*weir, *other)))
        .collect();
    for gateway in [Subject::Litellm, Subject::Portkey]
        .into_iter()
        .filter(present_in(&subjects))
    {
        let of = [Subject::Bare, Subject::Embedded, Subject::Redis].into_iter();
        compared.extend(of.filter(present_in(&subjects)).map(|other| (gateway, other)));
    }
    head.extend(
        compared
            .iter()
            .map(|(one, other)| format!("{} / {} (min..max)", one.name(), other.name())),
    );
    line(&mut text, &head);
    text.push_str("|---|");
    text.push_str(&"---:|".repeat(head.len() - 1));
    text.push('\n');
    for row in &report.rows {
        let mut cells = vec![row.name.clone()];
        cells.extend(
            subjects
                .iter()
                .map(|subject| row.median(*subject).map_or_else(String::new, number)),
        );
        cells.extend(compared.iter().map(|(one, other)| ratio(row, *one, *other)));
        line(&mut text, &cells);
    }
    text.push('\n');
    for note in &report.notes {
        let _ = writeln!(text, "- {note}");
    }
    for verdict in verdicts(report) {
        let _ = writeln!(text, "- {verdict}");
    }
    observed(&mut text, report);
    text
}

/// A table of what was seen, where something was looked for.
fn observed(text: &mut String, report: &Report) {
    let Some((_, seen)) = report.observed.first() else {
        return;
    };
    let mut head = vec!["seen".to_owned()];
    head.extend(seen.iter().map(|(subject, _)| subject.title().to_owned()));
    text.push('\n');
    line(text, &head);
    let _ = writeln!(text, "|{}", "---|".repeat(head.len()));
    for (looked_for, seen) in &report.observed {
        let mut cells = vec![(*looked_for).to_owned()];
        cells.extend(seen.iter().map(|(_, is)| is.clone()));
        line(text, &cells);
    }
}

/// Every number of every round.
pub(crate) fn json(report: &Report, machine: &Machine) -> Value {
    let rows = report.rows.iter().map(|row| {
        let values: BTreeMap<&str, &Vec<f64>> = row.values.iter().map(|(subject, all)| (subject.name(), all)).collect();
        let weirs = || row.values.keys().copied().filter(|subject| subject.is_weir());
        let ratios = |other| -> BTreeMap<&str, Vec<f64>> {
            weirs()
                .map(|subject| (subject.name(), row.ratios(subject, other)))
                .collect()
        };
        json!({
            "name": row.name,
            "rounds": values,
            "ratios_to_bare": ratios(Subject::Bare),
            "ratios_to_nginx": ratios(Subject::Nginx),
        })
    });
    json!({
        "machine": {
            "processor": machine.processor,
            "cores": machine.cores,
            "kernel": machine.kernel,
            "compiler": machine.compiler,
            "profile": machine.profile,
            "date": machine.date,
        },
        "rows": rows.collect::<Vec<_>>(),
        "notes": report.notes,
        "billed": report.billed.iter().map(|sums| {
            json!({
                "phase": sums.phase,
                "subject": sums.subject.name(),
                "rows": sums.rows,
                "input_tokens": sums.tokens.0,
                "output_tokens": sums.tokens.1,
                "cost_nano_usd": sums.cost_nano_usd,
            })
        }).collect::<Vec<_>>(),
        "aims": verdicts(report),
        "observed": report.observed.iter().map(|(looked_for, seen)| {
            let seen: BTreeMap<&str, &String> = seen.iter().map(|(subject, is)| (subject.name(), is)).collect();
            json!({ "looked_for": looked_for, "seen": seen })
        }).collect::<Vec<_>>(),
    })
}

fn line(text: &mut String, cells: &[String]) {
    let _ = writeln!(text, "| {} |", cells.join(" | "));
}

fn number(value: f64) -> String {
    let decimals = match value.abs() {
        small if small < 10.0 => 2,
        middle if middle < 100.0 => 1,
        _ => 0,
    };
    format!("{value:.decimals$}")
}

fn present_in(subjects: &[Subject]) -> impl Fn(&Subject) -> bool {
    move |subject| subjects.contains(subject)
}

fn ratio(row: &Row, subject: Subject, other: Subject) -> String {
    let ratios = row.ratios(subject, other);
    let at = |share| quantile(&ratios, share);
    match (at(0.5), at(0.0), at(1.0)) {
        (Some(median), Some(low), Some(high)) => format!("{median:.2} ({low:.2}..{high:.2})"),
        _ => String::new(),
    }
}

fn verdicts(report: &Report) -> Vec<String> {
    let mut said = Vec::new();
    if report.judged == Judged::No {
        return said;
    }
    for row in &report.rows {
        for (subjects, aim) in &row.aims {
            let present = subjects.iter().filter(|subject| row.values.contains_key(subject));
            said.extend(present.filter_map(|subject| verdict(row, *subject, *aim)));
        }
    }
    said
}

/// Nothing where the other one did not take part.
fn verdict(row: &Row, subject: Subject, aim: Aim) -> Option<String> {
    let median = |values: Vec<f64>| quantile(&values, 0.5);
    let (reached, bound, words) = match aim {
        Aim::Most(most) => (row.median(subject), most, String::new()),
        Aim::MostOver(most, other) => {
            row.median(other)?;
            (
                median(row.differences(subject, other)),
                most,
                format!(" more than {}", other.title()),
            )
        }
        Aim::MostTimes(bound, other) | Aim::LeastTimes(bound, other) => {
            row.median(other)?;
            (
                median(row.ratios(subject, other)),
                bound,
                format!(" times {}", other.title()),
            )
        }
    };
    let name = format!("{}, {}", row.name, subject.title());
    let Some(reached) = reached else {
        return Some(format!("Aim not judged, too little CPU time to tell: {name}."));
    };
    let (is_met, which) = match aim {
        Aim::LeastTimes(..) => (reached >= bound, "at least"),
        Aim::Most(_) | Aim::MostOver(..) | Aim::MostTimes(..) => (reached <= bound, "at most"),
    };
    let met = if is_met { "met" } else { "missed" };
    let (reached, bound) = (number(reached), number(bound));
    Some(format!("Aim {met}: {name}: {reached}{words}, aim {which} {bound}."))
}
