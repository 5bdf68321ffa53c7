//! What is around the content of every page of the console and the portal.

use maud::{Markup, html};

use crate::stability::public::look;

/// The style sheet of both doors, behind that of all of weir's pages.
pub(super) const STYLE: &str = concat!(
    include_str!("../stability/public/look/base.css"),
    include_str!("console.css")
);

/// A page without what is around it.
#[derive(Debug)]
pub(super) struct Page {
    /// Its heading.
    pub(super) title: String,
    /// What is below that.
    pub(super) content: Markup,
}

/// What is around a page.
#[derive(Debug)]
pub(super) struct Frame<'a> {
    /// Where the door's style sheet is.
    pub(super) style: &'a str,
    /// The name of the door.
    pub(super) door: &'a str,
    /// The pages that one can go to, with their addresses.
    pub(super) pages: &'a [(&'a str, &'a str)],
    /// The address of the one that is open.
    pub(super) current: &'a str,
    /// Who is signed in, with the way out; empty for nobody.
    pub(super) who: Markup,
}

impl Frame<'_> {
    /// The whole document.
    pub(super) fn document(&self, page: &Page) -> Markup {
        let title = format!("{} \u{b7} {}", page.title, self.door);
        let style = html! { link rel="stylesheet" href=(self.style); };
        let body = html! {
            a class="skip" href="#content" { "Skip to the content" }
            header class="bar" {
                strong { (self.door) }
                @if !self.pages.is_empty() {
                    nav aria-label="Pages" {
                        @for (address, name) in self.pages {
                            a href=(address) aria-current=[(*address == self.current).then_some("page")] { (name) }
                        }
                    }
                }
                div class="who" { (self.who) }
            }
            main id="content" {
                h1 { bdi { (page.title) } }
                (page.content)
            }
        };
        look::document(&title, &style, &body)
    }
}
