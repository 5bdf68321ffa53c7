//! Tests of invalid values and of the errors that name their settings.

use super::*;

fn each_is_refused(cases: &[(&str, &str)]) {
    for (text, key) in cases {
        let errors = parse(text).unwrap_err();
        assert_eq!(errors.len(), 1, "{text}: {errors:?}");
        assert_eq!(errors[0].key.as_deref(), Some(*key), "{text}");
    }
}

#[test]
fn values_of_clients_and_the_store_are_checked_key_by_key() {
    each_is_refused(&[
        ("[gateway]\nkey_prefix = \"We-ir\"", "gateway.key_prefix"),
        ("[gateway]\nbody_budget_bytes = 1000", "gateway.body_budget_bytes"),
        ("[gateway]\nbody_key_bytes = 33554431", "gateway.body_key_bytes"),
        ("[gateway]\nbody_key_bytes = 1073741825", "gateway.body_key_bytes"),
        ("[gateway]\nbody_address_bytes = 1000", "gateway.body_address_bytes"),
        ("[gateway]\nbody_seconds = 0", "gateway.body_seconds"),
        (
            "[gateway]\nbody_work_key_percent = 101",
            "gateway.body_work_key_percent",
        ),
        ("[gateway]\nheader_count_max = 257", "gateway.header_count_max"),
        ("gateway.json_depth_max = 0", "gateway.json_depth_max"),
        ("gateway.references_max = 0", "gateway.references_max"),
        ("[store]\nengine = \"sqlite\"", "store.engine"),
        ("[store.embedded]\npath = \"\"", "store.embedded.path"),
        ("[store.redis]\nnodes = []", "store.redis.nodes"),
        ("[store.redis]\nnodes = [\"a:1\", \"b:1\"]", "store.redis.nodes"),
        ("[store.redis]\nnodes = [\"redis\"]", "store.redis.nodes"),
        ("[store.redis]\nnodes = [\"re dis:1\"]", "store.redis.nodes"),
        ("[store.redis]\nnodes = [\"::1:6379\"]", "store.redis.nodes"),
        ("[store.redis]\nnodes = [\"redis:0\"]", "store.redis.nodes"),
        ("[store.redis]\nnamespace = \"a{b}\"", "store.redis.namespace"),
        ("[store.redis]\nusername = \"\"", "store.redis.username"),
        ("[store.redis]\nca_file = \"x.pem\"", "store.redis.ca_file"),
        ("[store.redis]\nmode = \"both\"", "store.redis.mode"),
        ("[store.redis]\nmode = \"sentinel\"", "store.redis.master_name"),
        ("[store.redis]\nmaster_name = \"m\"", "store.redis.master_name"),
        (
            "[store.redis]\nmode = \"cluster\"\nsentinel_username = \"u\"",
            "store.redis.sentinel_username",
        ),
        (
            "[store.redis]\nmode = \"cluster\"\ndatabase = 1",
            "store.redis.database",
        ),
        ("[store.redis]\nmode = \"cluster\"\nnodes = []", "store.redis.nodes"),
        ("[key_cache]\nentries_max = 0", "key_cache.entries_max"),
        ("[own_usage]\nper_minute = 0", "own_usage.per_minute"),
        ("[own_usage]\nburst = 1000001", "own_usage.burst"),
        ("[own_usage]\naddresses_max = 0", "own_usage.addresses_max"),
        ("[notices]\nquota_percent = [80, 81]", "notices.quota_percent"),
        ("[notices]\nurl = \"https://a.example/x\"", "notices.url"),
        ("[notices]\nurl = \"/x\"\nsecret = \"env:A\"", "notices.url"),
        (
            "[notices]\nurl = \"https://u:p@a.example\"\nsecret = \"env:A\"",
            "notices.url",
        ),
        ("[notices]\nsecret = \"env:A\"", "notices.secret"),
        ("[notices]\ntimeout_ms = 10000", "notices.retry_ms"),
        ("[key_cache.unknown]\nentries_max = 0", "key_cache.unknown.entries_max"),
        ("[key_cache.unknown]\nper_minute = 0", "key_cache.unknown.per_minute"),
        ("[key_cache.unknown]\nburst = 1000001", "key_cache.unknown.burst"),
        (
            "[key_cache.unknown]\naddresses_max = 0",
            "key_cache.unknown.addresses_max",
        ),
        (
            "[key_cache.unknown]\ntotal_per_minute = 10000001",
            "key_cache.unknown.total_per_minute",
        ),
        ("[key_cache.unknown]\ntotal_burst = 0", "key_cache.unknown.total_burst"),
    ]);
}

#[test]
fn values_of_what_is_beside_are_checked_key_by_key() {
    each_is_refused(&[
        ("[ops]\nlisten = \"127.0.0.1:8080\"", "ops.listen"),
        ("[stability]\nlisten = \"127.0.0.1:9464\"", "stability.listen"),
        ("[stability]\nlisten = \"127.0.0.1:8080\"", "stability.listen"),
        ("[stability]\nlisten = \"here\"", "stability.listen"),
        ("[console]\nlisten = \"127.0.0.1:8080\"", "console.listen"),
        ("[console]\nlisten = \"0.0.0.0:8082\"", "console.listen"),
        ("[console]\nurl = \"https://console.example/x\"", "console.url"),
        ("[console]\ngateway_url = \"api.example\"", "console.gateway_url"),
        ("[console]\nurl = \"https://me@console.example\"", "console.url"),
        (
            "[console]\nprometheus_url = \"127.0.0.1:9090\"",
            "console.prometheus_url",
        ),
        (
            "[console]\nprometheus_url = \"http://u:p@prometheus.example\"",
            "console.prometheus_url",
        ),
        (
            "[console]\nprometheus_url = \"http://prometheus.example/?a=b\"",
            "console.prometheus_url",
        ),
        ("[stability]\nrefresh_seconds = 0", "stability.refresh_seconds"),
        ("[stability]\nrequests_per_minute = 0", "stability.requests_per_minute"),
        ("[stability]\nburst = 1000001", "stability.burst"),
        ("[stability]\naddresses_max = 0", "stability.addresses_max"),
        (
            "[stability]\ntrusted_proxies = [\"10.0.0.0/33\"]",
            "stability.trusted_proxies",
        ),
        ("[sign_in]\naccess_seconds = 59", "sign_in.access_seconds"),
        ("[sign_in]\ndays = 366", "sign_in.days"),
        ("[sign_in]\ncodes_max = 0", "sign_in.codes_max"),
        (
            "[sign_in]\nenabled = true\n[console]\nportal = false",
            "sign_in.enabled",
        ),
        ("[log]\nlevel = \"loud\"", "log.level"),
        ("[provider.x]\nbase_url = \"ftp://x\"", "provider.x.base_url"),
        ("[provider.x]\nbase_url = \"http://x/v1\"", "provider.x.base_url"),
        ("[provider.x]\nbase_url = \"http://user@x\"", "provider.x.base_url"),
    ]);
    let long = format!("[admin]\nsocket = \"/{}\"", "x".repeat(107));
    assert!(one_error(&long).contains("at most 107"));
    assert!(parse(&format!("[admin]\nsocket = \"/{}\"", "x".repeat(106))).is_ok());
}
