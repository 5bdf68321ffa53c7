//! The colours of the style sheet can be read and told from their ground, in both themes (WCAG 2.2, level AA).

use std::collections::BTreeMap;

use super::STYLE;

/// Contrast of text, and of what must be seen but not read.
const TEXT: f64 = 4.5;
const SHAPE: f64 = 3.0;

/// The custom properties of the style sheet's rule of that number for the root, from 1.
fn colours(number: usize) -> BTreeMap<&'static str, &'static str> {
    let rule = STYLE.split(":root {").nth(number).unwrap().split('}').next().unwrap();
    let declarations = rule
        .split(';')
        .filter_map(|declaration| declaration.trim().split_once(": "));
    declarations.filter(|(name, _)| name.starts_with("--")).collect()
}

fn luminance(colour: &str) -> f64 {
    let channel = |at: usize| {
        let value = f64::from(u8::from_str_radix(colour.get(at..at + 2).unwrap(), 16).unwrap()) / 255.0;
        if value <= 0.04045 {
            value / 12.92
        } else {
            ((value + 0.055) / 1.055).powf(2.4)
        }
    };
    assert_eq!(colour.len(), 7, "{colour}: write it as #rrggbb");
    0.2126 * channel(1) + 0.7152 * channel(3) + 0.0722 * channel(5)
}

fn contrast(one: &str, other: &str) -> f64 {
    let (one, other) = (luminance(one), luminance(other));
    (one.max(other) + 0.05) / (one.min(other) + 0.05)
}

#[test]
fn contrast_is_that_of_the_standard() {
    assert!((contrast("#000000", "#ffffff") - 21.0).abs() < 0.001);
    assert!((contrast("#777777", "#ffffff") - 4.478).abs() < 0.001);
}

#[test]
fn every_colour_stands_out_from_its_ground_in_both_themes() {
    let themes = [("light", colours(1)), ("dark", colours(2))];
    let mut pairs = Vec::new();
    for ink in ["--text", "--muted", "--link"] {
        pairs.extend([(ink, "--card", TEXT), (ink, "--page", TEXT)]);
    }
    for (ink, tint, fill) in [
        ("--o-ink", "--o-tint", "--o"),
        ("--h-ink", "--h-tint", "--h"),
        ("--d-ink", "--d-tint", "--d"),
        ("--u-ink", "--u-tint", "--u"),
        ("--n-ink", "--n-tint", "--n"),
    ] {
        pairs.extend([(ink, tint, TEXT), (fill, "--card", SHAPE)]);
    }
    pairs.push(("--chart", "--card", SHAPE));
    let mut complaints = Vec::new();
    for (theme, colours) in themes {
        for (ink, ground, least) in &pairs {
            let found = contrast(colours[ink], colours[ground]);
            if found < *least {
                complaints.push(format!("{theme}: {ink} on {ground} {found:.2}, at least {least}"));
            }
        }
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}
