//! The text of a key that has just been made: on this one page, and nowhere again.

use maud::{Markup, html};

use super::{example::Examples, rotation, snippet, view};
use crate::api::{
    keys::{Key, KeyText},
    providers::ModelView,
};

/// The text, and how to use it with the models that are served, as the admin API lists them.
pub(super) fn section(made: &Key, models: &[ModelView], gateway: &str) -> Markup {
    let text = made.key.as_ref().map_or("", KeyText::expose);
    html! {
        section class="card once" aria-labelledby="key" {
            h2 id="key" { (view::name(&made.name)) }
            p { "Copy it now: it is shown this once, and weir keeps only its digest." }
            @if let Some(former) = &made.former { p { (rotation::works_on(former)) } }
            pre tabindex="0" { code class="key" { (text) } }
        }
        (snippet::section(gateway, Some(text), &Examples::of_answers(made.models.as_deref(), models)))
    }
}
