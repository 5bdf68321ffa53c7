//! The page of served models: their providers, protocols, prices and health.

use std::sync::Arc;

use maud::{Markup, html};

use crate::{
    api::{
        error::AdminError,
        providers::{ListModels, ModelView},
    },
    console::{
        desk::{PageContext, below},
        frame::HtmlPage,
        view,
    },
    domain::{
        faults::stability::{Health, StabilityWindow},
        money::price::Price,
        wire::Protocol,
    },
    stability::public::look::label,
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
            th scope="row" { a href=(below("/models", name)) { (view::name(name)) } @if !aliases.is_empty() { small { " also " (view::name(&aliases)) } } }
            td { (label::pill(health)) }
            td { (protocols.join(", ")) }
            td {
                @for provider in &model.providers {
                    div { (view::name(provider)) " " (price(model.prices.get(provider))) }
                }
            }
            td class="figure" { (view::count_or(model.context_tokens, "unknown")) }
        }
    }
}

/// The price of the first tier; `None` if the provider is off.
fn price(price: Option<&Arc<Price>>) -> Markup {
    let tier = price.map(|price| price.tariff().and_then(|tariff| tariff.tiers.first()));
    match tier {
        None => html! { span class="none" { "off" } },
        Some(None) => html! { span class="none" { "free" } },
        Some(Some(tier)) => html! { "$" (tier.input) " / $" (tier.output) },
    }
}
