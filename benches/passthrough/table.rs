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
    let compared: Vec<(Subject, Subject)> = others
        .iter()
        .flat_map(|other| weirs.iter().map(|weir| (*weir, *other)))
        .collect();
    head.extend(
        compared
            .iter()
            .map(|(weir, other)| format!("{} / {} (min..max)", weir.name(), other.name())),
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
        cells.extend(compared.iter().map(|(weir, other)| ratio(row, *weir, *other)));
        line(&mut text, &cells);
    }
    text.push('\n');
    for note in &report.notes {
        let _ = writeln!(text, "- {note}");
    }
    for verdict in verdicts(report) {
        let _ = writeln!(text, "- {verdict}");
    }
    text
}

/// Every number of every round.
pub(crate) fn json(report: &Report, machine: &Machine) -> Value {
    let rows = report.rows.iter().map(|row| {
        let values: BTreeMap<&str, &Vec<f64>> = row.values.iter().map(|(subject, all)| (subject.name(), all)).collect();
        let weirs = row.values.keys().filter(|subject| subject.is_weir());
        let ratios: BTreeMap<&str, Vec<f64>> = weirs.map(|subject| (subject.name(), row.ratios(*subject))).collect();
        json!({ "name": row.name, "rounds": values, "ratios_to_bare": ratios })
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
        "aims": verdicts(report),
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
    let ratios = row.ratios_to(subject, other);
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
        for subject in row.values.keys().copied().filter(|subject| subject.is_weir()) {
            let (reached, aim, what) = match row.aim {
                Some(Aim::Ratio(aim)) => (quantile(&row.ratios(subject), 0.5), aim, " times the bare proxy's"),
                Some(Aim::Value(aim)) => (row.median(subject), aim, ""),
                None => continue,
            };
            let Some(reached) = reached else {
                said.push(format!(
                    "Aim not judged, too little CPU time to tell: {}, {}.",
                    row.name,
                    subject.title()
                ));
                continue;
            };
            let met = if reached <= aim { "met" } else { "missed" };
            let (reached, aim) = (number(reached), number(aim));
            said.push(format!(
                "Aim {met}: {}, {}: {reached}{what}, aim at most {aim}.",
                row.name,
                subject.title()
            ));
        }
    }
    said
}
