//! The content of the page that the provider sends the browser back to.

use maud::{Markup, html};

use crate::console::fields::FormFields;

/// The page's query as a form to `action`, with a button that is called `opens`. The page alone signs nobody in: the browser
/// comes from another site, so it sends no cookie yet, and a GET must change nothing.
pub(in crate::console) fn return_form(said: &FormFields, action: &str, opens: &str) -> Markup {
    html! {
        form method="post" action=(action) class="card" autocomplete="off" {
            @for name in ["code", "state", "iss", "error"] {
                @if let Some(value) = said.non_empty(name) { input type="hidden" name=(name) value=(value); }
            }
            p { "The provider has answered." }
            button autofocus { (opens) }
        }
    }
}
