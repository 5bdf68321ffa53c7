//! The standard `process_*` metrics, read from `/proc/self`. What cannot be read is left out.

use std::fmt::Write;

/// `/proc` counts CPU time in these ticks on every Linux architecture (`USER_HZ`).
const TICKS_PER_SECOND: f64 = 100.0;

/// The process, since its metrics were set up.
pub(super) struct Process {
    started_unix: i64,
}

impl Process {
    pub(super) fn new() -> Self {
        Self {
            started_unix: crate::edges::clock::unix_seconds(),
        }
    }

    pub(super) fn render(&self, out: &mut String) {
        let status = read("/proc/self/status");
        let limits = read("/proc/self/limits");
        let stat = read("/proc/self/stat");
        let start = u64::try_from(self.started_unix).ok();
        let gauges = [
            ("process_start_time_seconds", "Start of the process, Unix time.", start),
            (
                "process_resident_memory_bytes",
                "Memory in use.",
                field(&status, "VmRSS:").and_then(|kib| kib.checked_mul(1024)),
            ),
            ("process_threads", "Threads.", field(&status, "Threads:")),
            ("process_open_fds", "Open file descriptors.", open_fds()),
            (
                "process_max_fds",
                "The most file descriptors that may be open.",
                field(&limits, "Max open files"),
            ),
        ];
        for (name, help, value) in gauges {
            if let Some(value) = value {
                line(out, name, help, "gauge", &value);
            }
        }
        if let Some(seconds) = cpu_seconds(&stat) {
            line(
                out,
                "process_cpu_seconds_total",
                "User and system CPU time.",
                "counter",
                &seconds,
            );
        }
    }
}

fn line(out: &mut String, name: &str, help: &str, kind: &str, value: &dyn std::fmt::Display) {
    // Writing to a String cannot fail.
    let _written = write!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n");
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// The first number after `key` at the start of a line.
fn field(text: &str, key: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(key))?;
    rest.split_ascii_whitespace().next()?.parse().ok()
}

fn open_fds() -> Option<u64> {
    let listed = std::fs::read_dir("/proc/self/fd").ok()?.count();
    // One of them is the listing's own.
    u64::try_from(listed.saturating_sub(1)).ok()
}

/// `utime` and `stime` are fields 14 and 15; field 2 is the name in parentheses and may hold anything.
fn cpu_seconds(stat: &str) -> Option<f64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut ticks = rest.split_ascii_whitespace().skip(11).map(str::parse::<f64>);
    let (user, system) = (ticks.next()?.ok()?, ticks.next()?.ok()?);
    Some((user + system) / TICKS_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_read_past_an_odd_process_name() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194304 100 0 0 0 150 50 0 0 20 0 1 0 5 1 1";
        assert_eq!(cpu_seconds(stat), Some(2.0));
        assert_eq!(cpu_seconds(""), None);
    }

    #[test]
    fn this_process_has_all_of_them() {
        let mut text = String::new();
        Process::new().render(&mut text);
        for name in [
            "process_start_time_seconds",
            "process_resident_memory_bytes",
            "process_threads",
            "process_open_fds",
            "process_max_fds",
            "process_cpu_seconds_total",
        ] {
            let line = text.lines().find(|line| line.starts_with(&format!("{name} ")));
            let value = line
                .and_then(|line| line.rsplit(' ').next())
                .and_then(|text| text.parse::<f64>().ok());
            assert!(value.is_some_and(|value| value >= 0.0), "{name} in {text}");
        }
    }
}
