//! A program at a terminal: what it shows is read as text, and keys are typed once it shows what they answer.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use super::wait::wait_within;

/// A program at a terminal of its own. It is hung up on when this is dropped.
pub(crate) struct Terminal {
    script: Child,
    keys: ChildStdin,
    shown: Arc<Mutex<Vec<u8>>>,
    /// How much of it has been looked at.
    seen: usize,
    limit: Duration,
}

impl Terminal {
    /// Starts `command` for a shell in `folder`, with nothing but `environment`; each thing that it is to show may take `limit`.
    /// None: `script`, which makes terminals, is not there.
    pub(crate) fn start(
        command: &str,
        environment: &[(&str, String)],
        folder: &Path,
        limit: Duration,
    ) -> Option<Terminal> {
        let mut script = Command::new("/usr/bin/script")
            .args(["-q", "-e", "-f", "-c"])
            .arg(format!("stty cols 150 rows 50; exec {command}"))
            .arg("/dev/null")
            .env_clear()
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .current_dir(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .ok()?;
        let (keys, mut screen) = (script.stdin.take().unwrap(), script.stdout.take().unwrap());
        let shown: Arc<Mutex<Vec<u8>>> = Arc::default();
        let filled = Arc::clone(&shown);
        thread::spawn(move || {
            let mut space = [0_u8; 4096];
            while let Ok(count @ 1..) = screen.read(&mut space) {
                filled.lock().unwrap().extend_from_slice(&space[..count]);
            }
        });
        Some(Terminal {
            script,
            keys,
            shown,
            seen: 0,
            limit,
        })
    }

    /// Waits until it shows `words` since what was waited for before, and returns all that it has shown since, without any white
    /// space: programs move the cursor instead of writing it.
    #[track_caller]
    pub(crate) fn until(&mut self, words: &str) -> String {
        let wanted: String = words.split_whitespace().collect();
        let found = wait_within(self.limit, || {
            let shown = self.shown.lock().unwrap();
            let text = text(&shown[self.seen..]);
            text.contains(&wanted).then_some((text, shown.len()))
        });
        let Some((text, seen)) = found else {
            let shown = self.shown.lock().unwrap();
            panic!("{words:?} is not shown, but {}", text(&shown[self.seen..]));
        };
        self.seen = seen;
        text
    }

    /// Types these keys.
    pub(crate) fn keys(&mut self, keys: &str) {
        // A program that has ended shows nothing more, which is found then.
        let _ = self.keys.write_all(keys.as_bytes());
        let _ = self.keys.flush();
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.script.kill();
        let _ = self.script.wait();
    }
}

/// What is written, without control sequences (ECMA-48, section 5) and white space.
fn text(shown: &[u8]) -> String {
    let shown = String::from_utf8_lossy(shown);
    let mut chars = shown.chars().peekable();
    let mut text = String::new();
    while let Some(char) = chars.next() {
        match char {
            '\u{1b}' => match chars.next() {
                Some('[') => while chars.next().is_some_and(|char| !matches!(char, '@'..='~')) {},
                Some(']') => {
                    // It ends with BEL, or with ESC and a backslash, which is skipped as a sequence of its own.
                    while chars.peek().is_some_and(|char| !matches!(char, '\u{7}' | '\u{1b}')) {
                        chars.next();
                    }
                }
                _ => {}
            },
            char if char.is_whitespace() || char.is_control() => {}
            char => text.push(char),
        }
    }
    text
}
