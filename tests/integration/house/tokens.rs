//! Rust text as the words and signs that matter for paths: without comments, literals, and what is compiled for tests
//! alone.
#![expect(
    clippy::indexing_slicing,
    clippy::string_slice,
    reason = "helpers of tests: the offsets come from searches in the same text"
)]

/// A word or sign with its first and its last line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) line: usize,
    pub(super) last: usize,
    pub(super) text: String,
}

impl Token {
    pub(super) fn is_name(&self) -> bool {
        self.text.starts_with(is_name_part)
    }
}

fn is_name_part(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The words and signs of a file; `::` and `=>` are one sign each. A text literal is one empty token.
pub(super) fn tokens(text: &str) -> Vec<Token> {
    let mut found = Vec::new();
    let mut line = 1;
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let (length, kept) = token(rest, first);
        let (taken, behind) = rest.split_at(length);
        if let Some(kept) = kept {
            found.push(Token {
                line,
                last: line + taken.matches('\n').count(),
                text: kept.to_owned(),
            });
        }
        line += taken.matches('\n').count();
        rest = behind;
    }
    found
}

/// The length of what stands first, and what is kept of it.
fn token(rest: &str, first: char) -> (usize, Option<&str>) {
    let until = |end: &str| rest.find(end).map_or(rest.len(), |at| at + end.len());
    if first.is_whitespace() {
        return (first.len_utf8(), None);
    }
    if rest.starts_with("//") {
        return (until("\n"), None);
    }
    if rest.starts_with("/*") {
        return (until("*/"), None);
    }
    if let Some(length) = literal(rest) {
        return (length, Some(""));
    }
    let name = rest.find(|c| !is_name_part(c)).unwrap_or(rest.len());
    let length = match name {
        0 if rest.starts_with("::") || rest.starts_with("=>") => 2,
        0 => first.len_utf8(),
        name => name,
    };
    (length, Some(&rest[..length]))
}

/// The length of the text or character literal that stands first; a lifetime is none.
fn literal(rest: &str) -> Option<usize> {
    let body = rest.strip_prefix('b').unwrap_or(rest);
    if let Some(raw) = body.strip_prefix('r') {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        if raw[hashes..].starts_with('"') {
            let end = format!("\"{}", "#".repeat(hashes));
            let inside = rest.len() - raw.len() + hashes + 1;
            return Some(
                rest[inside..]
                    .find(&end)
                    .map_or(rest.len(), |at| inside + at + end.len()),
            );
        }
    }
    let quote = body.chars().next().filter(|c| ['"', '\''].contains(c))?;
    let start = rest.len() - body.len() + 1;
    if quote == '\'' && !is_character(&rest[start..]) {
        return None;
    }
    let mut escaped = false;
    for (at, c) in rest[start..].char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return Some(start + at + 1),
            _ => {}
        }
    }
    Some(rest.len())
}

/// Whether a character and a closing quote stand behind an opening quote.
fn is_character(inside: &str) -> bool {
    let mut chars = inside.chars();
    chars.next() == Some('\\') || chars.next() == Some('\'')
}

/// Takes out every item below `#[cfg(test)]`; says which modules are declared there.
pub(super) fn without_tests(all: &[Token]) -> (Vec<Token>, Vec<String>) {
    let (mut kept, mut test_modules) = (Vec::new(), Vec::new());
    let mut at = 0;
    while at < all.len() {
        if !starts_with(&all[at..], "# [ cfg ( test ) ]") {
            kept.push(all[at].clone());
            at += 1;
            continue;
        }
        let item = &all[at + 7..];
        let length = item_length(item);
        let declared = item[..length].iter().position(|token| token.text == "mod");
        if let Some(name) = declared.and_then(|at| item.get(at + 1)) {
            test_modules.push(name.text.clone());
        }
        at += 7 + length;
    }
    (kept, test_modules)
}

fn starts_with(tokens: &[Token], wanted: &str) -> bool {
    let mut tokens = tokens.iter();
    wanted
        .split(' ')
        .all(|word| tokens.next().is_some_and(|token| token.text == word))
}

/// The number of tokens up to the `;` of an item, or to the end of its braces; of a field or a parameter, to its comma.
fn item_length(item: &[Token]) -> usize {
    let mut depth = 0_usize;
    for (at, token) in item.iter().enumerate() {
        match token.text.as_str() {
            "{" | "(" | "[" => depth += 1,
            "}" if depth == 1 => return at + 1,
            "}" | ")" | "]" if depth == 0 => return at,
            "}" | ")" | "]" => depth -= 1,
            ";" | "," if depth == 0 => return at + 1,
            _ => {}
        }
    }
    item.len()
}

#[test]
fn comments_literals_and_tests_are_not_read() {
    let words = |text: &str| -> Vec<String> { tokens(text).into_iter().map(|token| token.text).collect() };
    assert_eq!(words("a::b /* c */ // d\ne"), ["a", "::", "b", "e"]);
    assert_eq!(
        words(r##"f("a\"b", r#"c"d"#, b"e", 'x', '\'', b'"') 'a z"##).join(" "),
        "f (  ,  ,  ,  ,  ,  ) ' a z"
    );
    assert_eq!(tokens("a\n\"b\nc\"\nd").last().map(|token| token.line), Some(4));
    let (kept, modules) = without_tests(&tokens(
        "#[cfg(test)]\npub(crate) mod tests;\nuse a;\n#[cfg(test)] mod more { fn f() {} }\nstruct S { #[cfg(test)] x: u8, y: u8 }",
    ));
    assert_eq!(modules, ["tests", "more"]);
    let kept: Vec<&str> = kept.iter().map(|token| token.text.as_str()).collect();
    assert_eq!(kept.join(" "), "use a ; struct S { y : u8 }");
}
