//! What people have to read is as large as it has to be, and whole: the code of an agent, prices on a phone, labels of a chart.

use serde_json::json;

use super::{DESK, PHONE, come_in, looks_well, sign_in};
use crate::harness::browser::Browser;
use crate::harness::request::Wire;
use crate::harness::tools::skip;
use crate::harness::{RecordingProvider, WeirBuilder, wait_until};

/// A phone that is wider than the narrowest.
const WIDER_PHONE: (u32, u32) = (390, 844);

/// The size of the text of each element that has some of its own, largest first, as `[pixels, text]`.
const SIZES: &str = "[...document.querySelectorAll('body *')]\
     .filter(e => e.checkVisibility() && !e.closest('.skip') && [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()))\
     .map(e => [parseFloat(getComputedStyle(e).fontSize), e.innerText.trim()]).sort((one, other) => other[0] - one[0])";

#[test]
fn the_code_that_people_compare_is_the_largest_text_of_its_page() {
    let Some(mut browser) = Browser::start() else {
        skip!("Chromium is not there: tests/run installs it");
    };
    let weir = WeirBuilder::new().set("sign_in.enabled", true).start();
    let key = weir.key();
    let begun = crate::sign_in::begin(&weir);
    let code = begun["user_code"].as_str().unwrap();
    browser.look(DESK.0, DESK.1, "light");
    let portal = format!("http://{}/portal", weir.gateway);
    sign_in(&mut browser, &portal, &key.text);
    browser.open(&format!("{portal}/device?user_code={code}"));
    assert!(browser.text("document.body.innerText").contains(code));
    for size in [DESK, WIDER_PHONE, PHONE] {
        browser.look(size.0, size.1, "light");
        let sizes = browser.evaluate(SIZES);
        let pixels = |place: usize| sizes[place][0].as_f64().unwrap();
        assert_eq!(sizes[0][1], code, "{sizes}");
        assert!(pixels(0) >= 1.2 * pixels(1), "clearly the largest: {sizes}");
        let lines = "document.querySelector('.compare').getClientRects().length";
        assert_eq!(browser.evaluate(lines), 1, "in one line");
    }
    looks_well(&mut browser, "the page on which a code is compared");
}

#[test]
fn all_prices_of_a_model_fit_a_phone() {
    const PRICES: &str = "version = \"v1\"\n[[price]]\nname = \"everything\"\nsource = \"a test\"\n\
         tiers = [{ input = \"3.75\", output = \"15.25\", cache_read = \"0.375\", cache_write_short = \"4.6875\", \
         cache_write_long = \"7.5\", input_audio = \"32.5\", input_image = \"5.125\", cache_read_audio = \"0.425\", \
         cache_read_image = \"0.525\", output_audio = \"64.125\", output_image = \"120.75\" }]\n";
    let Some(mut browser) = Browser::start() else {
        skip!("Chromium is not there: tests/run installs it");
    };
    let folder = tempfile::tempdir().unwrap();
    let prices = folder.path().join("prices.toml");
    std::fs::write(&prices, PRICES).unwrap();
    let mut model = toml::Table::new();
    model.insert("name".to_owned(), "everything".into());
    model.insert("providers".to_owned(), vec!["anthropic"].into());
    let weir = super::super::builder("http://127.0.0.1:9")
        .set("prices.file", prices.to_str().unwrap())
        .set_top("model", vec![toml::Value::from(model)])
        .start();
    come_in(&mut browser, &weir, "viewer");
    browser.open(&format!("http://{}/models/everything", super::super::address(&weir)));
    assert!(browser.text("document.body.innerText").contains("$120.75"));
    browser.look(WIDER_PHONE.0, WIDER_PHONE.1, "light");
    assert_eq!(browser.evaluate(super::OVERFLOW), json!([]));
    looks_well(&mut browser, "the page of a model with all prices");
}

/// The labels of the axes of a page's charts that reach beyond their drawing.
const CLIPPED: &str = "[...document.querySelectorAll('svg .axes text')].filter(text => {\
     const [drawing, box] = [text.ownerSVGElement.getBoundingClientRect(), text.getBoundingClientRect()];\
     return box.left < drawing.left - 0.5 || box.right > drawing.right + 0.5 || box.top < drawing.top - 0.5 || box.bottom > drawing.bottom + 0.5 })\
     .map(text => text.textContent)";

#[test]
fn the_amounts_beside_a_chart_of_days_are_whole() {
    let Some(mut browser) = Browser::start() else {
        skip!("Chromium is not there: tests/run installs it");
    };
    // A fraction of a cent has as many digits as an amount can have.
    let provider = RecordingProvider::answering(
        r#"{"id":"msg_1","type":"message","role":"assistant","content":[{"type":"text","text":"hi"}],"usage":{"input_tokens":1,"output_tokens":1}}"#,
    );
    let weir = super::super::builder(&provider.base_url()).start();
    let key = weir.key();
    assert_eq!(weir.exchange(&Wire::Messages.request(&key.text, "hi")).status, 200);
    come_in(&mut browser, &weir, "viewer");
    let usage = format!("http://{}/usage?account=tests", super::super::address(&weir));
    wait_until("the sums", || {
        browser.open(&usage);
        browser.evaluate("document.querySelectorAll('.bars rect').length") == 1
    });
    for size in [DESK, WIDER_PHONE] {
        browser.look(size.0, size.1, "light");
        assert_eq!(browser.evaluate(CLIPPED), json!([]), "{size:?}");
    }
}
