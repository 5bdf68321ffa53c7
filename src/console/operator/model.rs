//! One model: who serves it, and everything that its price list says.

use maud::{Markup, html};
use serde_json::Value;

use crate::{
    api::error::AdminError,
    console::{desk::Desk, fields::query, frame::Page, view},
    domain::faults::stability::Health,
    stability::public::look::label,
};

pub(super) async fn page(desk: &Desk<'_>, name: &str) -> Result<Page, AdminError> {
    let answer = desk.read("/v1/models").await?;
    let mut models = view::list(&answer, "models").iter();
    let model = models
        .find(|model| view::text(model, "name") == name)
        .ok_or_else(|| AdminError::not_found("No provider that is on serves a model of this name."))?;
    let window = desk.source.window();
    let found = window.as_ref().and_then(|window| window.find(name));
    let health = found.map_or(Health::NoData, |model| model.total.health());
    let of_model = query(&[("model", name)]);
    let content = html! {
        p class="state" { (label::pill(health)) " " (view::name(view::text(model, "display_name"))) }
        p class="pages" { a href={ "/usage" (of_model) } { "Its use" } " " a href={ "/log" (of_model) } { "Its log" } }
        dl class="facts" {
            dt { "Aliases" } dd { (names(view::list(model, "aliases"))) }
            dt { "Protocols" } dd { (names(view::list(model, "protocols"))) }
            dt { "Context" } dd { (view::number(model, "context_tokens", "unknown")) }
        }
        @for provider in view::list(model, "providers").iter().filter_map(Value::as_str) {
            section class="card" {
                h2 { (view::name(provider)) }
                @match model.get("prices").and_then(|prices| prices.get(provider)) {
                    None => p class="none" { "Off" },
                    Some(price) => { (all_prices(provider, price)) },
                }
            }
        }
    };
    Ok(Page {
        title: name.to_owned(),
        content,
    })
}

fn names(list: &[Value]) -> Markup {
    html! {
        @if list.is_empty() { span class="none" { "none" } }
        @for (place, one) in list.iter().enumerate() { @if place > 0 { ", " } (view::name(one.as_str().unwrap_or_default())) }
    }
}

/// Everything that the price list says of a model, what costs nothing left out. In USD, per million tokens and per call.
fn all_prices(provider: &str, price: &Value) -> Markup {
    if view::list(price, "tiers").is_empty() {
        return html! { p { "Free" } };
    }
    let named = |field: &str| price.get(field).and_then(Value::as_object).into_iter().flatten();
    let factors = named("multipliers").flat_map(|(of, factors)| {
        let factors = factors.as_object().into_iter().flatten();
        factors.map(move |(name, factor)| (of.replace('_', " "), name, factor.as_str().unwrap_or_default()))
    });
    let calls = named("per_call").filter_map(|(call, price)| Some((call.replace('_', " "), price.as_str()?)));
    let special = [("reasoning", "Reasoning"), ("tool_input", "Input by tools")];
    html! {
        p class="none" { "USD per million tokens" }
        (tiers(&format!("Prices of {provider}"), view::list(price, "tiers")))
        ul class="plain" {
            @for (field, name) in special {
                @if !view::plain(price, field).is_empty() { li { (name) ": $" (view::plain(price, field)) } }
            }
            @for (call, usd) in calls.filter(|(_, usd)| *usd != "0") { li { "Each " (call) ": $" (usd) } }
            @for (of, name, factor) in factors { li { "Times " (factor) " for " (of) " " (name) } }
        }
        @for (tier, prices) in named("service_tier_prices") {
            p { "Service tier " (tier) }
            (tiers(&format!("Prices of {provider}, service tier {tier}"), prices.as_array().map(Vec::as_slice).unwrap_or_default()))
        }
        p class="none" { "From " (view::name(view::text(price, "source"))) ", version " (view::text(price, "version")) }
    }
}

/// Prices by the size of the prompt, as they are called to who cannot see them. Those of sound and images where they are not
/// those of what they are a part of.
fn tiers(called: &str, tiers: &[Value]) -> Markup {
    const KINDS: [(&str, &str, &str); 11] = [
        ("input", "Input", ""),
        ("output", "Output", ""),
        ("cache_read", "Cache read", ""),
        ("cache_write_short", "Cache write", ""),
        ("cache_write_long", "Cache write, long", ""),
        ("input_audio", "Input, sound", "input"),
        ("input_image", "Input, images", "input"),
        ("cache_read_audio", "Cache read, sound", "cache_read"),
        ("cache_read_image", "Cache read, images", "cache_read"),
        ("output_audio", "Output, sound", "output"),
        ("output_image", "Output, images", "output"),
    ];
    let is_own = |field: &str, usual: &str| {
        tiers
            .iter()
            .any(|tier| view::plain(tier, field) != view::plain(tier, usual))
    };
    let shown = KINDS
        .iter()
        .filter(|(field, _, usual)| usual.is_empty() || is_own(field, usual));
    html! {
        div class="scroll" tabindex="0" role="region" aria-label=(called) {
            table class="list" {
                thead { tr { th scope="col" { "Prompt" } @for (_, name, _) in shown.clone() { th scope="col" class="figure" { (name) } } } }
                tbody { @for tier in tiers { tr {
                    th scope="row" {
                        @match view::count(tier, "above_input_tokens") {
                            0 => "Any",
                            above => { "Above " (view::thousands(above)) },
                        }
                    }
                    @for (field, ..) in shown.clone() { td class="figure" { "$" (view::plain(tier, field)) } }
                } } }
            }
        }
    }
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
        let price = serde_json::to_value(&**list.find("m", "p").unwrap()).unwrap();
        let shown = all_prices("p", &price).into_string();
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
        assert_eq!(all_prices("p", &Value::Null).into_string(), "<p>Free</p>");
    }
}
