//! Providers: how each stands and why, and its switch on this node.

use http::Method;
use maud::{Markup, html};
use serde_json::{Value, json};

use crate::{
    api::error::AdminError,
    console::{
        answer::Answer,
        desk::{Desk, below},
        frame::Page,
        view,
    },
};

pub(super) async fn page(desk: &Desk<'_>) -> Result<Page, AdminError> {
    let answer = desk.read("/v1/providers").await?;
    let providers = view::list(&answer, "providers");
    let content = html! {
        p class="lead" { "A switch holds on this node, also after a restart; requests that run go on." }
        @if providers.is_empty() { p class="card" { "No providers are configured." } }
        @for provider in providers { (card(desk, provider)) }
    };
    Ok(Page {
        title: "Providers".to_owned(),
        content,
    })
}

fn card(desk: &Desk<'_>, provider: &Value) -> Markup {
    let name = view::text(provider, "name");
    let (is_configured, is_enabled) = (view::is(provider, "configured"), view::is(provider, "enabled"));
    let at = |verb: &str| below(&below("/providers", name), verb);
    html! {
        section class="card provider" {
            h2 { (view::name(view::text(provider, "display_name"))) " " (state(is_configured, is_enabled)) }
            ul class="plain" {
                @if let Some(why) = provider.get("why_off").and_then(Value::as_str) { li { (why) } }
                @for one in view::list(provider, "credentials") {
                    li {
                        "Credential " (view::name(view::text(one, "name")))
                        @match view::count(one, "rests_seconds") {
                            0 => " is in use",
                            seconds => { " rests for " (seconds) " s more" }
                        }
                    }
                }
                @match view::count(provider, "places_ejected") {
                    0 => {}
                    count => li { (count) " of its addresses are left out after failures in a row" }
                }
                @for one in view::list(provider, "passed_over") {
                    li {
                        "Passed over for " (view::name(view::text(one, "model"))) ", asked again in "
                        (view::number(one, "asked_again_seconds", "0")) " s"
                    }
                }
            }
            (places(view::list(provider, "places")))
            @if !is_enabled { (desk.forms.button(&at("enable"), "Switch on", "")) }
            @else if is_configured { (desk.forms.button(&at("disable"), "Switch off", "danger")) }
        }
    }
}

/// Where its requests go.
fn places(places: &[Value]) -> Markup {
    html! {
        @if !places.is_empty() {
            details {
                summary { "Addresses: " (places.len()) }
                ul class="plain" { @for place in places { li {
                    code { (view::text(place, "address")) } " of " (view::name(view::text(place, "origin")))
                    @match view::count(place, "ejected_seconds") {
                        0 => {}
                        seconds => { " " span class="pill u" { "Left out" } " for " (seconds) " s more, after failures in a row" }
                    }
                } } }
            }
        }
    }
}

fn state(is_configured: bool, is_enabled: bool) -> Markup {
    html! {
        @match (is_configured, is_enabled) {
            (_, false) => span class="pill d" { "Switched off" },
            (false, true) => span class="pill n" { "Off" },
            (true, true) => span class="pill o" { "On" },
        }
    }
}

pub(super) async fn switch(desk: &Desk<'_>, name: &str, verb: &str) -> Result<Answer, AdminError> {
    let path = below(&below("/v1/providers", name), verb);
    desk.change(Method::POST, &path, &json!({})).await?;
    Ok(Answer::see("/providers"))
}
