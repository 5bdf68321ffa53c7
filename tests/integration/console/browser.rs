//! The console in a browser: the first key of a demo, and how its pages look.

use std::path::Path;
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::json;

use crate::demo::Demo;
use crate::harness::browser::Browser;
use crate::harness::request::Wire;
use crate::harness::tools::skip;

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

#[test]
fn the_first_key_is_made_in_the_browser_and_works() {
    let Some(mut browser) = Browser::start() else {
        skip!("Chromium is not there: tests/run installs it");
    };
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
    for wire in [Wire::Messages, Wire::Responses, Wire::Gemini] {
        let answer = demo.connect().exchange(&wire.request(&key, "Say hello."));
        assert_eq!(answer.status, 200, "{wire:?}: {}", answer.text());
    }
    assert_eq!(complaints(&mut browser), [""; 0]);
    // The portal knows it, too.
    browser.open(demo.text("portal_url"));
    complaints(&mut browser);
    browser.evaluate(&format!("document.querySelector('[name=key]').value = {}", json!(key)));
    browser.leave_by("document.querySelector('main form button').click()");
    assert_eq!(
        browser.text("document.querySelector('h1').innerText"),
        "made in a browser"
    );
    assert_eq!(browser.evaluate(OVERFLOW), json!([]));
    assert_eq!(complaints(&mut browser), [""; 0]);
    picture(&mut browser, "portal");
}

#[test]
fn the_pages_fit_a_desk_and_a_phone_in_both_themes() {
    let Some(mut browser) = Browser::start() else {
        skip!("Chromium is not there: tests/run installs it");
    };
    let demo = Demo::start();
    open(&mut browser, &demo);
    let console = demo.text("console_url").to_owned();
    for path in [
        "/",
        "/accounts",
        "/accounts/demo",
        "/keys",
        "/keys/new",
        "/models",
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
            assert_eq!(complaints(&mut browser), [""; 0], "{path} {size}");
        }
    }
    browser.look(DESK.0, DESK.1, "light");
    browser.open(&format!("{console}/"));
    picture(&mut browser, "overview");
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

/// Takes a picture for people to look at (`target/tmp/console/`), and holds that there is something on it.
#[track_caller]
fn picture(browser: &mut Browser, name: &str) {
    let picture = browser.picture();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("console");
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join(format!("{name}.png"));
    std::fs::write(&file, BASE64.decode(&picture).unwrap()).unwrap();
    let colours = browser.colours(&picture);
    assert!(colours > 50, "{} has {colours} colours", file.display());
}
