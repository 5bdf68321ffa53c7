//! Of a file only groups are read that may have what is asked for.

use super::*;
use crate::{
    domain::ledger::ids::Tag,
    sinks::files::{
        group::RowFilter,
        table::{TableReader, TableWriter},
    },
};

/// The first row of each group of [`grouped`] ends so much later than that of the one before.
const APART_MS: i64 = 60_000;

/// A file of four groups that have nothing in common. The rows of the first have no tags, those of the others two each.
fn grouped(folder: &Path) -> TableReader {
    let place = FileName {
        node: node(1),
        day: day_of(BEGIN_MS),
        after: 0,
        upto: 1000,
    };
    let path = folder.join("grouped.parquet");
    let mut out = TableWriter::new(File::create(&path).unwrap(), &place).unwrap();
    for group in 0..4_u16 {
        let rows = (0..10_u16).map(|number| NumberedRow {
            number: u64::from(group * 10 + number),
            row: Row {
                account: format!("account-{group}").into(),
                key_id: key(group),
                model: format!("model-{group}").into(),
                model_asked: format!("alias-{group}").into(),
                status: 200 + group * 100,
                tags: match group {
                    0 => Vec::new(),
                    _ => vec![tag(&format!("team=t{group}")), tag(&format!("team=u{group}"))],
                },
                ..row(u64::from(number), at(group) + i64::from(number))
            },
        });
        out.write_group(&rows.collect::<Vec<_>>()).unwrap();
    }
    out.finish().unwrap();
    TableReader::open(File::open(&path).unwrap().into(), &place.node).unwrap()
}

fn key(group: u16) -> KeyId {
    KeyId::parse(&format!("key_{group:016}")).unwrap()
}

fn tag(text: &str) -> Tag {
    Tag::parse(text).unwrap()
}

fn at(group: u16) -> i64 {
    BEGIN_MS + i64::from(group) * APART_MS
}

/// The groups that may have what a filter takes, and those that have it.
fn opened(table: &TableReader, filter: &LogFilter) -> (Vec<usize>, Vec<usize>) {
    let wanted = RowFilter::for_filter(filter.clone());
    let all = 0..table.group_count();
    let may = all.clone().filter(|group| table.can_match(*group, &wanted));
    let has = |group: &usize| {
        let rows = table.read_group(*group).unwrap().read(usize::MAX).unwrap();
        rows.iter().any(|row| wanted.matches(row))
    };
    (may.collect(), all.filter(has).collect())
}

#[test]
fn groups_that_cannot_have_what_is_asked_for_are_passed_over() {
    let folder = scratch();
    let table = grouped(folder.path());
    let all = LogFilter::between(BEGIN_MS, BEGIN_MS + DAY_MS);
    assert_eq!(opened(&table, &all).0, [0, 1, 2, 3]);
    let text = |text: &str| Some(text.to_owned());
    #[rustfmt::skip]
    let asked: [(&str, LogFilter, &[usize]); 12] = [
        ("an account", LogFilter { account: text("account-2"), ..all.clone() }, &[2]),
        ("a key", LogFilter { key: Some(key(1)), ..all.clone() }, &[1]),
        ("no such key", LogFilter { key: Some(key(7)), ..all.clone() }, &[]),
        ("a model", LogFilter { model: text("model-3"), ..all.clone() }, &[3]),
        ("a model by its alias", LogFilter { model: text("alias-3"), ..all.clone() }, &[3]),
        ("a status", LogFilter { status: Some(300..=300), ..all.clone() }, &[1]),
        ("statuses", LogFilter { status: Some(400..=599), ..all.clone() }, &[2, 3]),
        ("a time", LogFilter::between(at(1), at(2)), &[1]),
        ("a tag", LogFilter { tag: Some(tag("team=t2")), ..all.clone() }, &[2]),
        ("another tag of it", LogFilter { tag: Some(tag("team=u3")), ..all.clone() }, &[3]),
        ("no such tag", LogFilter { tag: Some(tag("team=z")), ..all.clone() }, &[]),
        ("all at once", LogFilter { key: Some(key(1)), tag: Some(tag("team=t1")), status: Some(400..=400), ..all }, &[]),
    ];
    for (what, filter, expected) in asked {
        let (may, has) = opened(&table, &filter);
        assert_eq!(has, expected, "{what}");
        // What is said of a group are bounds: a tag between its least and its greatest may be there.
        match what {
            "a tag" | "another tag of it" => assert!(
                may.len() < 3 && has.iter().all(|group| may.contains(group)),
                "{what}: {may:?}"
            ),
            _ => assert_eq!(may, expected, "{what}"),
        }
    }
}
