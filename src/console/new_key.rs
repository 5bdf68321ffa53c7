//! The text of a new key, which is shown on this page only.

use maud::{Markup, html};

use super::{example::Examples, rotation, snippet, view};
use crate::api::{
    keys::{KeyDetails, KeyText},
    providers::ModelView,
};

/// The text, and how to use it with the served models.
pub(super) fn section(made: &KeyDetails, models: &[ModelView], gateway: &str) -> Markup {
    let text = made.key.as_ref().map_or("", KeyText::expose);
    html! {
        section class="card once" aria-labelledby="key" {
            h2 id="key" { (view::name(&made.name)) }
            p { "Copy it now: it is shown only once, and weir keeps only its digest." }
            @if let Some(former) = &made.former { p { (rotation::former_text_notice(former)) } }
            pre tabindex="0" { code class="key" { (text) } }
        }
        (snippet::section(gateway, Some(text), &Examples::from_model_views(made.models.as_deref(), models)))
    }
}
