//! Tests of the settings that take effect only at a start.

use super::*;

#[test]
fn a_setting_is_named_and_not_what_changes_beside_it() {
    let started = "[gateway]\nlisten = \"127.0.0.1:1\"\nkeepalive_seconds = 5\n[log]\nlevel = \"warn\"";
    let after = "[gateway]\nlisten = \"127.0.0.1:2\"\nkeepalive_seconds = 6\nthreads = 3\n[log]\nlevel = \"warn\"";
    assert_eq!(needs_restart(started, after), ["gateway.listen", "gateway.threads"]);
    assert_eq!(needs_restart(started, started), [""; 0]);
    // Writing out a default is not a change. Removing a setting that differs from its default is a change.
    let spelt_out = format!("{started}\naccess_queue_lines = 65536");
    assert_eq!(needs_restart(started, &spelt_out), [""; 0]);
    let taken_out = started.replace("level = \"warn\"", "access_queue_lines = 65536");
    assert_eq!(needs_restart(started, &taken_out), ["log.level"]);
}

#[test]
fn settings_that_change_together_only_are_named_too() {
    let started = "[store]\nengine = \"embedded\"";
    let after = "[store]\nengine = \"redis\"\n[store.redis]\nmode = \"sentinel\"\nmaster_name = \"main\"";
    let named = needs_restart(started, after);
    assert!(named.contains(&"store.engine".to_owned()), "{named:?}");
    let both = "[console]\nlisten = \"127.0.0.1:1\"\n[console.openid]\nissuer = \"https://a\"\nclient_id = \"c\"\nroles = { \"g 1\" = \"owner\" }";
    let other = both.replace("owner", "viewer");
    assert_eq!(needs_restart(both, &other), ["console.openid.roles"]);
    let named = needs_restart("", both);
    assert!(
        named.contains(&"console.listen".to_owned()) && named.contains(&"console.openid".to_owned()),
        "{named:?}"
    );
}

/// Compares the defaults with the examples of the shipped file that differ from them.
#[test]
fn every_section_names_its_settings_whichever_way_they_change() {
    let text = all_at_work();
    let named = needs_restart("", &text);
    assert_eq!(named, needs_restart(&text, ""));
    assert!(named.iter().all(|name| name.contains('.')), "{named:?}");
    for name in [
        "admin.listen",
        "connections.head_address_bytes",
        "console.tls.certificate",
        "gateway.body_key_bytes",
        "gateway.tls.redirect_listen",
        "journal.path",
        "log.events",
        "notices.url",
        "sign_in.template",
        "store.embedded.path",
        "upstream.ca_file",
    ] {
        assert!(named.contains(&name.to_owned()), "{name}: {named:?}");
    }
}
