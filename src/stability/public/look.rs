//! What all of weir's pages share: the document, the icon, and the base style sheet.
//!
//! A page's own style follows `look/base.css`. Nothing is loaded from other sites.

pub(crate) mod label;

use maud::{DOCTYPE, Markup, html};

/// The icon: three rising bars, in a colour that is visible on light and dark tabs.
pub(crate) const ICON: &str = "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Cpath \
     d='M3 15V9M8 15V5M13 15V1' stroke='%231f9d5c' stroke-width='4'/%3E%3C/svg%3E";

/// The width of a character of an axis label, in the chart's own units, in the widest of the usual fonts.
const AXIS_CHARACTER: usize = 7;

/// The `viewBox` of a chart of this size, with `room` for the axis labels. It is widened if the longest label needs more.
pub(crate) fn view_box(labels: impl IntoIterator<Item = String>, room: u32, (width, height): (u32, u32)) -> String {
    let widths = labels.into_iter().map(|label| label.chars().count() * AXIS_CHARACTER);
    let widest = widths.max().and_then(|width| u32::try_from(width).ok()).unwrap_or(0);
    let more = widest.saturating_sub(room);
    format!("{} 0 {} {height}", -i64::from(more), width.saturating_add(more))
}

/// A complete document. `head` contains the page's style.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_is_as_wide_as_its_labels_need() {
        let wide = |labels: &[&str]| view_box(labels.iter().map(ToString::to_string), 52, (332, 150));
        assert_eq!(wide(&[]), "0 0 332 150");
        assert_eq!(wide(&["50.00 %", "100 %"]), "0 0 332 150");
        assert_eq!(wide(&["6000 tok/s", "3000 tok/s"]), "-18 0 350 150");
    }
}
