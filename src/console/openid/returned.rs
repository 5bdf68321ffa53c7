//! What stands on the page that the provider sends the browser back to.

use maud::{Markup, html};

use crate::console::fields::Fields;

/// What the provider has said in the address, as a form to `action`, whose button says what it opens. By itself the page signs
/// nobody in: the browser comes from another site, so it sends no cookie yet, and a GET changes nothing.
pub(in crate::console) fn form(said: &Fields, action: &str, opens: &str) -> Markup {
    html! {
        form method="post" action=(action) class="card" autocomplete="off" {
            @for name in ["code", "state", "iss", "error"] {
                @if let Some(value) = said.given(name) { input type="hidden" name=(name) value=(value); }
            }
            p { "The provider has answered." }
            button autofocus { (opens) }
        }
    }
}
