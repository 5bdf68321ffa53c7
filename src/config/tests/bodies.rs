//! Tests of the limits of request bodies.

use super::{needs_restart, parse};

#[test]
fn each_limit_is_checked_beside_the_others() {
    for (line, key) in [
        ("body_budget_bytes = 1000", "body_budget_bytes"),
        ("body_key_bytes = 33554431", "body_key_bytes"),
        ("body_key_bytes = 1073741825", "body_key_bytes"),
        ("body_address_bytes = 1000", "body_address_bytes"),
        ("body_seconds = 0", "body_seconds"),
        ("json_depth_max = 0", "json_depth_max"),
        ("body_work_key_percent = 101", "body_work_key_percent"),
    ] {
        let errors = parse(&format!("[gateway]\n{line}")).unwrap_err();
        assert_eq!(errors.len(), 1, "{line}: {errors:?}");
        assert_eq!(errors[0].key, Some(format!("gateway.{key}")), "{line}");
    }
}

#[test]
fn one_key_and_one_address_have_a_share_of_the_memory_for_bodies() {
    let shares = |text: &str| {
        let bodies = parse(&format!("[gateway]\n{text}")).unwrap().gateway.bodies;
        (bodies.key_bytes_max(), bodies.address_bytes_max(), bodies.budget_bytes)
    };
    const MIB: u64 = 1 << 20;
    assert_eq!(
        shares("body_budget_bytes = 268435456"),
        (64 * MIB, 128 * MIB, 256 * MIB)
    );
    assert_eq!(shares("body_budget_bytes = 67108864"), (32 * MIB, 32 * MIB, 64 * MIB));
    assert_eq!(shares("body_bytes_max = 1\nbody_budget_bytes = 1"), (1, 1, 1));
    let own = "body_key_bytes = 33554432\nbody_address_bytes = 1073741824";
    assert_eq!(shares(own), (32 * MIB, 1024 * MIB, 1024 * MIB));
    let changed = "[gateway]\nbody_key_bytes = 33554432";
    assert_eq!(needs_restart("", changed), ["gateway.body_key_bytes"]);
}
