//! Tests of the memory limits for incomplete request heads.

use super::*;
use crate::config::limits::HeadsConfig;

#[test]
fn heads_have_a_budget_with_room_for_one_in_all_and_per_address() {
    let heads = |text: &str| parse(text).unwrap().heads();
    let limits = |bytes_max, address_bytes_max, head_bytes_max| HeadsConfig {
        bytes_max,
        address_bytes_max,
        head_bytes_max,
    };
    assert_eq!(heads(""), limits(64 << 20, 8 << 20, 4 << 16));
    let least = "[connections]\nhead_budget_bytes = 262144";
    assert_eq!(heads(least), limits(262_144, 262_144, 262_144));
    let both =
        "[connections]\nhead_budget_bytes = 400000\nhead_address_bytes = 300000\n[gateway]\nheader_bytes_max = 75000";
    assert_eq!(heads(both), limits(400_000, 300_000, 300_000));
    for (wrong, said) in [
        (
            "[connections]\nhead_budget_bytes = 262143",
            "weir.toml:2: too small for one head",
        ),
        (
            "[connections]\nhead_address_bytes = 262143",
            "weir.toml:2: too small for one head",
        ),
        (
            "[gateway]\nheader_bytes_max = 75001\n[connections]\nhead_address_bytes = 300003",
            "weir.toml:4: too small for one head: give at least four times header_bytes_max (300004)",
        ),
        (
            "[connections]\nhead_budget_bytes = 300000\n\nhead_address_bytes = 300001",
            "weir.toml:4: larger than the limit for all heads: give at most head_budget_bytes (300000)",
        ),
    ] {
        let error = one_error(wrong);
        let (line, message) = said.split_once(' ').unwrap();
        assert!(error.starts_with(line) && error.contains(message), "{error}");
    }
    let config = parse(least).unwrap();
    let waiting = config.needs_restart(&parse("").unwrap());
    assert_eq!(waiting, ["connections.head_budget_bytes".to_owned()].into());
    let smaller = parse("[gateway]\nheader_bytes_max = 2048").unwrap();
    assert!(smaller.needs_restart(&parse("").unwrap()).is_empty());
}
