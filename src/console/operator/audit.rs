//! The audit record: who changed what, the latest first.

use maud::{Markup, html};
use serde_json::{Map, Value};

use crate::{
    api::error::AdminError,
    console::{desk::Desk, fields::query, frame::Page, view},
};

pub(super) async fn page(desk: &Desk<'_>) -> Result<Page, AdminError> {
    let asked = query(&[("before", desk.query.text("before"))]);
    let answer = desk.read(&format!("/v1/audit{asked}")).await?;
    let changes = view::list(&answer, "changes");
    let next = view::plain(&answer, "next");
    let content = html! {
        p class="lead" { "The changes in this node's record, each written before it was made." }
        @if changes.is_empty() { p class="card" { "No changes" @if !asked.is_empty() { " before" } "." } }
        @else {
            div class="scroll" tabindex="0" role="region" aria-label="Changes" {
                table class="list" {
                    thead { tr {
                        th scope="col" { "Time (UTC)" } th scope="col" { "Who" } th scope="col" { "What" } th scope="col" { "Key" }
                        th scope="col" { "Values" }
                    } }
                    tbody { @for change in changes { (row(change)) } }
                }
            }
        }
        @if !next.is_empty() { p class="pages" { a href={ "/audit" (query(&[("before", &next)])) } { "Earlier changes" } } }
    };
    Ok(Page {
        title: "Audit".to_owned(),
        content,
    })
}

fn row(change: &Value) -> Markup {
    let values = change.get("values").and_then(Value::as_object);
    html! {
        tr {
            th scope="row" class="whole" { (view::time_ms(change, "time_unix_ms")) }
            td { (view::name(&who(change))) }
            td class="whole" { (view::text(change, "operation")) }
            td { code { (view::text(change, "key_id")) } }
            td {
                @match values {
                    Some(values) => (told(values)),
                    // Half a line of a disk that was full, say.
                    None => (view::name(&change.to_string())),
                }
            }
        }
    }
}

fn who(change: &Value) -> String {
    let certificate = view::text(change, "peer_certificate");
    let key = view::text(change, "peer_key");
    let uid = view::plain(change, "peer_uid");
    let (subject, name) = (view::text(change, "peer_subject"), view::text(change, "peer_name"));
    let who = match (certificate, key, &*uid) {
        _ if !subject.is_empty() => format!("{name} ({subject})"),
        ("", "", "") => "unknown".to_owned(),
        ("", "", uid) => format!("user {uid}"),
        ("", key, _) => format!("owner of {key}"),
        (certificate, ..) => certificate.to_owned(),
    };
    match view::text(change, "via") {
        "" => who,
        via => format!("{who}, {via}"),
    }
}

fn told(values: &Map<String, Value>) -> Markup {
    html! {
        @for (place, field) in values.keys().enumerate() {
            @if place > 0 { "; " }
            (field) " " (view::name(&values.get(field).map(|value| match value {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            }).unwrap_or_default()))
        }
    }
}
