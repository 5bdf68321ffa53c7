//! The layout of every page of the console and the portal.

use maud::{Markup, html};

use crate::stability::public::look;

/// The style sheet of both sites, appended to that of all of weir's pages.
pub(super) const STYLE: &str = concat!(
    include_str!("../stability/public/look/base.css"),
    include_str!("console.css")
);

/// A page's title and content, without the layout.
#[derive(Debug)]
pub(super) struct HtmlPage {
    /// Its heading.
    pub(super) title: String,
    /// What is below the heading.
    pub(super) content: Markup,
}

/// The document around a page's content.
#[derive(Debug)]
pub(super) struct Layout<'a> {
    /// The address of the site's style sheet.
    pub(super) style: &'a str,
    /// The name of the site.
    pub(super) site_name: &'a str,
    /// The addresses and names of the pages in the navigation.
    pub(super) pages: &'a [(&'a str, &'a str)],
    /// The address of the current page.
    pub(super) current: &'a str,
    /// Who is signed in, and the button to sign out; empty if nobody is signed in.
    pub(super) who: Markup,
}

impl Layout<'_> {
    /// The whole document.
    pub(super) fn document(&self, page: &HtmlPage) -> Markup {
        let title = format!("{} \u{b7} {}", page.title, self.site_name);
        let style = html! { link rel="stylesheet" href=(self.style); };
        let body = html! {
            a class="skip" href="#content" { "Skip to the content" }
            header class="bar" {
                strong { (self.site_name) }
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
