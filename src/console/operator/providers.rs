//! Providers: how each stands and why, and its switch on this node.

use maud::{Markup, html};

use crate::{
    api::{
        error::AdminError,
        providers::{DisableProvider, EnableProvider, ListProviders, PlaceView, ProviderView},
    },
    console::{
        answer::Answer,
        desk::{Desk, below},
        frame::Page,
        view,
    },
};

pub(super) async fn page(desk: &Desk<'_>) -> Result<Page, AdminError> {
    let listed = desk.look(ListProviders {}).await?;
    let content = html! {
        p class="lead" { "A switch holds on this node, also after a restart; requests that run go on." }
        @if listed.providers.is_empty() { p class="card" { "No providers are configured." } }
        @for provider in &listed.providers { (card(desk, provider)) }
    };
    Ok(Page {
        title: "Providers".to_owned(),
        content,
    })
}

fn card(desk: &Desk<'_>, provider: &ProviderView) -> Markup {
    let (is_configured, is_enabled) = (provider.configured, provider.enabled);
    let at = |verb: &str| below(&below("/providers", &provider.name), verb);
    html! {
        section class="card provider" {
            h2 { (view::name(&provider.display_name)) " " (state(is_configured, is_enabled)) }
            ul class="plain" {
                @if let Some(why) = &provider.why_off { li { (why) } }
                @for one in &provider.credentials {
                    li {
                        "Credential " (view::name(&one.name))
                        @match one.rests_seconds {
                            0 => " is in use",
                            seconds => { " rests for " (seconds) " s more" }
                        }
                    }
                }
                @match provider.places_ejected {
                    0 => {}
                    count => li { (count) " of its addresses are left out after failures in a row" }
                }
                @for one in &provider.passed_over {
                    li {
                        "Passed over for " (view::name(&one.model)) ", asked again in "
                        (view::thousands(one.asked_again_seconds)) " s"
                    }
                }
            }
            (places(&provider.places))
            @if !is_enabled { (desk.forms.button(&at("enable"), "Switch on", "")) }
            @else if is_configured { (desk.forms.button(&at("disable"), "Switch off", "danger")) }
        }
    }
}

/// Where its requests go.
fn places(places: &[PlaceView]) -> Markup {
    html! {
        @if !places.is_empty() {
            details {
                summary { "Addresses: " (places.len()) }
                ul class="plain" { @for place in places { li {
                    code { (place.address) } " of " (view::name(&place.origin))
                    @match place.ejected_seconds {
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
    let name = name.to_owned();
    match verb {
        "enable" => desk.ask(EnableProvider { name }).await?,
        _ => desk.ask(DisableProvider { name }).await?,
    };
    Ok(Answer::see("/providers"))
}
