//! Headless Chromium, driven over the DevTools protocol: JSON messages with a zero byte behind each, on two pipes.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};
use tempfile::TempDir;

use super::tools::program;
use super::wait::{DEADLINE, wait_until};

/// The browser reads its orders from descriptor 3 and answers on 4; a shell puts the two pipes there.
const START: &str = r#"exec 3<&0 4>&1 </dev/null >/dev/null 2>"$0"; exec "$@""#;

/// Counts the colours of a picture, made small.
const COLOURS: &str =
    "fetch('data:image/png;base64,PICTURE').then(answer => answer.blob()).then(createImageBitmap).then(picture => {
     const canvas = new OffscreenCanvas(300, 300).getContext('2d');
     canvas.drawImage(picture, 0, 0, 300, 300);
     return new Set(new Uint32Array(canvas.getImageData(0, 0, 300, 300).data.buffer)).size })";

/// A running browser with one page.
pub(crate) struct Browser {
    child: Child,
    orders: ChildStdin,
    messages: Receiver<Json>,
    session: Option<String>,
    last: u64,
    complaints: Vec<String>,
    /// How many documents were loaded.
    loads: u64,
    folder: TempDir,
}

impl Browser {
    /// Starts one with an empty page; None when there is no Chromium on this machine.
    pub(crate) fn start() -> Option<Browser> {
        let chromium = program("chromium").or_else(|| program("chromium-browser"))?;
        let folder = TempDir::new().unwrap();
        let mut child = Command::new("sh")
            .args(["-c", START])
            .arg(folder.path().join("stderr"))
            .arg(chromium)
            // As root it has no sandbox; the pages are the tests' own.
            .args([
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
            ])
            .args([
                "--no-first-run",
                "--disable-background-networking",
                "--disable-component-update",
            ])
            .args(["--disable-sync", "--disable-default-apps", "--hide-scrollbars"])
            .arg("--remote-debugging-pipe")
            .arg(format!("--user-data-dir={}", folder.path().join("profile").display()))
            .arg("about:blank")
            .env("HOME", folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        let (sender, messages) = channel();
        thread::spawn(move || {
            for message in answers.split(0).map_while(Result::ok) {
                let message = serde_json::from_slice(&message).expect("the browser writes JSON");
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let mut browser = Browser {
            orders: child.stdin.take().unwrap(),
            child,
            messages,
            session: None,
            last: 0,
            complaints: Vec::new(),
            loads: 0,
            folder,
        };
        let page = browser.call("Target.createTarget", &json!({"url": "about:blank"}));
        let attach = json!({"targetId": page["targetId"], "flatten": true});
        let session = browser.call("Target.attachToTarget", &attach);
        browser.session = Some(session["sessionId"].as_str().unwrap().to_owned());
        for domain in ["Page", "Runtime", "Log", "Audits", "Network"] {
            browser.call(&format!("{domain}.enable"), &json!({}));
        }
        Some(browser)
    }

    /// The window's width and height, in pixels of CSS, and the theme that the reader prefers: `light` or `dark`.
    pub(crate) fn look(&mut self, width: u32, height: u32, theme: &str) {
        let metrics = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600});
        self.call("Emulation.setDeviceMetricsOverride", &metrics);
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": theme}]});
        self.call("Emulation.setEmulatedMedia", &features);
    }

    /// From the next document on, pages run no scripts. What the tests ask for runs all the same.
    pub(crate) fn switch_scripts_off(&mut self) {
        self.call("Emulation.setScriptExecutionDisabled", &json!({"value": true}));
    }

    /// Opens an address and waits until it is loaded.
    pub(crate) fn open(&mut self, url: &str) {
        let opened = self.call("Page.navigate", &json!({"url": url}));
        assert!(opened.get("errorText").is_none(), "{url}: {opened}");
        // Of this document, not of the one before: asked for after the navigation is committed. Not by a listener, which a page
        // without scripts would not call.
        wait_until("the document to be loaded", || {
            self.evaluate("document.readyState") == "complete"
        });
    }

    /// Does what leads to another document, and waits until that is loaded.
    #[track_caller]
    pub(crate) fn leave_by(&mut self, expression: &str) {
        self.leave(expression, |browser| {
            browser.evaluate(expression);
        });
    }

    /// Presses a key that leads to another document, and waits until that is loaded.
    #[track_caller]
    pub(crate) fn leave_by_key(&mut self, key: &str) {
        self.leave(key, |browser| browser.press(key));
    }

    /// Presses a key and lets it go: `Tab`, `Enter`, `ArrowRight`.
    #[track_caller]
    pub(crate) fn press(&mut self, key: &str) {
        let code = match key {
            "Tab" => 9,
            "Enter" => 13,
            "ArrowRight" => 39,
            other => panic!("the code of {other} is not known"),
        };
        for kind in ["rawKeyDown", "char", "keyUp"] {
            let text = if kind == "char" && key == "Enter" { "\r" } else { "" };
            if kind == "char" && text.is_empty() {
                continue;
            }
            let event = json!({"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code, "text": text});
            self.call("Input.dispatchKeyEvent", &event);
        }
    }

    /// Moves the focus with the Tab key until this holds of `e`, the element that has it.
    #[track_caller]
    pub(crate) fn tab_to(&mut self, wanted: &str) {
        for _ in 0..100 {
            if self.evaluate(&format!("(e => {wanted})(document.activeElement)")) == true {
                return;
            }
            self.press("Tab");
        }
        panic!("the Tab key leads to nothing of which {wanted}");
    }

    /// Types into what has the focus.
    #[track_caller]
    pub(crate) fn enter(&mut self, text: &str) {
        self.call("Input.insertText", &json!({"text": text}));
    }

    fn leave(&mut self, how: &str, act: impl FnOnce(&mut Self)) {
        // The load of the document that is left may be told late: it is none of the next one's.
        self.evaluate("globalThis.isLeft = true");
        // What is done may have led there before it is answered.
        let mut before = self.loads;
        act(self);
        let until = Instant::now() + DEADLINE;
        loop {
            while self.loads == before {
                let left = until.saturating_duration_since(Instant::now());
                match self.messages.recv_timeout(left) {
                    Ok(message) => self.notice(&message),
                    Err(error) => panic!("no document behind {how}: {error}"),
                }
            }
            let seen = self.loads;
            if self.evaluate("globalThis.isLeft !== true") == true {
                return;
            }
            before = seen;
        }
    }

    /// The value of an expression of JavaScript in the page; promises are awaited.
    #[track_caller]
    pub(crate) fn evaluate(&mut self, expression: &str) -> Json {
        let order = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let mut answer = self.call("Runtime.evaluate", &order);
        assert!(answer.get("exceptionDetails").is_none(), "{expression}: {answer}");
        answer["result"]["value"].take()
    }

    /// The same as text.
    #[track_caller]
    pub(crate) fn text(&mut self, expression: &str) -> String {
        let value = self.evaluate(expression);
        value
            .as_str()
            .unwrap_or_else(|| panic!("{expression} is {value}"))
            .to_owned()
    }

    /// A picture of the whole page as PNG in base64.
    pub(crate) fn picture(&mut self) -> String {
        self.picture_beyond_the_window(true)
    }

    /// A picture of what the window shows.
    pub(crate) fn view(&mut self) -> String {
        self.picture_beyond_the_window(false)
    }

    fn picture_beyond_the_window(&mut self, is_whole: bool) -> String {
        let order = json!({"format": "png", "captureBeyondViewport": is_whole});
        let picture = self.call("Page.captureScreenshot", &order);
        picture["data"].as_str().unwrap().to_owned()
    }

    /// How many colours a picture has. Leaves the page: its policy would not let the picture be looked at.
    pub(crate) fn colours(&mut self, picture: &str) -> u64 {
        self.open("about:blank");
        let colours = self.evaluate(&COLOURS.replace("PICTURE", picture));
        colours.as_u64().unwrap()
    }

    /// What the console, the policy and the network had to complain of since the last call.
    pub(crate) fn complaints(&mut self) -> Vec<String> {
        // Two frames later the page has reported what it had to report.
        self.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(0))))");
        std::mem::take(&mut self.complaints)
    }

    /// Calls a method and waits for its result; what else comes meanwhile is looked through for complaints.
    #[track_caller]
    fn call(&mut self, method: &str, parameters: &Json) -> Json {
        self.last += 1;
        let mut order = json!({"id": self.last, "method": method, "params": parameters});
        if let Some(session) = &self.session {
            order["sessionId"] = json!(session);
        }
        let mut order = order.to_string().into_bytes();
        order.push(0);
        let _ = self.orders.write_all(&order);
        let until = Instant::now() + DEADLINE;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let mut message = match self.messages.recv_timeout(left) {
                Ok(message) => message,
                Err(RecvTimeoutError::Timeout) => panic!("the browser did not answer {method} within {DEADLINE:?}"),
                Err(RecvTimeoutError::Disconnected) => panic!("the browser ended before {method}: {}", self.said()),
            };
            if message["id"] == self.last {
                assert!(message.get("error").is_none(), "{method}: {message}");
                return message["result"].take();
            }
            self.notice(&message);
        }
    }

    fn notice(&mut self, message: &Json) {
        self.loads += u64::from(message["method"] == "Page.loadEventFired");
        self.complaints.extend(complaint(message));
    }

    fn said(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("stderr")).unwrap_or_default()
    }
}

/// What an event says, if it is a complaint.
fn complaint(message: &Json) -> Option<String> {
    let parameters = &message["params"];
    match message["method"].as_str()? {
        "Log.entryAdded" => Some(parameters["entry"].to_string()),
        "Audits.issueAdded" => Some(parameters["issue"].to_string()),
        "Runtime.consoleAPICalled"
        | "Runtime.exceptionThrown"
        | "Network.loadingFailed"
        | "Page.javascriptDialogOpening" => Some(message.to_string()),
        _ => None,
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The browser closes when nobody gives it orders any more; asked for, it ends its helpers too.
        let _ = self.orders.write_all(b"{\"id\":0,\"method\":\"Browser.close\"}\0");
        let until = Instant::now() + Duration::from_secs(5);
        while self.child.try_wait().is_ok_and(|ended| ended.is_none()) && Instant::now() < until {
            thread::sleep(Duration::from_millis(3));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
