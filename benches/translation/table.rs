//! Tables in Markdown, and what stands in their cells.

use crate::row::quantile;

/// A table that grows by rows.
pub(crate) struct Table {
    columns: usize,
    text: String,
}

impl Table {
    /// With these titles; all columns but the first hold numbers.
    pub(crate) fn new(titles: &[&str]) -> Self {
        let mut text = format!("| {} |\n|---|", titles.join(" | "));
        text.push_str(&"---:|".repeat(titles.len() - 1));
        text.push('\n');
        Self {
            columns: titles.len(),
            text,
        }
    }

    /// Adds a row.
    pub(crate) fn row<const COUNT: usize>(&mut self, cells: &[String; COUNT]) {
        assert_eq!(COUNT, self.columns, "a cell for each column");
        self.text.push_str(&format!("| {} |\n", cells.join(" | ")));
    }

    /// Prints all of it.
    pub(crate) fn print(&self) {
        println!("{}", self.text);
    }
}

/// The median of the rounds, with the least and the most.
pub(crate) fn over_rounds(values: &[f64]) -> String {
    let at = |share| number(quantile(values, share).expect("rounds"));
    format!("{} ({}..{})", at(0.5), at(0.0), at(1.0))
}

/// Says whether the median of the rounds is at most `most`.
pub(crate) fn aim(values: &[f64], most: f64) -> String {
    let met = if quantile(values, 0.5).expect("rounds") <= most {
        "met"
    } else {
        "missed"
    };
    format!("{met}: at most {}", number(most))
}

/// With two or three digits that say something.
pub(crate) fn number(value: f64) -> String {
    let decimals = match value.abs() {
        small if small < 10.0 => 2,
        middle if middle < 100.0 => 1,
        _ => 0,
    };
    format!("{value:.decimals$}")
}
