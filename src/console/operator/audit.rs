//! The console's page of the audit record, which lists the changes with their authors. The most recent change is first.

use maud::{Markup, html};
use serde_json::{Map, Value};

use crate::{
    api::{
        AdminError,
        node::{AuditLine, AuditPeer, AuditedChange, ListAuditedChanges},
        sessions::Door,
        values::Moment,
    },
    console::{
        PageContext,
        layout::{self, HtmlPage},
        request::to_query,
    },
};

pub(super) async fn page(context: &PageContext<'_>) -> Result<HtmlPage, AdminError> {
    let number = |text: &str| {
        let number = text.parse::<u64>();
        number.map_err(|_| AdminError::of_field("before", format!("`{text}` is not a whole number")))
    };
    let before = context.query.non_empty("before").map(number).transpose()?;
    let answer = context.fetch(ListAuditedChanges { before }).await?;
    let content = html! {
        p class="lead" { "The changes made at this node. Each was recorded before it was made." }
        @if answer.changes.is_empty() { p class="card" { "No changes" @if before.is_some() { " before" } "." } }
        @else {
            div class="scroll" tabindex="0" role="region" aria-label="Changes" {
                table class="list" {
                    thead { tr {
                        th scope="col" { "Time (UTC)" } th scope="col" { "Who" } th scope="col" { "What" } th scope="col" { "Key" }
                        th scope="col" { "Values" }
                    } }
                    tbody { @for line in &answer.changes { (row(line)) } }
                }
            }
        }
        @if let Some(next) = answer.next {
            p class="pages" { a href={ "/audit" (to_query(&[("before", &next.to_string())])) } { "Earlier changes" } }
        }
    };
    Ok(HtmlPage {
        title: "Audit".to_owned(),
        content,
    })
}

fn row(line: &AuditLine) -> Markup {
    match line {
        AuditLine::Change(AuditedChange {
            time_unix_ms,
            peer,
            operation,
            key_id,
            values,
        }) => html! {
            tr {
                th scope="row" class="whole" { (layout::timestamp(Moment::of_millis(*time_unix_ms), "unknown")) }
                td { (layout::name(&who(peer))) }
                td class="whole" { (operation) }
                td { code { (key_id) } }
                td {
                    @match values {
                        Value::Object(values) => (values_text(values)),
                        other => (layout::name(&other.to_string())),
                    }
                }
            }
        },
        // Such a line can be incomplete, for example because the disk was full.
        AuditLine::Other(other) => html! {
            tr { th scope="row" class="none" { "unknown" } td { "unknown" } td {} td {} td { (layout::name(&other.to_string())) } }
        },
    }
}

fn who(peer: &AuditPeer) -> String {
    let who = match peer {
        AuditPeer {
            peer_subject: Some(subject),
            peer_name,
            ..
        } => format!("{} ({subject})", peer_name.as_deref().unwrap_or_default()),
        AuditPeer {
            peer_certificate: Some(certificate),
            ..
        } => certificate.to_string(),
        AuditPeer {
            peer_key: Some(key), ..
        } => format!("owner of {key}"),
        AuditPeer {
            peer_uid: Some(uid), ..
        } => format!("user {uid}"),
        _ => "unknown".to_owned(),
    };
    match peer.via.map(Door::as_str) {
        None => who,
        Some(via) => format!("{who}, {via}"),
    }
}

fn values_text(values: &Map<String, Value>) -> Markup {
    html! {
        @for (place, (field, value)) in values.iter().enumerate() {
            @if place > 0 { "; " }
            (field) " " (layout::name(&match value {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            }))
        }
    }
}
