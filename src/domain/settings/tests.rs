//! Tests of `settings`.

pub(crate) mod page;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    time::Duration,
};

use proptest::prelude::*;

use self::page::{at_start, page};
use super::*;
use crate::domain::settings::section::ParsedSettings;

settings! {
    /// A file.
    #[derive(Clone, Debug, PartialEq)]
    struct File {
        /// Its name.
        name: String = text().example("x").stand_in(String::new()),
        /// How much.
        limit: Option<u64> = within(0..=9).optional(4),
        /// How long it waits, and no longer, whatever happens meanwhile: a comment may be as long as a line may be, and bounds go below it.
        wait("wait_ms"): Duration = millis(5, 1..=10).restart(),
        /// What it goes by.
        mode: u8 = one_of("mode", [("one", 1), ("two", 2), ("three", 3)]).or("one").trying_out("two"),
        /// Both together.
        both: Both = flat(),
        /// Names.
        names: Vec<String> = list_of(text()).or(vec!["a", "b"]),
        /// One of them.
        list: Vec<Part> = tables().restart_by(|list| list.is_empty()),
        /// One by its name.
        part: BTreeMap<String, Part> = named("p"),
        /// One that may be left out.
        maybe: Option<Part> = optional_table().restart(),
        /// One that needs a model.
        with: Option<Part> = table_with("model"),
        /// One more.
        more: More = table().restart(),
    } beside {
        /// Not in the file.
        counted: usize,
    } checked by counted
}

settings! {
    /// A pair.
    #[derive(Clone, Debug, PartialEq)]
    struct Both {
        /// The smaller one.
        least: u64 = number(1, 0..=9).restart(),
        /// The larger one.
        most: u64 = number(2, 0..=9),
    } checked by in_order
}

settings! {
    /// A part.
    #[derive(Clone, Debug, PartialEq)]
    struct Part {
        /// Its model.
        model: String = text().example("m"),
        /// Its size.
        size: u32 = number(3, 0..=9),
    }
}

settings! {
    /// More.
    #[derive(Clone, Debug, PartialEq)]
    struct More {
        /// Whether.
        on: bool = flag(true),
    }
}

fn counted(mut read: File, _: &Section<'_>) -> File {
    read.counted = read.list.len();
    read
}

fn in_order(read: Both, from: &Section<'_>) -> Both {
    if read.least > read.most {
        from.report_fault("most", &["least"], "less than least");
    }
    read
}

fn read(text: &str) -> ParsedSettings<File> {
    parse_settings("a.toml", text, Path::new("/etc/weir"))
}

fn fault_texts(text: &str) -> Vec<String> {
    read(text).errors.iter().map(ToString::to_string).collect()
}

#[test]
fn every_unknown_key_wrong_value_and_missing_key_is_told_once_and_the_rest_is_read() {
    let text = "name = 5\nlimit = \"x\"\nlmit = 3\n[[list]]\nsize = -1\n[[list]]\nmodel = \"m\"\nsise = 2\nsize = 7\n[part.p]\nmodel = true\nsize = 1\n";
    assert_eq!(
        fault_texts(text),
        [
            "a.toml:1: key `name`: expected a string, found an integer: quote it",
            "a.toml:2: key `limit`: expected a whole number, found a string",
            "a.toml:3: key `lmit` is unknown, did you mean `limit`?",
            "a.toml:4: key `list.1.model` is missing",
            "a.toml:5: key `list.1.size`: -1 is out of range, give 0 to 9",
            "a.toml:8: key `list.2.sise` is unknown, did you mean `size`?",
            "a.toml:11: key `part.p.model`: expected a string, found a boolean: quote it",
        ]
    );
    let read = read(text);
    let file = read.value.unwrap();
    assert_eq!((file.name.as_str(), file.limit), ("", None));
    assert_eq!((file.list.len(), file.list[0].size, file.counted), (1, 7, 1));
    assert!(file.part.is_empty());
    assert!(read.places.unread.contains("limit") && read.places.unread.contains("name"));
}

#[test]
fn a_file_with_nothing_but_what_it_has_to_has_defaults() {
    let file = read("name = \"x\"").value.unwrap();
    assert_eq!((file.wait, file.mode, file.limit), (Duration::from_millis(5), 1, None));
    assert_eq!((file.both.least, file.both.most, file.names.len()), (1, 2, 2));
    assert_eq!((file.maybe, file.with, file.more.on), (None, None, true));
    assert_eq!(fault_texts("name = \"x\""), [""; 0]);
}

#[test]
fn what_is_missing_under_a_name_like_it_is_told_once() {
    assert_eq!(
        fault_texts("nam = \"x\""),
        ["a.toml:1: key `nam` is unknown, did you mean `name`?"]
    );
    assert_eq!(fault_texts(""), ["a.toml: key `name` is missing"]);
    let far = fault_texts("name = \"x\"\n[more]\nqqqqqqqq = 1");
    assert_eq!(far, ["a.toml:3: key `more.qqqqqqqq` is unknown, valid here: on"]);
}

#[test]
fn what_keys_say_together_is_judged_where_each_of_them_could_be_read() {
    let file = |lines: &str| fault_texts(&format!("name = \"x\"\n{lines}"));
    assert_eq!(file("least = 5"), ["a.toml: key `most`: less than least"]);
    assert_eq!(file("least = 5\nmost = 4"), ["a.toml:3: key `most`: less than least"]);
    for wrong in ["most = \"x\"\nleast = 5", "most = 99\nleast = 5", "mst = 7\nleast = 5"] {
        assert_eq!(file(wrong).len(), 1, "{wrong}: {:?}", file(wrong));
    }
}

#[test]
fn a_table_without_the_key_that_it_needs_is_off_and_still_read() {
    assert_eq!(fault_texts("name = \"x\"\n[with]\nsize = 4"), [""; 0]);
    let wrong = fault_texts("name = \"x\"\n[with]\nsize = 10\nmodl = \"m\"");
    assert_eq!(
        wrong,
        [
            "a.toml:3: key `with.size`: 10 is out of range, give 0 to 9",
            "a.toml:4: key `with.modl` is unknown, did you mean `model`?",
        ]
    );
    let on = read("name = \"x\"\n[with]\nmodel = \"m\"").value.unwrap();
    assert_eq!(on.with.unwrap().size, 3);
}

#[test]
fn no_text_of_the_file_is_repeated() {
    for line in [
        "limit = \"canary\"",
        "mode = \"canary\"",
        "names = [\"a\", 7]",
        "list = \"canary\"",
        "part = [\"canary\"]",
        "more = \"canary\"",
        "wait_ms = canary",
    ] {
        let told = fault_texts(&format!("name = \"x\"\n{line}"));
        assert_eq!(told.len(), 1, "{line}: {told:?}");
        assert!(
            told[0].starts_with("a.toml:2: ") && !told[0].contains("canary"),
            "{told:?}"
        );
    }
    assert_eq!(
        fault_texts("name = \"x\"\nmode = \"canary\""),
        ["a.toml:2: key `mode`: no such mode, give one, two or three"]
    );
}

#[test]
fn what_differs_and_is_read_only_at_the_start_is_named() {
    let differing = |one: &str, other: &str| {
        let [one, other] = [one, other].map(|text| read(&format!("name = \"x\"\n{text}")).value.unwrap());
        let mut keys = BTreeSet::new();
        one.differing(&other, "", false, &mut keys);
        keys.into_iter().collect::<Vec<_>>()
    };
    assert_eq!(differing("wait_ms = 6\nlimit = 1", ""), ["wait_ms"]);
    assert_eq!(differing("wait_ms = 5\nleast = 1", ""), [""; 0]);
    assert_eq!(differing("least = 2\nmost = 3", ""), ["least"]);
    assert_eq!(differing("[more]\non = false", ""), ["more.on"]);
    let [one, other] = ["m", "n"].map(|model| format!("[[list]]\nmodel = \"{model}\""));
    assert_eq!(differing(&one, ""), ["list"]);
    assert_eq!(differing(&one, &other), [""; 0]);
    let [one, other] = ["m", "n"].map(|model| format!("[maybe]\nmodel = \"{model}\""));
    assert_eq!(differing(&one, ""), ["maybe"]);
    assert_eq!(differing(&one, &other), ["maybe.model"]);
}

#[test]
fn a_page_has_comments_bounds_defaults_and_examples() {
    let made = page("# head\n", &[("part", "parts")], &File::describe_keys());
    let marked = |line: &str, mark: &str| format!("{line:<53} # {mark}");
    let expected = [
        "# head",
        "# Its name.",
        &marked("#name = \"x\"", "no default"),
        "# How much. 0 to 9.",
        &marked("#limit = 4", "no default"),
        "# How long it waits, and no longer, whatever happens meanwhile: a comment may be as long as a line may be, and bounds go below it.",
        "# 1 to 10.",
        "#wait_ms = 5",
        "# What it goes by. Default: \"one\".",
        &marked("mode = \"two\"", "for trying out"),
        "# The smaller one. 0 to 9.",
        "#least = 1",
        "# The larger one. 0 to 9.",
        "#most = 2",
        "# Names.",
        "#names = [\"a\", \"b\"]",
        "",
        "# One of them.",
        &marked("#[[list]]", "no default"),
        "# Its model.",
        &marked("#model = \"m\"", "no default"),
        "# Its size. 0 to 9.",
        "#size = 3",
        "",
    ];
    let lines: Vec<&str> = made.lines().take(expected.len()).collect();
    assert_eq!(lines, expected);
    assert!(made.contains("-- parts\n# One by its name.\n#[part.p] "), "{made}");
    assert!(
        made.ends_with("\n# One more.\n[more]\n# Whether.\n#on = true\n"),
        "{made}"
    );
    assert_eq!(at_start(&File::describe_keys()), "#   all of maybe, more\n");
}

proptest! {
    /// In whatever order the lines of a table stand, the same is read, and the same is told of each.
    #[test]
    fn the_order_of_keys_does_not_matter(order in Just(vec![
        "name = 5", "limit = 10", "lest = 3", "most = 0", "wait_ms = 7", "mode = \"two\"", "names = [1]", "maybe = { size = 1 }",
    ]).prop_shuffle()) {
        let without_line = |text: &str| {
            let read = read(text);
            let told: BTreeSet<String> = read.errors.iter().map(|error| error.message.clone()).collect();
            (read.value, told)
        };
        let sorted = {
            let mut sorted = order.clone();
            sorted.sort_unstable();
            sorted.join("\n")
        };
        prop_assert_eq!(without_line(&order.join("\n")), without_line(&sorted));
    }
}
