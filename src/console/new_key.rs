//! The text of a key that has just been made: on this one page, and nowhere again.

use maud::{Markup, html};
use serde_json::Value;

use super::{example::Examples, rotation, snippet, view};
use crate::api::providers::ModelView;

/// The text, and how to use it with the models that are served, as the admin API lists them.
pub(super) fn section(made: &Value, models: &[ModelView], gateway: &str) -> Markup {
    let text = view::text(made, "key");
    html! {
        section class="card once" aria-labelledby="key" {
            h2 id="key" { (view::name(view::text(made, "name"))) }
            p { "Copy it now: it is shown this once, and weir keeps only its digest." }
            @if let Some(former) = rotation::former(made) { p { (rotation::works_on(former)) } }
            pre tabindex="0" { code class="key" { (text) } }
        }
        (snippet::section(gateway, Some(text), &Examples::of_answers(made, models)))
    }
}
