//! The shipped file, made of what is declared: each key with its comment, its bounds, and its default or an example.

use super::{
    kind::{Header, KeyDescription, Line},
    section::join,
};

/// The widest line of a comment, in characters.
const WIDTH: usize = 130;
/// How wide a line is, at least, before the blank and the mark behind it, in characters.
const BEFORE_MARK: usize = 53;

/// A file of all these keys: first `head`, then each section, with the chapter that it begins.
pub(crate) fn page(head: &str, chapters: &[(&str, &str)], told: &[KeyDescription]) -> String {
    let mut page = Page {
        text: head.to_owned(),
        chapters,
        explained: Vec::new(),
    };
    page.table("", told, true);
    page.text
}

/// Which keys take effect with the next start only, as lines of a comment: those of some sections, and whole sections.
pub(crate) fn at_start(told: &[KeyDescription]) -> String {
    let (mut text, mut whole) = (String::new(), Vec::new());
    for section in told {
        let Line::Table(_, keys) = &section.line else { continue };
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
            Line::Value { .. } if told.at_start => some.push(join(at, told.key)),
            Line::Value { .. } => {}
            Line::Table(_, keys) => note_at_start(&join(at, told.key), keys, some),
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

struct Page<'p> {
    text: String,
    chapters: &'p [(&'p str, &'p str)],
    /// The lists of tables that were explained, each by its comment, with their headers.
    explained: Vec<(&'static [&'static str], String)>,
}

impl Page<'_> {
    /// The values of a table, then the tables in it. Without `explains`, what they mean has been said elsewhere.
    fn table(&mut self, at: &str, told: &[KeyDescription], explains: bool) {
        for one in told {
            if let Line::Value {
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
            if let Line::Table(header, keys) = &one.line {
                self.section(&join(at, one.key), one, *header, keys);
            }
        }
    }

    fn section(&mut self, at: &str, told: &KeyDescription, header: Header, keys: &[KeyDescription]) {
        if header == Header::Table && keys.iter().all(|key| matches!(key.line, Line::Table(..))) {
            // TOML needs no header, and there is nothing to say.
            return self.table(at, keys, true);
        }
        self.line("");
        if let Some((_, chapter)) = self.chapters.iter().find(|(section, _)| *section == at) {
            self.line(&format!("# {} {chapter}", "-".repeat(100)));
        }
        let line = match header {
            Header::Table | Header::Flat => format!("[{at}]"),
            Header::Optional => format!("#[{at}]"),
            Header::Element => format!("#[[{at}]]"),
            Header::Named(example) => format!("#[{at}.{example}]"),
        };
        let before = self.explained.iter().find(|(comment, _)| *comment == told.comment);
        let as_before = before.map(|(_, header)| format!("As {header}."));
        let explains = as_before.is_none();
        match as_before {
            Some(as_before) => self.comment(&[], Some(as_before)),
            None => self.comment(told.comment, None),
        }
        if header == Header::Element {
            self.explained
                .push((told.comment, line.trim_start_matches('#').to_owned()));
        }
        match header {
            Header::Table | Header::Flat => self.line(&line),
            Header::Optional | Header::Element | Header::Named(_) => self.marked(&line, "no default"),
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
