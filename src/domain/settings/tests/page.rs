//! Writes the shipped weir.toml from the declarations of the settings: each with its comment, its bounds, and its default or an
//! example.

use crate::domain::settings::section::{DescribedValue, KeyDescription, TableHeader, join};

/// The maximum width of a comment line, in characters.
const WIDTH: usize = 130;
/// The width to which a line is padded before the comment at its end, such as `# no default`, in characters.
const BEFORE_MARK: usize = 53;

/// Returns the text of a file with all settings in `told`. The file begins with `head`. `chapters` contains pairs of a section
/// and the chapter title to write above it.
pub(crate) fn page(head: &str, chapters: &[(&str, &str)], told: &[KeyDescription]) -> String {
    let mut page = ShippedFile {
        text: head.to_owned(),
        chapters,
        explained: Vec::new(),
    };
    page.table("", told, true);
    page.text
}

/// Returns comment lines that list the settings that take effect only at the next start: first single settings by section, then
/// the sections all of whose settings do.
pub(crate) fn at_start(told: &[KeyDescription]) -> String {
    let (mut text, mut whole) = (String::new(), Vec::new());
    for section in told {
        let DescribedValue::Table(_, keys) = &section.line else {
            continue;
        };
        if section.at_start {
            whole.push(section.key.to_owned());
            continue;
        }
        let mut some = Vec::new();
        note_at_start("", keys, &mut some);
        if !some.is_empty() {
            text.push_str(&wrapped(&format!("{}: {}", section.key, some.join(", "))));
        }
    }
    text.push_str(&wrapped(&format!("all of {}", whole.join(", "))));
    text
}

fn note_at_start(at: &str, keys: &[KeyDescription], some: &mut Vec<String>) {
    for told in keys {
        match &told.line {
            DescribedValue::Value { .. } if told.at_start => some.push(join(at, told.key)),
            DescribedValue::Value { .. } => {}
            DescribedValue::Table(_, keys) => note_at_start(&join(at, told.key), keys, some),
        }
    }
}

fn wrapped(text: &str) -> String {
    let (mut lines, mut line) = (String::new(), "#  ".to_owned());
    for word in text.split(' ') {
        if line.chars().count() + 1 + word.chars().count() > WIDTH {
            lines.push_str(&format!("{line}\n"));
            line = "#    ".to_owned();
        }
        line.push_str(&format!(" {word}"));
    }
    lines + &line + "\n"
}

struct ShippedFile<'p> {
    text: String,
    chapters: &'p [(&'p str, &'p str)],
    /// The comments of lists of tables that were written already, each with the header of its table.
    explained: Vec<(&'static [&'static str], String)>,
}

impl ShippedFile<'_> {
    /// Writes the values of a table, then the tables in it. Without `explains`, the comments are left out.
    fn table(&mut self, at: &str, told: &[KeyDescription], explains: bool) {
        for one in told {
            if let DescribedValue::Value {
                bounds,
                value,
                is_default,
                trying_out,
            } = &one.line
            {
                let bounds = bounds.as_ref().map(|bounds| format!("{bounds}."));
                let default = trying_out.as_ref().map(|_| format!("Default: {value}."));
                if explains {
                    self.comment(one.comment, bounds.or(default));
                }
                match trying_out {
                    Some(trying_out) => self.marked(&format!("{} = {trying_out}", one.key), "for trying out"),
                    None if *is_default => self.line(&format!("#{} = {value}", one.key)),
                    None => self.marked(&format!("#{} = {value}", one.key), "no default"),
                }
            }
        }
        for one in told {
            if let DescribedValue::Table(header, keys) = &one.line {
                self.section(&join(at, one.key), one, *header, keys);
            }
        }
    }

    fn section(&mut self, at: &str, told: &KeyDescription, header: TableHeader, keys: &[KeyDescription]) {
        if header == TableHeader::Table && keys.iter().all(|key| matches!(key.line, DescribedValue::Table(..))) {
            // A table that contains only tables needs no header in TOML.
            return self.table(at, keys, true);
        }
        self.line("");
        if let Some((_, chapter)) = self.chapters.iter().find(|(section, _)| *section == at) {
            self.line(&format!("# {} {chapter}", "-".repeat(100)));
        }
        let line = match header {
            TableHeader::Table | TableHeader::Flat => format!("[{at}]"),
            TableHeader::Optional => format!("#[{at}]"),
            TableHeader::Element => format!("#[[{at}]]"),
            TableHeader::Named(example) => format!("#[{at}.{example}]"),
        };
        let before = self.explained.iter().find(|(comment, _)| *comment == told.comment);
        let as_before = before.map(|(_, header)| format!("As {header}."));
        let explains = as_before.is_none();
        match as_before {
            Some(as_before) => self.comment(&[], Some(as_before)),
            None => self.comment(told.comment, None),
        }
        if header == TableHeader::Element {
            self.explained
                .push((told.comment, line.trim_start_matches('#').to_owned()));
        }
        match header {
            TableHeader::Table | TableHeader::Flat => self.line(&line),
            TableHeader::Optional | TableHeader::Element | TableHeader::Named(_) => self.marked(&line, "no default"),
        }
        self.table(at, keys, explains);
    }

    fn comment(&mut self, comment: &[&str], more: Option<String>) {
        let mut lines: Vec<String> = comment.iter().map(|line| format!("#{line}")).collect();
        match (lines.last_mut(), more) {
            (Some(last), Some(more)) if last.chars().count() + 1 + more.chars().count() <= WIDTH => {
                last.push_str(&format!(" {more}"));
            }
            (_, Some(more)) => lines.push(format!("# {more}")),
            (_, None) => {}
        }
        for line in lines {
            self.line(&line);
        }
    }

    fn marked(&mut self, line: &str, mark: &str) {
        self.line(&format!("{line:<BEFORE_MARK$} # {mark}"));
    }

    fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }
}
