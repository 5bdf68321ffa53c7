//! The text of a key that has just been made: on this one page, and nowhere again.

use maud::{Markup, html};
use serde_json::Value;

use super::{rotation, snippet, view};

/// The text, and how to use it.
pub(super) fn section(made: &Value, gateway: &str) -> Markup {
    let text = view::text(made, "key");
    let model = snippet::model(view::list(made, "models"));
    html! {
        section class="card once" aria-labelledby="key" {
            h2 id="key" { (view::name(view::text(made, "name"))) }
            p { "Copy it now: it is shown this once, and weir keeps only its digest." }
            @if let Some(former) = rotation::former(made) { p { (rotation::works_on(former)) } }
            pre tabindex="0" { code class="key" { (text) } }
        }
        (snippet::section(gateway, Some(text), &model))
    }
}
