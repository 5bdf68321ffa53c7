//! The status page: `/status` and `/status/{model}` as whole HTML documents, for people who would rather not read JSON.
//!
//! One document holds everything: no script, no further request, and a policy under which a browser would do neither.
//! Names come from an operator's configuration and may hold anything; they are escaped by the template, always. What is
//! shown is what is published: means, labels and confidence, never a count of requests, nor a length that tells one.

use jiff::Timestamp;
use maud::{Markup, PreEscaped, html};

use crate::{
    domain::faults::stability::{ModelWindow, Window},
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

/// The `Content-Security-Policy` to send with every page. Its hash is that of the style sheet, which a test holds; the only
/// image is the icon, a `data:` address within the document.
pub const CSP: &str = "default-src 'none'; style-src 'sha256-wjHYlQhDmCh6DVaXIbIQPJ8V1tIv0A3XEZqDUy1RUH8='; \
     img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const STYLE: &str = concat!(include_str!("look/base.css"), include_str!("page/style.css"));

/// How often an open overview is read again. A model's page stays, so that what its reader has opened stays open.
const REFRESH_SECONDS: &str = "60";

/// The overview of all models, a whole HTML document. `updated_at` is when the figures were read, in seconds since the
/// Unix epoch.
pub fn index(window: &Window, updated_at: i64) -> String {
    let updated = updated(updated_at);
    document(
        "Model status",
        Some(REFRESH_SECONDS),
        &overview::content(window, &updated),
    )
}

/// The page of one model, a whole HTML document. `updated_at` as in [`index`].
pub fn model(model: &ModelWindow, updated_at: i64) -> String {
    let updated = updated(updated_at);
    let title = format!("{} \u{b7} Model status", model.name);
    document(&title, None, &model::content(model, &updated))
}

fn document(title: &str, refresh: Option<&str>, content: &Markup) -> String {
    let head = html! {
        @if let Some(seconds) = refresh {
            meta http-equiv="refresh" content=(seconds);
        }
        style { (PreEscaped(STYLE)) }
    };
    look::document(title, &head, content).into_string()
}

/// When the figures were read, for people and machines.
fn updated(at: i64) -> Markup {
    match Timestamp::from_second(at) {
        Ok(at) => html! {
            "updated " time datetime=(at) { (at.strftime("%-d %B %Y, %H:%M:%S UTC")) }
        },
        Err(_) => html! { "updated at an unknown time" },
    }
}
