//! Both doors without a mouse, with scripts and without.

use super::{DESK, PHONE, come_in, complaints, link};
use crate::demo::Demo;
use crate::harness::browser::Browser;
use crate::harness::request::Wire;
use crate::harness::tools::skip;
use crate::harness::{RecordingProvider, Weir, wait_until};

const RING: &str = "getComputedStyle(document.activeElement).outlineStyle";

#[test]
fn a_key_is_made_with_scripts_switched_off() {
    let Some(mut browser) = Browser::start() else {
        skip!("Chromium is not there: tests/run installs it");
    };
    let demo = Demo::start();
    browser.look(DESK.0, DESK.1, "light");
    browser.open(&link(&demo));
    browser.switch_scripts_off();
    browser.tab_to("e.tagName === 'BUTTON'");
    browser.leave_by_key("Enter");
    browser.tab_to("e.innerText === 'Keys'");
    go_to_the_name_of_a_new_key(&mut browser);
    browser.enter("without scripts");
    browser.leave_by_key("Enter");
    is_used(&mut browser, &demo);
}

/// From the link to the keys, on which the focus is.
fn go_to_the_name_of_a_new_key(browser: &mut Browser) {
    browser.leave_by_key("Enter");
    browser.tab_to("e.innerText === 'New key'");
    browser.leave_by_key("Enter");
    browser.tab_to("e.name === 'name'");
}

/// The key on the page is accepted.
fn is_used(browser: &mut Browser, demo: &Demo) {
    let key = browser.text("document.querySelector('code.key').innerText");
    let answer = demo.connect().exchange(&Wire::Messages.request(&key, "Say hello."));
    assert_eq!(answer.status, 200, "{}", answer.text());
}

#[test]
fn a_key_is_made_with_the_keyboard_alone() {
    let Some(mut browser) = Browser::start() else {
        skip!("Chromium is not there: tests/run installs it");
    };
    let demo = Demo::start();
    browser.look(DESK.0, DESK.1, "light");
    browser.open(&link(&demo));
    browser.tab_to("e.tagName === 'BUTTON'");
    browser.leave_by_key("Enter");
    browser.tab_to("e.innerText === 'Keys'");
    assert_eq!(browser.text(RING), "solid", "where the focus is can be seen");
    go_to_the_name_of_a_new_key(&mut browser);
    browser.enter("typed");
    browser.tab_to("e.tagName === 'BUTTON' && !!e.closest('main')");
    browser.leave_by_key("Enter");
    is_used(&mut browser, &demo);
}

#[test]
fn a_wide_table_is_scrolled_with_the_keyboard_alone() {
    let Some(mut browser) = Browser::start() else {
        skip!("Chromium is not there: tests/run installs it");
    };
    let provider = RecordingProvider::answering(super::ANSWER);
    let weir = super::super::builder(&provider.base_url()).start();
    let key = weir.key();
    assert_eq!(weir.exchange(&Wire::Messages.request(&key.text, "hi")).status, 200);
    wait_until("the row", || weir.cli_json(&["log", "query"]).is_object());
    come_in(&mut browser, &weir, "viewer");
    browser.look(PHONE.0, PHONE.1, "light");
    for page in ["/keys", "/log"] {
        browser.open(&format!("http://{}{page}", super::super::address(&weir)));
        let is_wide = "(e => e.scrollWidth > e.clientWidth)(document.querySelector('.scroll'))";
        assert_eq!(browser.evaluate(is_wide), true, "{page}");
        browser.tab_to("e.classList.contains('scroll')");
        assert_eq!(browser.text(RING), "solid", "{page}");
        browser.press("ArrowRight");
        wait_until("the table to have moved", || {
            browser.evaluate("document.activeElement.scrollLeft > 0") == true
        });
    }
}

/// Adds to the balance of an account without a mouse.
#[track_caller]
fn credits_an_account(browser: &mut Browser, weir: &Weir) {
    browser.tab_to("e.innerText === 'Accounts'");
    browser.leave_by_key("Enter");
    browser.tab_to("e.innerText === 'tests'");
    browser.leave_by_key("Enter");
    browser.tab_to("e.name === 'usd' && e.form.getAttribute('action').endsWith('/credit')");
    assert_eq!(browser.text(RING), "solid", "where the focus is can be seen");
    browser.enter("12.5");
    browser.tab_to("e.tagName === 'BUTTON' && e.form.getAttribute('action').endsWith('/credit')");
    browser.leave_by_key("Enter");
    assert_eq!(
        weir.cli_json(&["account", "show", "--id", "tests"])["balance_usd"],
        "1012.50"
    );
    assert!(
        browser
            .text("document.querySelector('main').innerText")
            .contains("$1012.50")
    );
}

/// Signs in to the portal and out again without a mouse.
#[track_caller]
fn comes_to_the_portal(browser: &mut Browser, weir: &Weir) {
    let key = weir.cli_json(&["key", "create", "--account", "tests", "--name", "of a keyboard"]);
    let text = |field: &str| key[field].as_str().unwrap().to_owned();
    browser.open(&format!("http://{}/portal", weir.gateway));
    browser.tab_to("e.name === 'key'");
    browser.enter(&text("key"));
    browser.tab_to("e.tagName === 'BUTTON' && !!e.closest('main')");
    browser.leave_by_key("Enter");
    assert_eq!(browser.text("document.querySelector('h1').innerText"), "of a keyboard");
    browser.tab_to("e.name === 'rpm'");
    browser.enter("30");
    browser.tab_to("e.innerText === 'Lower the limits'");
    browser.leave_by_key("Enter");
    assert_eq!(weir.cli_json(&["key", "show", &text("id")])["rpm"], 30);
    browser.tab_to("e.innerText === 'Sign out'");
    browser.leave_by_key("Enter");
    assert_eq!(browser.text("document.querySelector('h1').innerText"), "Sign in");
}

#[test]
fn an_account_is_credited_and_the_portal_used_with_the_keyboard_alone_with_scripts_and_without() {
    for scripts in [true, false] {
        let Some(mut browser) = Browser::start() else {
            skip!("Chromium is not there: tests/run installs it");
        };
        let weir = super::super::with_console();
        weir.fund();
        come_in(&mut browser, &weir, "owner");
        if !scripts {
            browser.switch_scripts_off();
        }
        browser.open(&format!("http://{}/", super::super::address(&weir)));
        credits_an_account(&mut browser, &weir);
        if scripts {
            assert_eq!(complaints(&mut browser), [""; 0]);
        }
        comes_to_the_portal(&mut browser, &weir);
    }
}
