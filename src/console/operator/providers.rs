//! The console's page of providers: the state of each provider with its reason, and its switch on this node.

use maud::{Markup, html};

use crate::{
    api::{
        error::AdminError,
        node::{DisableProvider, EnableProvider, ListProviders, PlaceView, ProviderView},
    },
    console::{
        PageContext, below,
        layout::{self, HtmlPage, PageResponse},
    },
};

pub(super) async fn page(context: &PageContext<'_>) -> Result<HtmlPage, AdminError> {
    let listed = context.fetch(ListProviders {}).await?;
    let content = html! {
        p class="lead" { "A switch applies to this node and survives a restart. Running requests continue." }
        @if listed.providers.is_empty() { p class="card" { "No providers are configured." } }
        @for provider in &listed.providers { (card(context, provider)) }
    };
    Ok(HtmlPage {
        title: "Providers".to_owned(),
        content,
    })
}

fn card(context: &PageContext<'_>, provider: &ProviderView) -> Markup {
    let (is_configured, is_enabled) = (provider.configured, provider.enabled);
    let at = |verb: &str| below(&below("/providers", &provider.name), verb);
    html! {
        section class="card provider" {
            h2 { (layout::name(&provider.display_name)) " " (state(is_configured, is_enabled)) }
            ul class="plain" {
                @if let Some(why) = &provider.why_off { li { (why) } }
                @for one in &provider.credentials {
                    li {
                        "Credential " (layout::name(&one.name))
                        @match one.rests_seconds {
                            0 => " is in use",
                            seconds => { " is cooling down for " (seconds) " s more" }
                        }
                    }
                }
                @match provider.places_ejected {
                    0 => {}
                    count => li { (count) " of its addresses are skipped after repeated failures" }
                }
                @for one in &provider.passed_over {
                    li {
                        "Skipped for " (layout::name(&one.model)) " after repeated failures, probed in "
                        (layout::thousands(one.asked_again_seconds)) " s"
                    }
                }
            }
            (addresses(&provider.places))
            @if !is_enabled { (context.forms.button(&at("enable"), "Switch on", "")) }
            @else if is_configured { (context.forms.button(&at("disable"), "Switch off", "danger")) }
        }
    }
}

/// Renders the addresses of a provider.
fn addresses(places: &[PlaceView]) -> Markup {
    html! {
        @if !places.is_empty() {
            details {
                summary { "Addresses: " (places.len()) }
                ul class="plain" { @for place in places { li {
                    code { (place.address) } " of " (layout::name(&place.origin))
                    @match place.ejected_seconds {
                        0 => {}
                        seconds => { " " span class="pill u" { "Skipped" } " for " (seconds) " s more, after repeated failures" }
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

pub(super) async fn switch(context: &PageContext<'_>, name: &str, verb: &str) -> Result<PageResponse, AdminError> {
    let name = name.to_owned();
    match verb {
        "enable" => context.change(EnableProvider { name }).await?,
        _ => context.change(DisableProvider { name }).await?,
    };
    Ok(PageResponse::redirect("/providers"))
}
