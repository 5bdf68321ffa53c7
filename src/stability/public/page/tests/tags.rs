//! Just enough of HTML to see whether a document is whole and what it says.

const VOID: [&str; 2] = ["meta", "link"];

/// The pieces of a document: what stands between `<` and `>`, and the text behind it.
fn pieces(page: &str) -> impl Iterator<Item = (&str, &str)> {
    page.split('<').skip(1).map(|piece| {
        let mut quoted = false;
        let end = piece.find(|letter| {
            quoted ^= letter == '"';
            letter == '>' && !quoted
        });
        let end = end.unwrap_or_else(|| panic!("a tag without an end: {piece}"));
        let (tag, text) = piece.split_at(end);
        (tag, text.strip_prefix('>').unwrap())
    })
}

/// Panics unless every element that begins ends, in the right order.
pub(super) fn balanced(page: &str) {
    let mut open = Vec::new();
    for (tag, _) in pieces(page) {
        let name = tag.split([' ', '\n']).next().unwrap();
        if let Some(name) = name.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "in {page}");
        } else if !VOID.contains(&name) && name != "!DOCTYPE" {
            assert!(
                name.bytes().all(|letter| letter.is_ascii_alphanumeric()),
                "<{tag}> in {page}"
            );
            open.push(name);
        }
    }
    assert_eq!(open, [""; 0], "not closed in {page}");
}

/// The text of the document's body, its pieces parted by bars.
pub(super) fn text(page: &str) -> String {
    let body = page.split("<body>").last().unwrap();
    let texts = pieces(body)
        .map(|(_, text)| text.trim())
        .filter(|text| !text.is_empty());
    let text = texts.collect::<Vec<_>>().join(" | ");
    let text = text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"");
    text.replace("&amp;", "&")
}
