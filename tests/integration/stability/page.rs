//! The status page as a browser shows it: what is visible, in both themes, on a phone, under its policy.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use percent_encoding::percent_decode_str;
use serde_json::json;
use weir::parts::{Hour, ModelWindow, StabilityCounters, StabilityWindow, page};

use crate::harness::RecordingProvider;
use crate::harness::browser::Browser;
use crate::harness::tools::skip;

const NOW: Hour = Hour::from_number(498_013);
const UPDATED: i64 = 498_013 * 3600 + 2711;
const MARKUP: &str = "<img src=x onerror=alert(1)>";
const PHONE: (u32, u32) = (390, 844);
const DESK: (u32, u32) = (1280, 900);

fn counted(requests: u64, successes: u64) -> StabilityCounters {
    StabilityCounters {
        requests,
        successes,
        latency_ms: requests * 1234,
        ttft_ms: requests * 340,
        ttft_count: requests,
        output_tokens: requests * 58,
        generation_ms: requests * 1000,
    }
}

/// A model, by what each of its hours has.
fn model(name: &str, hour: impl Fn(usize) -> StabilityCounters) -> ModelWindow {
    let hours = NOW.window().enumerate().map(|(index, at)| (at, hour(index)));
    let hours: Vec<(Hour, StabilityCounters)> = hours.collect();
    let mut total = StabilityCounters::default();
    for (_, counters) in &hours {
        total.add(counters);
    }
    ModelWindow {
        name: name.to_owned(),
        total,
        hours,
    }
}

/// One of each kind.
fn fleet() -> Vec<ModelWindow> {
    let only = |wanted: usize, counters: StabilityCounters| {
        move |hour: usize| {
            if hour == wanted {
                counters
            } else {
                StabilityCounters::default()
            }
        }
    };
    vec![
        model("heron", |_| counted(1000, 1000)),
        model("wader", |hour| match hour {
            7 => StabilityCounters::default(),
            9 => counted(4, 4),
            10 | 11 => counted(1000, 700),
            _ => counted(1000, 1000),
        }),
        model(MARKUP, |_| counted(1000, 995)),
        model("few", only(20, counted(9, 9))),
        model("silent", |_| StabilityCounters::default()),
        model(
            "no-stream",
            only(
                20,
                StabilityCounters {
                    ttft_ms: 0,
                    ttft_count: 0,
                    ..counted(20, 20)
                },
            ),
        ),
        model(&format!("long/{}:free", "name-without-an-end".repeat(8)), |_| {
            counted(50, 48)
        }),
    ]
}

/// A site that serves the page of these models as the service does.
fn site(mut models: Vec<ModelWindow>) -> RecordingProvider {
    models.sort_by(|one, other| one.name.cmp(&other.name));
    let window = StabilityWindow { now: NOW, models };
    RecordingProvider::start(move |request, answer| {
        let headers = [
            ("content-type", "text/html; charset=utf-8"),
            ("content-security-policy", page::CSP),
        ];
        let name = request.target.strip_prefix("/status/").map(percent_decode_str);
        let name = name.map(|name| name.decode_utf8_lossy());
        match name.as_deref().map(|name| window.find(name)) {
            None if request.target == "/status" => answer.full(200, &headers, page::index(&window, UPDATED).as_bytes()),
            Some(Some(model)) => answer.full(200, &headers, page::model(model, UPDATED).as_bytes()),
            _ => answer.full(404, &headers, b""),
        }
    })
}

fn targets(site: &RecordingProvider) -> Vec<String> {
    site.requests().into_iter().map(|request| request.target).collect()
}

/// Takes a picture for people to look at (`target/tmp/status-page/`), and holds that there is something on it.
#[track_caller]
fn picture(browser: &mut Browser, name: &str) {
    let picture = browser.picture();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("status-page");
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join(format!("{name}.png"));
    std::fs::write(&file, BASE64.decode(&picture).unwrap()).unwrap();
    let colours = browser.colours(&picture);
    assert!(colours > 50, "{} has {colours} colours", file.display());
}

#[track_caller]
fn no_complaints(browser: &mut Browser) {
    assert_eq!(browser.complaints(), [""; 0]);
}

/// What of the page reaches beyond the right edge of the window, but for what scrolls in a box of its own.
const OVERFLOW: &str = "[...document.querySelectorAll('body *')]\
     .filter(e => !e.closest('.scroll') && !e.closest('thead') && e.getBoundingClientRect().right > innerWidth + 0.5)\
     .map(e => e.outerHTML.slice(0, 80)).concat(document.documentElement.scrollWidth > innerWidth ? ['the page'] : [])";

/// The rows of models as they can be read: cells parted by bars.
const ROWS: &str = "[...document.querySelectorAll('tbody tr:not(.group)')]\
     .map(row => [...row.cells].slice(0, 7).map(cell => cell.innerText.trim()).join(' | '))";

#[test]
fn the_overview_shows_each_model_as_it_is() {
    let Some(mut browser) = Browser::start() else {
        skip!("Chromium is not there: tests/run installs it");
    };
    let site = site(fleet());
    browser.look(DESK.0, DESK.1, "light");
    browser.open(&format!("{}/status", site.base_url()));
    let long = format!("long/{}:free", "name-without-an-end".repeat(8));
    assert_eq!(
        browser.evaluate(ROWS),
        json!([
            format!("{long} | Degraded | High | 96.00 % | 1.2 s | 340 ms | 58 tok/s"),
            "wader | Degraded | High | 97.27 % | 1.2 s | 340 ms | 58 tok/s",
            "<img src=x onerror=alert(1)> | Healthy | High | 99.50 % | 1.2 s | 340 ms | 58 tok/s",
            "heron | Operational | High | 100 % | 1.2 s | 340 ms | 58 tok/s",
            "no-stream | Operational | Medium | 100 % | 1.2 s | \u{2014} | 58 tok/s",
            "few | Not enough data | Low | 100 % | 1.2 s | 340 ms | 58 tok/s",
        ])
    );
    assert_eq!(browser.text("document.querySelector('h1').innerText"), "Model status");
    assert_eq!(
        browser.text("document.querySelector('.verdict').innerText"),
        "2 models are degraded"
    );
    // Every strip has 24 bars that can be seen, side by side.
    let bars = "[...document.querySelectorAll('table .strip')].map(strip => {\
         const boxes = [...strip.querySelectorAll('path')].map(bar => bar.getBoundingClientRect());\
         return boxes.filter((box, at) => box.height > 1 && (at == 0 || box.x > boxes[at - 1].x + 5)).length })";
    assert_eq!(browser.evaluate(bars), json!([24, 24, 24, 24, 24, 24]));
    let tooltips =
        "[...document.querySelectorAll('table .strip')[1].querySelectorAll('title')].map(t => t.textContent)";
    let tooltips = browser.evaluate(tooltips);
    assert_eq!(tooltips[7], "21:00 UTC: No Data");
    assert_eq!(tooltips[9], "23:00 UTC: Not enough data, 100 %");
    assert_eq!(tooltips[10], "00:00 UTC: Unstable, 70.00 %");
    assert_eq!(tooltips[23], "13:00 UTC: Operational, 100 %");
    // Those without requests are folded away until somebody asks.
    let silent = "document.querySelector('.silent').checkVisibility()";
    assert_eq!(browser.evaluate(silent), false);
    browser.evaluate("document.querySelector('details summary').click()");
    assert_eq!(browser.evaluate(silent), true);
    assert_eq!(browser.text("document.querySelector('.silent').innerText"), "silent");
    assert_eq!(browser.evaluate("document.scripts.length + document.images.length"), 0);
    assert_eq!(browser.evaluate(OVERFLOW), json!([]));
    no_complaints(&mut browser);
    assert_eq!(targets(&site), ["/status"], "one document needs no further request");
}

#[test]
fn a_name_with_markup_is_text_and_leads_to_its_page() {
    let Some(mut browser) = Browser::start() else {
        skip!("Chromium is not there: tests/run installs it");
    };
    let site = site(fleet());
    browser.open(&format!("{}/status", site.base_url()));
    let link = "[...document.querySelectorAll('th a')].find(a => a.innerText.startsWith('<img')).href";
    let address = browser.text(link);
    assert!(
        address.ends_with("/status/%3Cimg%20src%3Dx%20onerror%3Dalert%281%29%3E"),
        "{address}"
    );
    browser.open(&address);
    assert_eq!(browser.text("document.querySelector('h1').innerText"), MARKUP);
    assert_eq!(browser.text("document.title"), format!("{MARKUP} \u{b7} Model status"));
    assert_eq!(browser.evaluate("document.scripts.length + document.images.length"), 0);
    let json = browser.text("document.querySelector('.method li a').getAttribute('href')");
    assert_eq!(
        json,
        "/web/v1/model-stability/%3Cimg%20src%3Dx%20onerror%3Dalert%281%29%3E"
    );
    no_complaints(&mut browser);
}

#[test]
fn a_models_page_draws_its_hours() {
    let Some(mut browser) = Browser::start() else {
        skip!("Chromium is not there: tests/run installs it");
    };
    let site = site(fleet());
    browser.look(DESK.0, DESK.1, "light");
    browser.open(&format!("{}/status/wader", site.base_url()));
    assert_eq!(
        browser.text("document.querySelector('.state').innerText"),
        "Degraded Confidence: High"
    );
    let figures = "[...document.querySelectorAll('.figures dd')].map(figure => figure.innerText)";
    assert_eq!(
        browser.evaluate(figures),
        json!(["97.27 %", "1.2 s", "340 ms", "58 tok/s"])
    );
    assert_eq!(
        browser.evaluate("document.querySelectorAll('.hourly .strip path').length"),
        24
    );
    // A gap in the seventh hour parts each line in two; the hour with few requests is drawn hollow.
    let charts = "[...document.querySelectorAll('.chart svg')].map(chart => [chart.querySelectorAll('.line').length, \
         chart.querySelectorAll('circle').length, chart.querySelectorAll('circle.unsure').length, chart.clientHeight > 100])";
    assert_eq!(
        browser.evaluate(charts),
        json!([[2, 23, 1, true], [2, 23, 1, true], [2, 23, 1, true]])
    );
    let rows = "[...document.querySelectorAll('details tbody tr')].filter(row => row.checkVisibility()).length";
    assert_eq!(browser.evaluate(rows), 0);
    browser.evaluate("document.querySelector('details summary').click()");
    assert_eq!(browser.evaluate(rows), 24);
    let first = "[...document.querySelector('details tbody tr').cells].map(cell => cell.innerText).join(' | ')";
    assert_eq!(
        browser.text(first),
        "13:00 | Operational | 100 % | 1.2 s | 340 ms | 58 tok/s | High"
    );
    no_complaints(&mut browser);

    browser.open(&format!("{}/status/few", site.base_url()));
    assert_eq!(
        browser.text("document.querySelector('.state').innerText"),
        "Not enough data Confidence: Low"
    );
    browser.open(&format!("{}/status/silent", site.base_url()));
    let state = "No Data No requests in the last 24 hours";
    assert_eq!(browser.text("document.querySelector('.state').innerText"), state);
    assert_eq!(
        browser.evaluate(figures),
        json!(["\u{2014}", "\u{2014}", "\u{2014}", "\u{2014}"])
    );
    assert_eq!(browser.evaluate("document.querySelectorAll('.chart').length"), 0);
    no_complaints(&mut browser);
}

#[test]
fn the_labels_of_the_axes_are_whole() {
    /// Those that reach beyond their drawing.
    const CLIPPED: &str = "[...document.querySelectorAll('svg .axes text')].filter(text => {\
         const [drawing, box] = [text.ownerSVGElement.getBoundingClientRect(), text.getBoundingClientRect()];\
         return box.left < drawing.left - 0.5 || box.right > drawing.right + 0.5 || box.top < drawing.top - 0.5 \
         || box.bottom > drawing.bottom + 0.5 }).map(text => text.textContent)";
    let Some(mut browser) = Browser::start() else {
        skip!("Chromium is not there: tests/run installs it");
    };
    let pace = |latency_ms: u64, ttft_ms: u64, tokens_a_second: u64| StabilityCounters {
        latency_ms: 1000 * latency_ms,
        ttft_ms: 1000 * ttft_ms,
        output_tokens: 1000 * tokens_a_second,
        ..counted(1000, 1000)
    };
    let site = site(vec![
        model("swift", move |_| pace(7, 3, 5_500)),
        model("steady", move |_| pace(850, 85, 850)),
        model("slow", move |_| pace(5_400_000, 540_000, 2)),
    ]);
    for name in ["swift", "steady", "slow"] {
        for size in [DESK, PHONE, (360, 780)] {
            browser.look(size.0, size.1, "light");
            browser.open(&format!("{}/status/{name}", site.base_url()));
            assert_eq!(browser.evaluate("document.querySelectorAll('.chart svg').length"), 3);
            assert_eq!(browser.evaluate(CLIPPED), json!([]), "{name} {size:?}");
        }
    }
}

#[test]
fn both_themes_and_a_phone_show_all_of_it() {
    let Some(mut browser) = Browser::start() else {
        skip!("Chromium is not there: tests/run installs it");
    };
    let site = site(fleet());
    let colours = "['body', '.models tr:not(.group)', '.pill', 'th a'].map(place => {\
         const style = getComputedStyle(document.querySelector(place)); return style.color + ' ' + style.backgroundColor })";
    let mut seen = Vec::new();
    for (size, width) in [("desk", DESK), ("tablet", (820, 1180)), ("phone", PHONE)] {
        for theme in ["light", "dark"] {
            for (path, name) in [("/status", "overview"), ("/status/wader", "model")] {
                browser.look(width.0, width.1, theme);
                browser.open(&format!("{}{path}", site.base_url()));
                assert_eq!(browser.evaluate("innerWidth"), width.0);
                assert_eq!(browser.evaluate(OVERFLOW), json!([]), "{size} {theme} {path}");
                if path == "/status" && size == "desk" {
                    seen.push(browser.evaluate(colours));
                }
                no_complaints(&mut browser);
                picture(&mut browser, &format!("{name}-{size}-{theme}"));
            }
        }
    }
    for (light, dark) in seen[0].as_array().unwrap().iter().zip(seen[1].as_array().unwrap()) {
        assert_ne!(light, dark);
    }
    // On the phone a row is a card, and its figures say what they are.
    browser.look(PHONE.0, PHONE.1, "light");
    browser.open(&format!("{}/status", site.base_url()));
    let name = "getComputedStyle(document.querySelector('.models tr:not(.group) td:nth-child(5)'), '::before').content";
    assert_eq!(browser.text(name), "\"Latency\"");
    let full = "document.querySelector('.models .strip').getBoundingClientRect().width > 300";
    assert_eq!(browser.evaluate(full), true);
}

#[test]
fn a_hundred_and_fifty_models_fit() {
    let Some(mut browser) = Browser::start() else {
        skip!("Chromium is not there: tests/run installs it");
    };
    let name = |number: u64| format!("provider/model-of-some-length-{number:03}");
    let many = (0..150).map(|number| model(&name(number), |_| counted(10_000, 10_000 - number * 7)));
    let site = site(many.collect());
    for (size, width) in [("desk", DESK), ("phone", PHONE)] {
        browser.look(width.0, width.1, "light");
        browser.open(&format!("{}/status", site.base_url()));
        let shown =
            "[...document.querySelectorAll('tbody tr:not(.group)')].filter(row => row.checkVisibility()).length";
        assert_eq!(browser.evaluate(shown), 150);
        assert_eq!(browser.evaluate(OVERFLOW), json!([]), "{size}");
        no_complaints(&mut browser);
    }
    browser.look(DESK.0, DESK.1, "dark");
    picture(&mut browser, "many");
}

#[test]
fn a_page_without_any_data_says_so() {
    let Some(mut browser) = Browser::start() else {
        skip!("Chromium is not there: tests/run installs it");
    };
    let silent = site(vec![model("heron", |_| StabilityCounters::default())]);
    browser.look(DESK.0, DESK.1, "light");
    browser.open(&format!("{}/status", silent.base_url()));
    assert_eq!(browser.evaluate("document.querySelectorAll('table').length"), 0);
    assert_eq!(
        browser.evaluate("document.querySelector('.silent').checkVisibility()"),
        true
    );
    let verdict = "document.querySelector('.verdict').innerText";
    assert_eq!(browser.text(verdict), "Too little traffic for a verdict");
    picture(&mut browser, "no-data");
    let empty = site(Vec::new());
    browser.open(&format!("{}/status", empty.base_url()));
    assert!(
        browser
            .text("document.body.innerText")
            .contains("There are no models yet.")
    );
    no_complaints(&mut browser);
}

/// What the tests above rest on: a browser that complains, and an eye for a blank picture.
#[test]
fn the_browser_complains_where_there_is_reason_to() {
    let Some(mut browser) = Browser::start() else {
        skip!("Chromium is not there: tests/run installs it");
    };
    for (wrong, word) in [
        ("<p style='color: red'>inline</p>", "style"),
        ("<script>1</script>", "script"),
        ("<style>p { color: red }</style>", "style"),
        ("<img src='/picture.png'>", "img-src"),
    ] {
        let site = RecordingProvider::start(move |_, answer| {
            let headers = [("content-type", "text/html"), ("content-security-policy", page::CSP)];
            answer.full(200, &headers, format!("<!DOCTYPE html>{wrong}").as_bytes());
        });
        browser.open(&site.base_url());
        let complaints = browser.complaints();
        assert!(
            complaints.iter().any(|complaint| complaint.contains(word)),
            "{wrong}: {complaints:?}"
        );
    }
    browser.open("about:blank");
    let blank = browser.picture();
    assert_eq!(browser.colours(&blank), 1);
}
