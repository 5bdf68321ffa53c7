//! The page with the text of a new or rotated key. No other page shows it.

use maud::html;

use crate::{
    api::{keys::KeyDetails, providers::ListModels},
    console::{
        desk::{PageContext, below},
        frame::HtmlPage,
        new_key,
    },
};

/// The key's text and how to use it.
pub(super) async fn key_text_page(context: &PageContext<'_>, key: &KeyDetails, title: &str) -> HtmlPage {
    // The key exists now, so its text is shown even if the models cannot be read.
    let listed = context.fetch(ListModels {}).await.unwrap_or_default();
    let content = html! {
        (new_key::section(key, &listed.models, &context.source.gateway()))
        p class="pages" { a href=(below("/keys", key.id.as_str())) { "The key's page" } " " a href="/keys" { "All keys" } }
    };
    HtmlPage {
        title: title.to_owned(),
        content,
    }
}
