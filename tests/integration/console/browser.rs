//! The console in a browser: the first key of a demo, and how its pages look.

mod forms;
mod keyboard;
mod legible;
mod names;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::json;

use crate::demo::Demo;
use crate::harness::browser::Browser;
use crate::harness::node::node_modules;
use crate::harness::request::Wire;
use crate::harness::tools::{python, skip};
use crate::harness::{RecordingProvider, Weir, wait_until};

/// How long the first key may take, from the demo's start to an SDK's answer.
const FIRST_KEY_WITHIN: Duration = Duration::from_secs(60);
const ANSWER: &str = r#"{"id":"msg_1","type":"message","role":"assistant","content":[{"type":"text","text":"hi"}],"usage":{"input_tokens":43210,"output_tokens":789}}"#;

const DESK: (u32, u32) = (1280, 900);
const PHONE: (u32, u32) = (360, 780);
/// What of the page reaches beyond the right edge of the window, but for what scrolls in a box of its own.
const OVERFLOW: &str = "[...document.querySelectorAll('body *')]\
     .filter(e => !e.closest('.scroll') && !e.closest('pre') && !e.closest('.skip') && e.getBoundingClientRect().right > innerWidth + 0.5)\
     .map(e => e.outerHTML.slice(0, 80)).concat(document.documentElement.scrollWidth > innerWidth ? ['the page'] : [])";

/// A link into the console of a demo.
fn link(demo: &Demo) -> String {
    let admin = format!("unix:{}", demo.text("admin_socket"));
    let made = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["console", "open", "--admin", &admin])
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    String::from_utf8(made.stdout).unwrap().trim().to_owned()
}

/// Opens the console in a browser.
fn open(browser: &mut Browser, demo: &Demo) {
    browser.look(DESK.0, DESK.1, "light");
    browser.open(&link(demo));
    browser.leave_by("document.querySelector('form button').click()");
    assert_eq!(browser.text("document.querySelector('h1').innerText"), "Overview");
}

/// Opens the console of a gateway in a browser.
fn come_in(browser: &mut Browser, weir: &Weir, role: &str) {
    browser.look(DESK.0, DESK.1, "light");
    browser.open(&format!(
        "http://{}/open?code={}",
        super::address(weir),
        super::code(weir, role)
    ));
    browser.leave_by("document.querySelector('form button').click()");
}

/// Signs in to the portal that is at this address.
fn sign_in(browser: &mut Browser, portal: &str, key: &str) {
    browser.open(portal);
    // The door answers 401, and the browser says so, and no more.
    has_status(browser, 401);
    fill(browser, "/portal/sign-in", &[("key", key)]);
}

/// Signs out of the portal.
fn sign_out(browser: &mut Browser) {
    browser.leave_by("[...document.querySelectorAll('button')].find(one => one.innerText === 'Sign out').click()");
    has_status(browser, 401);
}

/// Takes the one complaint that a page with this status causes: that it has it.
#[track_caller]
fn has_status(browser: &mut Browser, status: u16) {
    let said = complaints(browser);
    let expected = format!("responded with a status of {status}");
    assert!(
        said.iter().all(|one| one.contains(&expected)) && said.len() == 1,
        "{said:?}"
    );
}

/// Enters something into the form of the page that is sent to `action`, and sends it by its button.
#[track_caller]
fn fill(browser: &mut Browser, action: &str, entered: &[(&str, &str)]) {
    let (action, entered) = (json!(action), json!(entered));
    browser.evaluate(&format!(
        "globalThis.filled = [...document.forms].find(form => form.getAttribute('action') === {action}); \
         {entered}.forEach(([name, value]) => {{ filled.elements.namedItem(name).value = value }})"
    ));
    browser.leave_by("filled.querySelector('button').click()");
}

/// Holds that the open page fits a desk and a phone in both themes, that it loads nothing, and that nobody complains.
#[track_caller]
fn looks_well(browser: &mut Browser, what: &str) {
    for ((width, height), theme) in [(PHONE, "dark"), (DESK, "light")] {
        browser.look(width, height, theme);
        assert_eq!(browser.evaluate(OVERFLOW), json!([]), "{what} {theme}");
        let loaded = "document.scripts.length + document.images.length";
        assert_eq!(browser.evaluate(loaded), 0, "{what} {theme}");
        nothing_serious(browser, &format!("{what} {theme}"));
    }
}

#[test]
fn the_first_key_is_made_in_the_browser_and_works() {
    let Some(mut browser) = Browser::start() else {
        skip!("Chromium is not there: tests/run installs it");
    };
    let began = Instant::now();
    let demo = Demo::start();
    open(&mut browser, &demo);
    let cookies = browser.evaluate("document.cookie");
    assert_eq!(cookies, "", "no script can read the cookie");
    browser.leave_by("[...document.querySelectorAll('nav a')].find(a => a.innerText === 'Keys').click()");
    browser.leave_by("document.querySelector('a.button').click()");
    assert_eq!(browser.text("document.querySelector('[name=account]').value"), "demo");
    browser.evaluate("document.querySelector('[name=name]').value = 'made in a browser'");
    browser.evaluate("document.querySelector('[name=quota_usd]').value = '1.5'");
    browser.leave_by("document.querySelector('main form button').click()");
    let key = browser.text("document.querySelector('code.key').innerText");
    let snippets = browser.text("document.querySelector('.snippets').textContent");
    assert!(
        snippets.contains(&key) && snippets.contains(demo.text("base_url")),
        "{snippets}"
    );
    an_sdk_uses(&demo, &key);
    let took = began.elapsed();
    assert!(took < FIRST_KEY_WITHIN, "from `weir demo` to an SDK's answer: {took:?}");
    for wire in [Wire::Messages, Wire::Responses, Wire::Gemini] {
        let answer = demo.connect().exchange(&wire.request(&key, "Say hello."));
        assert_eq!(answer.status, 200, "{wire:?}: {}", answer.text());
    }
    assert_eq!(complaints(&mut browser), [""; 0]);
    // The portal knows it, too.
    sign_in(&mut browser, demo.text("portal_url"), &key);
    assert_eq!(
        browser.text("document.querySelector('h1').innerText"),
        "made in a browser"
    );
    assert_eq!(browser.evaluate(OVERFLOW), json!([]));
    assert_eq!(complaints(&mut browser), [""; 0]);
    let whole = browser.picture();
    keep(&mut browser, "portal-of-a-demo", &whole);
}

/// Anthropic's own SDK asks with the key.
#[track_caller]
fn an_sdk_uses(demo: &Demo, key: &str) {
    let Some(python) = python(".venv") else {
        skip!(".venv is not there: tests/run makes it");
    };
    let script = format!(
        "from anthropic import Anthropic\nclient = Anthropic(base_url={:?}, api_key={key:?})\n\
         print(client.messages.create(model={:?}, max_tokens=20, messages=[{{'role': 'user', 'content': 'Hello'}}]).content[0].text)",
        demo.text("base_url"),
        Wire::Messages.model(),
    );
    let made = Command::new(python).args(["-c", &script]).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    assert!(!made.stdout.trim_ascii().is_empty());
}

#[test]
fn the_pages_fit_a_desk_and_a_phone_in_both_themes() {
    let Some(mut browser) = Browser::start() else {
        skip!("Chromium is not there: tests/run installs it");
    };
    let demo = Demo::start();
    open(&mut browser, &demo);
    let console = demo.text("console_url").to_owned();
    browser.open(&format!("{console}/keys"));
    let key = browser.text("document.querySelector('main tbody a').getAttribute('href')");
    browser.open(&format!("{console}/models"));
    let model = browser.text("document.querySelector('main tbody a').getAttribute('href')");
    for path in [
        "/",
        "/accounts",
        "/accounts/demo",
        "/keys",
        "/keys/new",
        &key,
        "/models",
        &model,
        "/usage",
        "/log",
        "/providers",
        "/rules",
        "/audit",
    ] {
        for (size, width) in [("desk", DESK), ("phone", PHONE)] {
            let theme = if size == "desk" { "light" } else { "dark" };
            browser.look(width.0, width.1, theme);
            browser.open(&format!("{console}{path}"));
            assert_eq!(browser.evaluate(OVERFLOW), json!([]), "{path} {size}");
            assert_eq!(browser.evaluate("document.scripts.length + document.images.length"), 0);
            let unnamed = "[...document.querySelectorAll('input:not([type=hidden]), select, textarea')].filter(e => !e.labels.length).length";
            assert_eq!(browser.evaluate(unnamed), 0, "{path}: every field has a label");
            nothing_serious(&mut browser, &format!("{path} {size}"));
        }
    }
}

/// What axe-core finds serious or worse on the open page: rule, and where.
const SERIOUS: &str = "axe.run().then(found => found.violations.filter(one => ['serious', 'critical'].includes(one.impact))\
     .map(one => one.id + ': ' + one.nodes.map(node => node.target.join(' ')).join(', ')))";

/// Holds that axe-core finds nothing serious, where `tests/run` has installed it.
#[track_caller]
fn nothing_serious(browser: &mut Browser, what: &str) {
    let Some(modules) = node_modules("tests/browser") else {
        skip!("axe-core is not there: tests/run installs it");
    };
    let axe = std::fs::read_to_string(modules.join("axe-core/axe.min.js")).unwrap();
    assert_eq!(complaints(browser), [""; 0], "{what}");
    browser.evaluate(&format!("{axe};0"));
    assert_eq!(browser.evaluate(SERIOUS), json!([]), "{what}");
    // Whatever the policy said to axe-core is none of the page's.
    browser.complaints();
}

#[test]
fn the_pages_show_what_was_used() {
    let Some(mut browser) = Browser::start() else {
        skip!("Chromium is not there: tests/run installs it");
    };
    let provider = RecordingProvider::answering(ANSWER);
    let mut weir = super::builder(&provider.base_url())
        .set("sign_in.enabled", true)
        .start();
    let key = weir.key_with(&["--quota-usd", "25", "--reset", "monthly"]);
    for wire in [Wire::Messages, Wire::Messages] {
        assert_eq!(weir.exchange(&wire.request(&key.text, "hi")).status, 200);
    }
    wait_until("the rows", || weir.cli_json(&["log", "query"]).as_array().is_some());
    weir.multiply(
        (11, |number| format!("build server {number}")),
        (800, |number| 1 + number * number / 97 % 28),
    );
    come_in(&mut browser, &weir, "viewer");
    let address = super::address(&weir);
    looks_well(&mut browser, "the overview with data");
    for (path, picture) in [
        ("/", "console-overview"),
        ("/usage?account=tests&by=model", "console-usage"),
        ("/accounts/tests", "console-account"),
    ] {
        in_both_themes(&mut browser, &format!("http://{address}{path}"), picture);
    }
    for (path, picture, has) in [
        ("/keys", "console-keys", "build server 7"),
        ("/models?search=claude", "console-models", "claude-sonnet-5-5"),
        ("/log", "console-log", "rounded up"),
        ("/accounts", "console-accounts", "tests"),
        ("/providers", "console-providers", "Anthropic"),
        ("/audit", "console-audit", "key.create"),
    ] {
        browser.open(&format!("http://{address}{path}"));
        browser.evaluate("document.querySelectorAll('tbody details').forEach((e, place) => { e.open = place == 0 })");
        let told = browser.text("document.querySelector('main').innerText");
        assert!(told.contains(has), "{path}: {told}");
        looks_well(&mut browser, path);
        view(&mut browser, picture);
    }
    for path in [
        "/",
        "/usage?account=tests",
        "/usage?account=tests&by=key",
        "/accounts/tests",
    ] {
        browser.open(&format!("http://{address}{path}"));
        let told = browser.text("document.querySelector('main').innerText");
        assert!(told.contains("Spent from"), "{path}: {told}");
        let bars = browser.evaluate("document.querySelectorAll('.bars rect').length");
        assert!(bars.as_u64().unwrap() >= 9, "{path}: {bars} bars");
        browser.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true })");
        looks_well(&mut browser, path);
    }
    for door in ["/portal", "/portal/device"] {
        browser.open(&format!("http://{}{door}", weir.gateway));
        has_status(&mut browser, 401);
        looks_well(&mut browser, door);
    }
    let portal = format!("http://{}/portal", weir.gateway);
    sign_in(&mut browser, &portal, &key.text);
    looks_well(&mut browser, "the portal with data");
    view(&mut browser, "portal");
    on_a_phone(&mut browser, &portal, "portal-phone");
}

/// Takes pictures of a page as a desk and a phone show it, in both themes.
fn in_both_themes(browser: &mut Browser, url: &str, name: &str) {
    for ((width, height), size) in [(DESK, ""), ((390, 780), "-phone")] {
        for (theme, suffix) in [("light", ""), ("dark", "-dark")] {
            browser.look(width, height, theme);
            browser.open(url);
            if size == "-phone" {
                browser.evaluate("document.querySelector('figure').scrollIntoView()");
            }
            view(browser, &format!("{name}{size}{suffix}"));
        }
    }
    browser.look(DESK.0, DESK.1, "light");
}

/// Takes a picture of a page as a phone shows it in the dark.
fn on_a_phone(browser: &mut Browser, url: &str, name: &str) {
    browser.look(PHONE.0, PHONE.1, "dark");
    browser.open(url);
    view(browser, name);
    browser.look(DESK.0, DESK.1, "light");
}

/// What the browser complains of, but for what is this test's own: it clicks without a hand, asks for the cookies, and knows
/// that `name` is not a person's.
fn complaints(browser: &mut Browser) -> Vec<String> {
    let own = [
        "NavigationEntryMarkedSkippable",
        "DocumentCookie",
        "FormInputAssignedAutocompleteValueToIdOrNameAttributeError",
    ];
    let mut complaints = browser.complaints();
    complaints.retain(|complaint| !own.iter().any(|word| complaint.contains(word)));
    complaints
}

/// Takes a picture of the window: those in docs/ are these.
#[track_caller]
fn view(browser: &mut Browser, name: &str) {
    let view = browser.view();
    let bytes = keep(browser, name, &view);
    assert!(
        bytes < 150 * 1024,
        "{name} has {bytes} bytes, too many for the repository"
    );
}

/// Keeps a picture for people to look at (`target/tmp/console/`), and holds that there is something on it. Says how large it is.
#[track_caller]
fn keep(browser: &mut Browser, name: &str, picture: &str) -> usize {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("console");
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join(format!("{name}.png"));
    let bytes = BASE64.decode(picture).unwrap();
    std::fs::write(&file, &bytes).unwrap();
    let colours = browser.colours(picture);
    assert!(colours > 50, "{} has {colours} colours", file.display());
    bytes.len()
}
