//! The explanation of the figures, which is the same on every page.

use maud::{Markup, html};

use crate::domain::faults::stability::{HIGH_CONFIDENCE_REQUESTS, Health, MEDIUM_CONFIDENCE_REQUESTS};
use crate::stability::public::look::label;

/// The addresses of the JSON of all models and of its description.
pub(super) const SUMMARY: &str = "/web/v1/model-stability/summary";
const OPENAPI: &str = "/web/v1/openapi.json";

/// The section, with links to the JSON. `json` is the address of this page's figures.
pub(super) fn section(json: &str) -> Markup {
    html! {
        section class="method" aria-labelledby="method" {
            h2 id="method" { "How this is measured" }
            div class="columns" {
                div {
                    h3 { "What counts" }
                    p {
                        "Every figure comes from billed requests: those that were forwarded to a provider and did not fail by "
                        "the client\u{2019}s own mistake. Each request has the same weight, so busy hours count more. "
                        "No test requests are made, and the number of requests is not published."
                    }
                    p {
                        "A request succeeded if its final status is 2xx. An answer that the provider broke off counts as a "
                        "failure, even if it began well. A request whose client left before the end is not counted."
                    }
                }
                div {
                    h3 { "Labels" }
                    dl {
                        @for (health, condition) in thresholds() {
                            dt { (label::pill(health)) }
                            dd { (condition) }
                        }
                    }
                }
                div {
                    h3 { "Confidence" }
                    p {
                        "High with at least " (HIGH_CONFIDENCE_REQUESTS) " requests, medium with at least " (MEDIUM_CONFIDENCE_REQUESTS)
                        ", otherwise low. With low confidence there is no label."
                    }
                    h3 { "The same as JSON" }
                    ul {
                        @if json != SUMMARY { li { a href=(json) { "This model, hour by hour" } } }
                        li { a href=(SUMMARY) { "All models" } }
                        li { a href=(OPENAPI) { "Description (OpenAPI)" } }
                    }
                }
            }
        }
    }
}

const fn thresholds() -> [(Health, &'static str); 6] {
    [
        (Health::Operational, "99.9 % or more succeeded"),
        (Health::Healthy, "99 % or more"),
        (Health::Degraded, "95 % or more"),
        (Health::Unstable, "less than 95 %"),
        (Health::NotEnoughData, "too few requests"),
        (Health::NoData, "no requests"),
    ]
}
