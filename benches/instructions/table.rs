//! The tables, in Markdown.

use std::fmt::Write;

use crate::{
    loads::{Cost, Measured},
    machine::Machine,
    row::Subject,
    stages::{PROXYING, SERVING, STAGES},
};

/// All tables.
pub(crate) fn markdown(measured: &[Measured], machine: &Machine) -> String {
    let mut text = format!("{}\n\n", machine.line());
    text.push_str(&loads(measured));
    for load in measured {
        if let Some(cost) = load.costs.iter().find(|cost| cost.subject == Subject::Embedded) {
            let _ = write!(text, "\n### {}\n\n{}", load.name, stages(load, cost));
        }
    }
    text
}

fn per_request(cost: &Cost, count: u64) -> u64 {
    count / cost.requests
}

fn loads(measured: &[Measured]) -> String {
    let mut text = String::from(
        "| per request | bare Pingora: instructions | allocations | weir, embedded: instructions | allocations | of bare | \
         beside it | weir, Redis: instructions | allocations | of bare | beside it |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    for load in measured {
        let _ = write!(text, "| {} |", load.name);
        let bare = load.costs.iter().find(|cost| cost.subject == Subject::Bare);
        for subject in [Subject::Bare, Subject::Embedded, Subject::Redis] {
            let Some(cost) = load.costs.iter().find(|cost| cost.subject == subject) else {
                text.push_str(if subject == Subject::Bare { " | |" } else { " | | | |" });
                continue;
            };
            let serving = &cost.profile.serving;
            let instructions = per_request(cost, serving.instructions);
            let _ = write!(text, " {instructions} | {} |", per_request(cost, serving.allocations));
            if let (true, Some(bare)) = (subject.is_weir(), bare) {
                let times = instructions as f64 / per_request(bare, bare.profile.serving.instructions) as f64;
                let beside = per_request(cost, cost.profile.beside.instructions);
                let _ = write!(text, " {times:.2} | {beside} |");
            }
        }
        text.push('\n');
    }
    text
}

/// Where the instructions of one load go, with the embedded store.
fn stages(load: &Measured, cost: &Cost) -> String {
    let serving = &cost.profile.serving;
    let mut text = String::from("| stage | instructions |\n|---|---:|\n");
    let (mut hooks, proxying, served) = (0, serving.greatest(PROXYING), serving.greatest(SERVING));
    for stage in &STAGES {
        let instructions = stage.of(serving);
        if stage.within && instructions == 0 {
            continue;
        }
        let mark = if stage.within { "- of it: " } else { "" };
        let _ = writeln!(text, "| {mark}{} | {} |", stage.name, per_request(cost, instructions));
        hooks += if stage.within { 0 } else { instructions };
    }
    for (name, instructions) in [
        ("Pingora, around the hooks", proxying.saturating_sub(hooks)),
        ("front", served.saturating_sub(proxying)),
        (
            "other tasks on the thread, and its scheduler",
            serving.instructions.saturating_sub(served),
        ),
    ] {
        let _ = writeln!(text, "| {name} | {} |", per_request(cost, instructions));
    }
    if let Some(bare) = load.costs.iter().find(|cost| cost.subject == Subject::Bare) {
        let whole = per_request(bare, bare.profile.serving.instructions);
        let _ = writeln!(text, "| for comparison: all of bare Pingora | {whole} |");
    }
    text
}
