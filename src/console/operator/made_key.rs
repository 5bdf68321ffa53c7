//! The page of a key that has just got its text, which is on no other page.

use maud::html;

use crate::{
    api::{keys::Key, providers::ListModels},
    console::{
        desk::{Desk, below},
        frame::Page,
        new_key,
    },
};

/// The key's text and how to use it.
pub(super) async fn page(desk: &Desk<'_>, key: &Key, title: &str) -> Page {
    // The key is made: whatever cannot be read now, its text is shown.
    let listed = desk.look(ListModels {}).await.unwrap_or_default();
    let content = html! {
        (new_key::section(key, &listed.models, &desk.source.gateway()))
        p class="pages" { a href=(below("/keys", key.id.as_str())) { "The key's page" } " " a href="/keys" { "All keys" } }
    };
    Page {
        title: title.to_owned(),
        content,
    }
}
