//! What the pages of the console show: nothing, odd names, what was asked, and what was changed.

use super::{audited, builder, shown_key, signed_in, with_console};
use crate::harness::request::Wire;
use crate::harness::tab::Tab;
use crate::harness::{RecordingProvider, Weir, wait_for, wait_until};

const PAGES: [&str; 10] = [
    "/",
    "/accounts",
    "/keys",
    "/keys/new",
    "/models",
    "/usage",
    "/log",
    "/providers",
    "/rules",
    "/audit",
];

#[test]
fn pages_are_made_on_a_thread_that_gives_way_to_those_of_requests() {
    let mut weir = with_console();
    assert_eq!(weir.process().niceness("console"), Some(19), "the lowest there is");
}

#[test]
fn every_page_is_there_without_any_data() {
    let weir = with_console();
    let tab = signed_in(&weir, "owner");
    for path in PAGES {
        let page = tab.page(path);
        assert!(
            page.starts_with("<!DOCTYPE html>") && page.contains("</html>"),
            "{page}"
        );
        assert!(page.len() < 100 * 1024, "{path} has {} bytes", page.len());
    }
    assert!(tab.page("/accounts").contains("There are no accounts"));
    assert!(tab.page("/keys").contains("No keys"));
    assert!(tab.page("/keys/new").contains("Create one first."));
    // On a slow machine a search ends before it comes to the first hour, and links to the rest.
    let mut log = tab.page("/log");
    while let Some(further) = super::many::link(&log, "Search further") {
        log = tab.page(&further);
    }
    assert!(log.contains("No rows"), "{log}");
    assert!(tab.page("/usage").contains("Nothing was spent") && tab.page("/usage").contains("There is no usage"));
    assert_eq!(tab.get("/log/export/jsonl").text(), "", "an export of nothing");
    assert_eq!(tab.get("/keys/key_nothing").status, 400);
    assert_eq!(tab.get("/keys/key_0000000000000000").status, 404);
    assert_eq!(tab.get("/accounts/nobody").status, 404);
    assert_eq!(tab.get("/nothing").status, 404);
}

#[test]
fn odd_names_are_text_on_every_page() {
    let weir = with_console();
    weir.fund();
    let mut tab = signed_in(&weir, "owner");
    let markup = "<img src=x onerror=alert(1)>\"'&";
    let (long, turned) = ("n".repeat(128), "\u{202e}\u{5e9}\u{5dc}\u{5d5}\u{5dd} abc");
    for name in [markup, &long, turned] {
        let made = tab.fill(&tab.page("/keys/new"), "/keys", &[("name", name), ("account", "tests")]);
        let page = made.text();
        shown_key(&page);
        assert!(!page.contains("<img"), "{page}");
    }
    let too_long = "n".repeat(200);
    let refused = tab.fill(
        &tab.page("/keys/new"),
        "/keys",
        &[("name", &too_long), ("account", "tests")],
    );
    assert!(refused.status == 400 && refused.text().contains(&too_long));
    let adjust = [("usd", "1"), ("reason", markup)];
    let page = tab.page("/accounts/tests");
    assert_eq!(tab.fill(&page, "/accounts/tests/adjust", &adjust).status, 303);
    let escaped = "&lt;img src=x onerror=alert(1)&gt;&quot;";
    for path in ["/keys", "/audit"] {
        let page = tab.page(path);
        assert!(page.contains(escaped) && !page.contains("<img"), "{path}: {page}");
        assert!(page.contains(&format!("<bdi>{turned}</bdi>")), "{path}");
    }
    for key in weir.cli_json(&["key", "list"]).as_array().unwrap() {
        let page = tab.page(&format!("/keys/{}", key["id"].as_str().unwrap()));
        assert!(!page.contains("<img"));
    }
    for (path, query) in [
        ("/keys", "search"),
        ("/log", "model"),
        ("/models", "search"),
        ("/usage", "model"),
        ("/usage", "account"),
        ("/keys", "account"),
    ] {
        let page = tab.get(&format!("{path}?{query}=%3Cimg%20src%3Dx%3E%22%3E")).text();
        assert!(!page.contains("<img"), "{path}: {page}");
    }
}

/// Rotates the key of a page, whose text is `first`, and ends the overlap: the new text.
fn rotated(tab: &mut Tab, path: &str, first: &str, works: impl Fn(&str) -> bool) -> String {
    let page = tab.page(path);
    assert!(!page.contains("end-overlap"), "{page}");
    let rotated = tab
        .fill(&page, &format!("{path}/rotate"), &[("overlap_seconds", "3600")])
        .text();
    let second = shown_key(&rotated);
    assert!(rotated.contains("The old secret, which ends in") && second != first);
    assert!(works(&second) && works(first), "both work for an hour");
    let page = tab.page(path);
    assert!(page.contains("works until"), "{page}");
    assert_eq!(tab.fill(&page, &format!("{path}/end-overlap"), &[]).status, 303);
    second
}

/// The id of the one key, a laptop's that ends in January 2100.
#[track_caller]
fn found_as_laptop(tab: &Tab) -> String {
    let found = tab.page("/keys?search=LAPT");
    let (_, rest) = found.split_once("href=\"/keys/key_").unwrap();
    let id = format!("key_{}", rest.split('"').next().unwrap());
    for none in ["search=somebody", "expires_before=2100-01-01", "spent_usd=1"] {
        assert!(
            tab.page(&format!("/keys?{none}")).contains("No keys like this"),
            "{none}"
        );
    }
    assert!(tab.page("/keys?expires_before=2100-02-01&spent_usd=0").contains(&id));
    assert!(tab.page("/keys?unused_since=soon").contains("role=\"alert\""));
    id
}

/// No log and no record of changes has one of these texts.
#[track_caller]
fn nowhere_written(weir: &Weir, keys: [&str; 2]) {
    let logs = weir.logs();
    let record = std::fs::read_to_string(weir.folder().join("audit.jsonl")).unwrap();
    for key in keys {
        assert!(!logs.contains(key), "a log holds a key");
        assert!(!record.contains(key), "the audit record holds a key");
    }
}

#[test]
fn a_key_lives_its_life_in_the_console() {
    let provider = RecordingProvider::least();
    let weir = builder(&provider.base_url()).start();
    weir.fund();
    let mut tab = signed_in(&weir, "operator");
    let works = |key: &str| weir.exchange(&Wire::Messages.request(key, "hi")).status == 200;
    let entered = [
        ("name", "laptop"),
        ("account", "tests"),
        ("quota_usd", "5"),
        ("reset", "daily"),
        ("expires_at", "2100-01-31"),
        ("models", Wire::Messages.model()),
        ("rpm", "60"),
        ("on_exhausted", "cut"),
    ];
    let made = tab.fill(&tab.page("/keys/new"), "/keys", &entered).text();
    let first = shown_key(&made);
    assert!(
        made.contains(&format!("http://{}", weir.gateway)),
        "the examples lead to the gateway: {made}"
    );
    assert!(works(&first));
    let id = found_as_laptop(&tab);
    let path = format!("/keys/{id}");
    let page = tab.page(&path);
    for text in [
        "$5",
        "daily",
        "2100-01-31 00:00:00",
        Wire::Messages.model(),
        "60",
        "running answer is cut off",
    ] {
        assert!(page.contains(text), "{text}: {page}");
    }
    assert!(!page.contains(&first), "the key is shown once");

    let was = [
        ("was.name", "laptop"),
        ("was.quota_usd", "5"),
        ("was.reset", "daily"),
        ("was.rpm", "60"),
    ];
    let change = [("name", "desk"), ("quota_usd", ""), ("reset", "none"), ("rpm", "")];
    let change = [&was[..], &change].concat();
    let same = [
        ("models", Wire::Messages.model()),
        ("was.models", Wire::Messages.model()),
    ];
    let changed = tab.fill(&page, &format!("{path}/update"), &[&change[..], &same].concat());
    assert_eq!(changed.status, 303, "{}", changed.text());
    let shown = weir.cli_json(&["key", "show", &id]);
    assert_eq!(
        (&shown["name"], &shown["quota_usd"], &shown["rpm"]),
        (&"desk".into(), &().into(), &().into())
    );
    assert_eq!(shown["models"][0], Wire::Messages.model());

    let second = rotated(&mut tab, &path, &first, works);
    wait_until("the text before the rotation to be refused", || !works(&first));
    let revoked = tab.fill(&tab.page(&path), &format!("{path}/revoke"), &[]);
    assert_eq!(revoked.status, 303);
    wait_until("the revoked key to be refused", || !works(&second));
    assert!(tab.page(&path).contains("Revoked"));
    let deleted = tab.fill(&tab.page(&path), &format!("{path}/delete"), &[]);
    assert_eq!(deleted.header("location"), Some("/keys"));
    assert_eq!(tab.get(&path).status, 404);
    nowhere_written(&weir, [&first, &second]);
}

#[test]
fn accounts_are_made_limited_and_suspended() {
    let weir = with_console();
    let mut tab = signed_in(&weir, "owner");
    let made = tab.fill(
        &tab.page("/accounts"),
        "/accounts",
        &[("id", "team"), ("balance_usd", "10")],
    );
    assert_eq!(made.header("location"), Some("/accounts/team"));
    let form = |verb: &str| format!("/accounts/team/{verb}");
    let page = tab.page("/accounts/team");
    let limits = [
        ("rpm", "30"),
        ("was.rpm", ""),
        ("low_balance_usd", "20"),
        ("was.low_balance_usd", ""),
    ];
    assert_eq!(tab.fill(&page, &form("limits"), &limits).status, 303);
    assert_eq!(
        tab.fill(&page, &form("adjust"), &[("usd", "-1"), ("reason", "typing error")])
            .status,
        303
    );
    assert_eq!(
        tab.fill(&page, &form("adjust"), &[("usd", "-1"), ("reason", "again")])
            .status,
        303,
        "it counts once"
    );
    let fresh = tab.page("/accounts/team");
    let nameless = tab.fill(&fresh, &form("adjust"), &[("usd", "-1"), ("reason", "")]);
    assert_eq!(nameless.status, 400, "an adjustment has a reason: {}", nameless.text());
    assert_eq!(tab.fill(&fresh, &form("suspend"), &[]).status, 303);
    let shown = weir.cli_json(&["account", "show", "--id", "team"]);
    assert_eq!(
        (&shown["balance_usd"], &shown["rpm"], &shown["state"]),
        (&"9.00".into(), &30.into(), &"suspended".into())
    );
    let page = tab.page("/accounts/team");
    assert!(page.contains("Suspended"));
    assert_eq!(tab.fill(&page, &form("resume"), &[]).status, 303);
    let overview = tab.page("/");
    let paid_in = overview.matches("<span class=\"money\">$9.00</span>").count();
    assert!(paid_in >= 3, "so far, today and this month: {overview}");
    assert!(
        overview.contains("the balance is low") && overview.contains("/accounts/team"),
        "{overview}"
    );
    let operations: Vec<String> = audited(&weir)
        .iter()
        .map(|line| line["operation"].as_str().unwrap().to_owned())
        .collect();
    let wanted = [
        "account.create",
        "account.update",
        "account.adjust",
        "account.suspend",
        "account.resume",
    ];
    assert_eq!(operations[1..], wanted);
}

#[test]
fn an_account_that_owes_money_is_not_shown_as_well() {
    let weir = with_console();
    for (id, balance) in [("well", "5"), ("empty", "0"), ("debtor", "1")] {
        weir.cli_json(&["account", "create", "--id", id, "--balance-usd", balance]);
    }
    weir.cli_json(&["account", "adjust", "--id", "debtor", "--usd=-900", "--reason", "fraud"]);
    let tab = signed_in(&weir, "viewer");
    let accounts = tab.page("/accounts");
    for (id, state) in [
        ("well", "<span class=\"pill o\">Active</span>"),
        ("empty", "<span class=\"pill u\">No balance</span>"),
        ("debtor", "<span class=\"pill u\">Overdrawn</span>"),
    ] {
        let (_, row) = accounts.split_once(&format!("href=\"/accounts/{id}\"")).unwrap();
        let row = row.split("</tr>").next().unwrap();
        assert!(row.contains(state), "{id}: {row}");
        assert!(tab.page(&format!("/accounts/{id}")).contains(state), "{id}");
    }
    let overview = tab.page("/");
    let (_, attention) = overview.split_once("Needs attention").unwrap();
    let attention = attention.split("</section>").next().unwrap();
    assert!(!attention.contains("Nothing now"), "{attention}");
    let told: Vec<&str> = attention
        .split("<li>")
        .filter(|line| line.contains("/accounts/"))
        .collect();
    assert_eq!(told.len(), 2, "{attention}");
    assert!(
        told[0].contains("debtor") && told[0].contains("overdrawn") && told[0].contains("\u{2212}$899.00"),
        "the worst comes first: {told:?}"
    );
    assert!(
        told[1].contains("empty") && told[1].contains("nothing is left of the balance"),
        "{told:?}"
    );
    // The credit that makes it good again is seen at once.
    for (id, usd) in [("debtor", "900"), ("empty", "1")] {
        weir.cli_json(&["account", "credit", "--id", id, "--usd", usd]);
    }
    let overview = tab.page("/");
    assert!(!overview.contains("/accounts/"), "{overview}");
}

#[test]
fn names_of_accounts_and_keys_can_be_seen_and_addressed() {
    let weir = with_console();
    weir.fund();
    let mut tab = signed_in(&weir, "owner");
    for id in [".", "..", "-x"] {
        let page = tab.page("/accounts");
        let refused = tab.fill(&page, "/accounts", &[("id", id), ("balance_usd", "1")]);
        assert!(
            refused.status == 400 && refused.text().contains("neither `.` nor `-`"),
            "{id}: {}",
            refused.text()
        );
        let said = weir.cli(&["account", "create", &format!("--id={id}")], &[]);
        let error = String::from_utf8_lossy(&said.stderr).into_owned();
        assert!(
            !said.status.success() && error.contains("neither `.` nor `-`"),
            "{id}: {error}"
        );
    }
    for name in [" ", "\u{3000}", "\u{200b}\u{feff}"] {
        let page = tab.page("/keys/new");
        let refused = tab.fill(&page, "/keys", &[("name", name), ("account", "tests")]);
        assert_eq!(refused.status, 400, "{name:?}: {}", refused.text());
        let said = weir.cli(&["key", "create", "--account", "tests", "--name", name], &[]);
        let error = String::from_utf8_lossy(&said.stderr).into_owned();
        assert!(
            !said.status.success() && error.contains("'--name <NAME>': give 1 to 128 characters, one of them visible"),
            "{name:?}: {error}"
        );
    }
    let made = audited(&weir);
    let made: Vec<&str> = made.iter().map(|line| line["operation"].as_str().unwrap()).collect();
    assert_eq!(made, ["account.create", "console.open"], "nothing else was made");
}

#[test]
fn all_of_the_use_by_tag_counts_each_request_once() {
    let provider = RecordingProvider::least();
    let weir = builder(&provider.base_url()).start();
    let key = weir.key();
    let tab = signed_in(&weir, "viewer");
    let request = Wire::Messages.request(&key.text, "hi");
    assert_eq!(
        weir.exchange(&request.header("x-weir-tag", "team=a, project=b")).status,
        200
    );
    let cost_of = |by: &str| {
        let page = tab.page(&format!("/usage?account=tests&by={by}"));
        let (_, row) = page.split_once("<th scope=\"row\">All</th>")?;
        Some(row.split("</tr>").next().unwrap().to_owned())
    };
    let by_day = wait_for("the sums", || cost_of("day"));
    assert_eq!(cost_of("tag").unwrap(), by_day, "both tags have the one request");
    let page = tab.page("/usage?account=tests&by=tag");
    assert!(page.contains("team=a") && page.contains("project=b"), "{page}");
    assert!(
        page.contains("A request counts for each of its tags, and once in All."),
        "{page}"
    );
    let told = weir.cli(&["usage", "--account", "tests", "--by", "tag"], &[]);
    let told = String::from_utf8(told.stdout).unwrap();
    let total = told.lines().last().unwrap();
    let requests: Vec<&str> = total.split_whitespace().take(2).collect();
    assert_eq!(requests, ["total", "1"], "{told}");
}

#[test]
fn nobody_reads_how_a_query_was_parsed() {
    let weir = with_console();
    let tab = signed_in(&weir, "viewer");
    for (path, said) in [
        ("/audit?before=soon", "before: `soon` is not a whole number"),
        ("/log?hours=soon", "hours: `soon` is not a whole number"),
        ("/log?hours=-1", "hours: `-1` is not a whole number"),
        ("/log/export/csv?hours=soon", "hours: `soon` is not a whole number"),
    ] {
        let answer = tab.get(path);
        let page = answer.text();
        assert!(page.contains(said), "{path}: {page}");
        for word in ["deserialize", "invalid digit", "expected one of"] {
            assert!(!page.contains(word), "{path}: {page}");
        }
    }
}

#[test]
fn models_providers_log_and_rules_tell_what_the_command_line_tells() {
    let provider = RecordingProvider::answering(
        r#"{"id":"msg_1","type":"message","role":"assistant","content":[{"type":"text","text":"hi"}],"usage":{"input_tokens":1234,"output_tokens":56}}"#,
    );
    let weir = builder(&provider.base_url()).start();
    let key = weir.key();
    let mut tab = signed_in(&weir, "owner");
    assert_eq!(weir.exchange(&Wire::Messages.request(&key.text, "hi")).status, 200);
    wait_until("the row", || tab.page("/log").contains("1,234"));
    let log = tab.page(&format!(
        "/log?account=tests&key={}&model={}",
        key.id,
        Wire::Messages.model()
    ));
    assert!(
        log.contains("1,234") && log.contains("56") && log.contains("reported"),
        "{log}"
    );
    its_lines_are_told(&weir, &log);
    assert!(
        tab.page("/log?model=nothing-like-it")
            .contains("that model does not exist")
    );
    assert!(tab.page("/log?from=yesterday").contains("role=\"alert\""));
    what_was_used_is_told(&weir, &tab, &key.id);
    let models = tab.page("/models?search=sonnet");
    assert!(
        models.contains(Wire::Messages.model()) && models.contains("anthropic"),
        "{models}"
    );

    let model = tab.page(&format!("/models/{}", Wire::Messages.model()));
    assert!(model.contains("Cache read") && model.contains("version "), "{model}");
    assert_eq!(tab.get("/models/nothing-like-it").status, 404);

    let providers = tab.page("/providers");
    let address = provider.base_url();
    let address = address.trim_start_matches("http://").trim_end_matches('/');
    assert!(
        providers.contains(&format!("<code>{address}</code>")),
        "{address}: {providers}"
    );
    assert_eq!(tab.fill(&providers, "/providers/openai/disable", &[]).status, 303);
    let providers = tab.page("/providers");
    assert!(providers.contains("Switched off") && providers.contains("action=\"/providers/openai/enable\""));
    assert!(tab.page("/").contains("switched off"), "it needs attention");
    let listed = weir.cli_json(&["provider", "list"]);
    let openai = listed
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["name"] == "openai")
        .unwrap();
    assert_eq!(openai["enabled"], false);
}

#[test]
fn the_rules_page_takes_what_the_command_line_takes() {
    let weir = with_console();
    let mut tab = signed_in(&weir, "viewer");
    let body = String::from_utf8(Wire::Messages.request("k", "hi").body).unwrap();
    let explained = tab.fill(
        &tab.page("/rules"),
        "/rules",
        &[
            ("provider", "anthropic"),
            ("request", &body),
            ("asked_for", "messages"),
            ("headers", "Anthropic-Beta: one\r\n\r\nx-other: 2"),
            ("query", "?beta=true"),
        ],
    );
    assert!(
        explained.status == 200 && explained.text().contains("messages for model"),
        "{}",
        explained.text()
    );
    assert!(
        explained.text().contains("anthropic-beta: one") && explained.text().contains("beta=true"),
        "{}",
        explained.text()
    );
    for (field, value) in [("headers", "no header"), ("asked_for", "other")] {
        let form = [("provider", "anthropic"), ("request", &*body), (field, value)];
        let refused = tab.fill(&tab.page("/rules"), "/rules", &form);
        assert!(
            refused.status == 400 && refused.text().contains(value),
            "{}",
            refused.text()
        );
    }
    let refused = tab.fill(
        &tab.page("/rules"),
        "/rules",
        &[("provider", "anthropic"), ("request", "<no json>")],
    );
    assert!(
        refused.status == 400 && refused.text().contains("&lt;no json&gt;"),
        "{}",
        refused.text()
    );
}

/// The one row of a page of the log says what its charge comes from.
#[track_caller]
fn its_lines_are_told(weir: &Weir, log: &str) {
    for line in ["Fee of", "prices that are no longer in force"] {
        assert!(!log.contains(line), "{line}: {log}");
    }
    let cost = weir.cli_json(&["usage", "--account", "tests"]);
    let cost = format!("${}", cost["cost_usd"].as_str().unwrap());
    assert!(
        log.contains(" / 1M tokens") && log.contains("The sum, rounded up to a nano-dollar"),
        "{log}"
    );
    assert!(log.contains(&cost), "{cost}: {log}");
}

/// The one row of a key, on the pages that sum it up and as a file.
#[track_caller]
fn what_was_used_is_told(weir: &Weir, tab: &Tab, key: &str) {
    let export = tab.get("/log/export/jsonl").text();
    let row: serde_json::Value = serde_json::from_str(export.trim_end()).unwrap();
    assert_eq!((&row["key_id"], &row["input_uncached"]), (&key.into(), &1234.into()));
    assert_eq!(tab.get("/log/export/csv?from=yesterday").status, 400);
    let told = weir.cli_json(&["usage", "--account", "tests"]);
    let cost = format!("${}", told["cost_usd"].as_str().unwrap());
    let of_key = format!("/usage?key={key}&by=model");
    for path in [
        "/",
        "/usage",
        "/usage?account=tests&by=key",
        &*of_key,
        "/accounts/tests",
    ] {
        let page = tab.page(path);
        assert!(page.contains(&cost), "{path} has no {cost}: {page}");
    }
    let page = tab.page("/usage?account=tests&by=key");
    assert!(page.contains(&format!("href=\"/keys/{key}\"")), "{page}");
    assert!(tab.page("/usage?from=yesterday").contains("role=\"alert\""));
}

#[test]
fn the_overview_names_models_whose_requests_fail_in_this_hour() {
    // Nobody answers there.
    let weir = with_console();
    let key = weir.key();
    let tab = signed_in(&weir, "viewer");
    let model = Wire::Messages.model();
    let line = format!("<a href=\"/models/{model}\"><bdi>{model}</bdi></a>: 0.00 % of this hour's requests succeeded");
    assert!(!tab.page("/").contains(&line));
    // A new hour may begin at any moment, and a model has a label from its tenth request in it.
    wait_until("the overview to name the model", || {
        let answer = weir.exchange(&Wire::Messages.request(&key.text, "hi"));
        assert_eq!(answer.status, 503, "{}", answer.text());
        tab.page("/").contains(&line)
    });
}

#[test]
fn the_overview_says_what_happened_lately() {
    let provider = RecordingProvider::start(|_, answer| answer.full(401, &[], b"{}"));
    let weir = builder(&provider.base_url()).start();
    let tab = signed_in(&weir, "viewer");
    assert!(!tab.page("/").contains("WeirProviderCredentialRefused"));
    let answer = weir.exchange(&Wire::Messages.request(&weir.key().text, "hi"));
    assert_eq!(answer.status, 503, "{}", answer.text());
    let said = "anthropic refused weir's own credential less than a minute ago (";
    wait_until("the overview to say it", || tab.page("/").contains(said));
    assert!(tab.page("/").contains("WeirProviderCredentialRefused"));
}
