//! The console's page of the models that are served: their providers, protocols, prices and health.

use std::sync::Arc;

use maud::{Markup, html};

use crate::{
    api::{
        AdminError,
        node::{BackendView, DisableProvider, EnableProvider, ListModels, ListProviders, ModelView, ProviderView},
    },
    console::{
        PageContext, below,
        layout::{self, HtmlPage, PageResponse},
        request::to_query,
    },
    domain::{
        faults::stability::{Health, StabilityWindow},
        money::price::{Price, Tier, TokenPrice},
        wire::Protocol,
    },
    stability::public::page,
};

pub(super) async fn list(context: &PageContext<'_>) -> Result<HtmlPage, AdminError> {
    let listed = context.fetch(ListModels {}).await?;
    let search = context.query.text("search").to_lowercase();
    let is_wanted = |model: &&ModelView| {
        let mut names = model.aliases.iter().chain([&model.name, &model.display_name]);
        names.any(|name| name.to_lowercase().contains(&search))
    };
    let models: Vec<&ModelView> = listed.models.iter().filter(is_wanted).collect();
    let window = context.source.window();
    let content = html! {
        form method="get" action="/models" class="filter" role="search" {
            label { span { "Name or alias" } input type="search" name="search" value=(context.query.text("search")); }
            button { "Find" }
        }
        @if models.is_empty() {
            p class="card" { "No models" @if search.is_empty() { ": no provider is enabled" } @else { " like this" } "." }
        } @else { (table(&models, window.as_ref())) }
    };
    Ok(HtmlPage {
        title: "Models".to_owned(),
        content,
    })
}

fn table(models: &[&ModelView], window: Option<&StabilityWindow>) -> Markup {
    html! {
        p class="lead" { (models.len()) " models. Prices in USD per million tokens, of the first tier; a model's page shows all its prices." }
        div class="scroll" tabindex="0" role="region" aria-label="Models" {
            table class="list" {
                thead { tr {
                    th scope="col" { "Model" } th scope="col" { "Health" } th scope="col" { "Protocols" }
                    th scope="col" { "Providers in order: input / output" } th scope="col" class="figure" { "Context" }
                } }
                tbody { @for model in models { (row(model, window)) } }
            }
        }
    }
}

fn row(model: &ModelView, window: Option<&StabilityWindow>) -> Markup {
    let name = model.name.as_str();
    let found = window.and_then(|window| window.find(name));
    let health = found.map_or(Health::NoData, |model| model.total.health());
    let aliases = model.aliases.join(", ");
    let protocols: Vec<&str> = model.protocols.iter().copied().map(Protocol::as_str).collect();
    html! {
        tr {
            th scope="row" { a href=(below("/models", name)) { (layout::name(name)) } @if !aliases.is_empty() { small { " also " (layout::name(&aliases)) } } }
            td { (page::pill(health)) }
            td { (protocols.join(", ")) }
            td {
                @for provider in &model.providers {
                    div { (layout::name(provider)) " " (price(model.prices.get(provider))) }
                }
            }
            td class="figure" { (layout::count_or(model.context_tokens, "unknown")) }
        }
    }
}

/// Renders the first tier of a price. `None` means that the provider is off.
fn price(price: Option<&Arc<Price>>) -> Markup {
    let tier = price.map(|price| price.tariff().and_then(|tariff| tariff.tiers.first()));
    match tier {
        None => html! { span class="none" { "off" } },
        Some(None) => html! { span class="none" { "free" } },
        Some(Some(tier)) => html! { "$" (tier.input) " / $" (tier.output) },
    }
}

pub(super) async fn model_page(context: &PageContext<'_>, name: &str) -> Result<HtmlPage, AdminError> {
    let listed = context.fetch(ListModels {}).await?;
    let mut models = listed.models.iter();
    let model = models
        .find(|model| model.name == name)
        .ok_or_else(|| AdminError::not_found("No enabled provider serves a model of this name."))?;
    let window = context.source.window();
    let found = window.as_ref().and_then(|window| window.find(name));
    let health = found.map_or(Health::NoData, |model| model.total.health());
    let of_model = to_query(&[("model", name)]);
    let content = html! {
        p class="state" { (page::pill(health)) " " (layout::name(&model.display_name)) }
        p class="pages" { a href={ "/usage" (of_model) } { "Its use" } " " a href={ "/log" (of_model) } { "Its log" } }
        dl class="facts" {
            dt { "Aliases" } dd { (names(model.aliases.iter().map(String::as_str))) }
            dt { "Protocols" } dd { (names(model.protocols.iter().copied().map(Protocol::as_str))) }
            dt { "Context" } dd { (layout::count_or(model.context_tokens, "unknown")) }
        }
        @for provider in &model.providers {
            section class="card" {
                h2 { (layout::name(provider)) }
                @match model.prices.get(provider) {
                    None => p class="none" { "Off" },
                    Some(price) => { (all_prices(provider, price)) },
                }
            }
        }
    };
    Ok(HtmlPage {
        title: name.to_owned(),
        content,
    })
}

fn names<'a>(list: impl ExactSizeIterator<Item = &'a str>) -> Markup {
    html! {
        @if list.len() == 0 { span class="none" { "none" } }
        @for (place, one) in list.enumerate() { @if place > 0 { ", " } (layout::name(one)) }
    }
}

/// Renders all nonzero prices of a model, in USD per million tokens and per call.
fn all_prices(provider: &str, price: &Price) -> Markup {
    let Some(tariff) = price.tariff() else {
        return html! { p { "Free" } };
    };
    let (factors, per_call) = (&tariff.multipliers, &tariff.per_call);
    let factors = [
        ("service tier", &factors.service_tier),
        ("speed", &factors.speed),
        ("geo", &factors.geo),
    ];
    let calls = [
        ("web search", per_call.web_search),
        ("web fetch", per_call.web_fetch),
        ("file search", per_call.file_search),
        ("code interpreter", per_call.code_interpreter),
        ("image generation", per_call.image_generation),
        ("request", per_call.request),
    ];
    let special = [("Reasoning", tariff.reasoning), ("Input by tools", tariff.tool_input)];
    html! {
        p class="none" { "USD per million tokens" }
        (tiers(&format!("Prices of {provider}"), &tariff.tiers))
        ul class="plain" {
            @for (name, price) in special { @if let Some(price) = price { li { (name) ": $" (price) } } }
            @for (call, usd) in calls { @if usd.pico_usd() > 0 { li { "Each " (call) ": $" (usd) } } }
            @for (of, factors) in factors {
                @for (name, factor) in factors { li { "Times " (factor) " for " (of) " " (name) } }
            }
        }
        @for (tier, prices) in &tariff.service_tier_prices {
            p { "Service tier " (tier) }
            (tiers(&format!("Prices of {provider}, service tier {tier}"), prices))
        }
        p class="none" { "From " (layout::name(&tariff.source)) ", version " (price.version()) }
    }
}

/// Returns the prices of a tier, each with its name. A price for audio or images also comes with the general price that it
/// replaces.
fn prices(tier: &Tier) -> [(&'static str, TokenPrice, Option<TokenPrice>); 11] {
    let (input, output, read) = (tier.input, tier.output, tier.cache_read);
    [
        ("Input", input, None),
        ("Output", output, None),
        ("Cache read", read, None),
        ("Cache write", tier.cache_write_short, None),
        ("Cache write, long", tier.cache_write_long, None),
        ("Input, audio", tier.input_audio, Some(input)),
        ("Input, images", tier.input_image, Some(input)),
        ("Cache read, audio", tier.cache_read_audio, Some(read)),
        ("Cache read, images", tier.cache_read_image, Some(read)),
        ("Output, audio", tier.output_audio, Some(output)),
        ("Output, images", tier.output_image, Some(output)),
    ]
}

/// Renders a table of prices by prompt size, with the accessible name `called`. A price of audio or images is only rendered if it
/// differs from the price that it replaces.
fn tiers(called: &str, tiers: &[Tier]) -> Markup {
    let of_tiers: Vec<_> = tiers.iter().map(prices).collect();
    let is_own = |place: usize| {
        let mut prices = of_tiers.iter().filter_map(|prices| prices.get(place));
        prices.any(|(_, price, usual)| Some(*price) != *usual)
    };
    let names = of_tiers.first().into_iter().flatten().enumerate();
    html! {
        div class="scroll" tabindex="0" role="region" aria-label=(called) {
            table class="list" {
                thead { tr {
                    th scope="col" { "Prompt" }
                    @for (place, (name, ..)) in names { @if is_own(place) { th scope="col" class="figure" { (name) } } }
                } }
                tbody { @for (tier, prices) in tiers.iter().zip(&of_tiers) { tr {
                    th scope="row" {
                        @match tier.above_input_tokens {
                            0 => "Any",
                            above => { "Above " (layout::thousands(above)) },
                        }
                    }
                    @for (place, (_, price, _)) in prices.iter().enumerate() {
                        @if is_own(place) { td class="figure" { "$" (price) } }
                    }
                } } }
            }
        }
    }
}

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
                        @match one.cooldown_seconds {
                            0 => " is in use",
                            seconds => { " is cooling down for " (seconds) " s more" }
                        }
                    }
                }
                @match provider.backends_ejected {
                    0 => {}
                    count => li { (count) " of its addresses are skipped after repeated failures" }
                }
                @for one in &provider.open_circuits {
                    li {
                        "Skipped for " (layout::name(&one.model)) " after repeated failures, probed in "
                        (layout::thousands(one.probe_seconds)) " s"
                    }
                }
            }
            (addresses(&provider.backends))
            @if !is_enabled { (context.forms.button(&at("enable"), "Switch on", "")) }
            @else if is_configured { (context.forms.button(&at("disable"), "Switch off", "danger")) }
        }
    }
}

/// Renders the addresses of a provider.
fn addresses(backends: &[BackendView]) -> Markup {
    html! {
        @if !backends.is_empty() {
            details {
                summary { "Addresses: " (backends.len()) }
                ul class="plain" { @for one in backends { li {
                    code { (one.address) } " of " (layout::name(&one.origin))
                    @match one.ejected_seconds {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::money::price::PriceList;

    #[test]
    fn all_prices_of_a_model_are_shown() {
        let list = "version = \"v7\"\n[[price]]\nname = \"m\"\nsource = \"the vendor's page\"\n\
            tiers = [{ input = \"3\", output = \"15\", cache_read = \"0.3\", output_image = \"120\" }, { above_input_tokens = 200000, input = \"6\", output = \"22.5\" }]\n\
            reasoning = \"16\"\nper_call = { web_search = \"0.01\" }\nmultipliers = { speed = { fast = \"2.5\" } }";
        let list = PriceList::read("p.toml", list).unwrap();
        let shown = all_prices("p", list.find("m", "p").unwrap()).into_string();
        assert!(
            !shown.contains("sound") && shown.contains(">Output, images<") && shown.contains(">$120<"),
            "{shown}"
        );
        for part in [
            ">$0.3<",
            "Above 200,000",
            ">$22.5<",
            "Reasoning: $16",
            "Each web search: $0.01",
            "Times 2.5 for speed fast",
            "the vendor's page",
            "version v7",
        ] {
            assert!(shown.contains(part), "{part} in {shown}");
        }
        assert_eq!(shown.matches("Each ").count(), 1, "what costs nothing is left out");
        assert_eq!(all_prices("p", &Price::free()).into_string(), "<p>Free</p>");
    }
}
