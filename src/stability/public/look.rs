//! What all of weir's pages have in common: the document, the icon, and the part of the style sheet with colours and letters.
//!
//! A page's own style comes behind `look/base.css`. Nothing is fetched from elsewhere.

pub(crate) mod label;

use maud::{DOCTYPE, Markup, html};

/// Three bars that grow, in a colour that stands out on light and dark tabs.
pub(crate) const ICON: &str = "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Cpath \
     d='M3 15V9M8 15V5M13 15V1' stroke='%231f9d5c' stroke-width='4'/%3E%3C/svg%3E";

/// A whole document. `head` has the page's style.
pub(crate) fn document(title: &str, head: &Markup, body: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                link rel="icon" href=(ICON);
                (head)
            }
            body { (body) }
        }
    }
}
