//! What a change of the file needs another start for.

use super::*;

#[test]
fn a_setting_is_named_and_not_what_changes_beside_it() {
    let started = "[gateway]\nlisten = \"127.0.0.1:1\"\nkeepalive_seconds = 5\n[log]\nlevel = \"warn\"";
    let after = "[gateway]\nlisten = \"127.0.0.1:2\"\nkeepalive_seconds = 6\nthreads = 3\n[log]\nlevel = \"warn\"";
    assert_eq!(needs_restart(started, after), ["gateway.listen", "gateway.threads"]);
    assert_eq!(needs_restart(started, started), [""; 0]);
    // A default that is spelt out changes nothing, and what is taken out is a change.
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
    assert_eq!(needs_restart(both, &other), ["console.openid.roles.\"g 1\""]);
    let named = needs_restart("", both);
    assert!(
        named.contains(&"console.listen".to_owned()) && named.contains(&"console.openid.issuer".to_owned()),
        "{named:?}"
    );
}

/// Whatever a section of the shipped file has: it is named by a key of that section.
#[test]
fn every_section_that_differs_is_explained_by_settings() {
    let text = uncommented(|_| true)
        .replace("tls = false", "tls = true")
        .replace("mode = \"standalone\"", "mode = \"sentinel\"");
    for named in [needs_restart("", &text), needs_restart(&text, "")] {
        assert!(named.len() > 30, "{named:?}");
        assert!(named.iter().all(|name| name.contains('.')), "{named:?}");
    }
}
