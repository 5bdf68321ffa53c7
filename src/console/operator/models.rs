//! The models that are served: by whom, in which protocols, at what price, and how they did.

use maud::{Markup, html};
use serde_json::Value;

use crate::{
    api::error::AdminError,
    console::{
        desk::{Desk, below},
        frame::Page,
        view,
    },
    domain::faults::stability::{Health, Window},
    stability::public::look::label,
};

pub(super) async fn page(desk: &Desk<'_>) -> Result<Page, AdminError> {
    let answer = desk.read("/v1/models").await?;
    let search = desk.query.text("search").to_lowercase();
    let is_wanted = |model: &&Value| {
        let aliases = view::list(model, "aliases").iter().filter_map(Value::as_str);
        let mut names = aliases.chain([view::text(model, "name"), view::text(model, "display_name")]);
        names.any(|name| name.to_lowercase().contains(&search))
    };
    let models: Vec<&Value> = view::list(&answer, "models").iter().filter(is_wanted).collect();
    let window = desk.source.window();
    let content = html! {
        form method="get" action="/models" class="filter" role="search" {
            label { span { "Name or alias" } input type="search" name="search" value=(desk.query.text("search")); }
            button { "Find" }
        }
        @if models.is_empty() {
            p class="card" { "No models" @if search.is_empty() { ": no provider is on" } @else { " like this" } "." }
        } @else { (table(&models, window.as_ref())) }
    };
    Ok(Page {
        title: "Models".to_owned(),
        content,
    })
}

fn table(models: &[&Value], window: Option<&Window>) -> Markup {
    html! {
        p class="lead" { (models.len()) " models. Prices in USD per million tokens, of the first tier; a model's page has all of them." }
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

fn row(model: &Value, window: Option<&Window>) -> Markup {
    let name = view::text(model, "name");
    let found = window.and_then(|window| window.find(name));
    let health = found.map_or(Health::NoData, |model| model.total.health());
    let texts = |field: &str| {
        let texts: Vec<&str> = view::list(model, field).iter().filter_map(Value::as_str).collect();
        texts.join(", ")
    };
    let aliases = texts("aliases");
    html! {
        tr {
            th scope="row" { a href=(below("/models", name)) { (view::name(name)) } @if !aliases.is_empty() { small { " also " (view::name(&aliases)) } } }
            td { (label::pill(health)) }
            td { (texts("protocols")) }
            td {
                @for provider in view::list(model, "providers").iter().filter_map(Value::as_str) {
                    div { (view::name(provider)) " " (price(model.get("prices").and_then(|prices| prices.get(provider)))) }
                }
            }
            td class="figure" { (view::number(model, "context_tokens", "unknown")) }
        }
    }
}

/// The price of the first tier; a provider that is off has none.
fn price(price: Option<&Value>) -> Markup {
    let tier = price.map(|price| view::list(price, "tiers"));
    match tier {
        None => html! { span class="none" { "off" } },
        Some([]) => html! { span class="none" { "free" } },
        Some([tier, ..]) => html! { "$" (view::plain(tier, "input")) " / $" (view::plain(tier, "output")) },
    }
}
