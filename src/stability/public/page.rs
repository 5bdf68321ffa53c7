//! The status pages `/status` and `/status/{model}`: the record as HTML.
//!
//! A document contains everything: it has no script, loads nothing else, and its policy forbids both. Names come from an
//! operator's configuration and may contain anything; the template always escapes them. The pages show what is published: means,
//! labels and confidence, but neither the number of requests nor any length that would reveal it.

use jiff::Timestamp;
use maud::{Markup, PreEscaped, html};

use crate::{
    domain::faults::stability::{ModelWindow, StabilityWindow},
    stability::public::look,
};

mod address;
mod chart;
mod measure;
mod method;
mod model;
mod overview;
mod strip;

#[cfg(test)]
mod tests;

/// The `Content-Security-Policy` of every page. A test checks the hash of the style sheet. The only image is the icon, which is a
/// `data:` URL within the document.
pub const CSP: &str = "default-src 'none'; style-src 'sha256-wjHYlQhDmCh6DVaXIbIQPJ8V1tIv0A3XEZqDUy1RUH8='; \
     img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const STYLE: &str = concat!(include_str!("look/base.css"), include_str!("page/style.css"));

/// The interval at which a browser reloads an open overview. A model's page is not reloaded, so that opened sections stay open.
const REFRESH_SECONDS: &str = "60";

/// The overview of all models, as a complete HTML document. `updated_at` is the time at which the figures were read, in seconds
/// since the Unix epoch.
pub fn index(window: &StabilityWindow, updated_at: i64) -> String {
    let updated = updated(updated_at);
    status_document(
        "Model status",
        Some(REFRESH_SECONDS),
        &overview::content(window, &updated),
    )
}

/// The page of one model, as a complete HTML document. `updated_at` is as in [`index`].
pub fn model(model: &ModelWindow, updated_at: i64) -> String {
    let updated = updated(updated_at);
    let title = format!("{} \u{b7} Model status", model.name);
    status_document(&title, None, &model::content(model, &updated))
}

fn status_document(title: &str, refresh: Option<&str>, content: &Markup) -> String {
    let head = html! {
        @if let Some(seconds) = refresh {
            meta http-equiv="refresh" content=(seconds);
        }
        style { (PreEscaped(STYLE)) }
    };
    look::document(title, &head, content).into_string()
}

/// The time at which the figures were read, for people and machines.
fn updated(at: i64) -> Markup {
    match Timestamp::from_second(at) {
        Ok(at) => html! {
            "updated " time datetime=(at) { (at.strftime("%-d %B %Y, %H:%M:%S UTC")) }
        },
        Err(_) => html! { "updated at an unknown time" },
    }
}
