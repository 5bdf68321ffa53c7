//! The standard `process_*` metrics, read from `/proc/self`.

use super::declared::ProcessMetrics;

/// `/proc` counts CPU time in these ticks on every Linux architecture (`USER_HZ`).
const TICKS_PER_SECOND: f64 = 100.0;

impl ProcessMetrics {
    /// Sets the start of the process to now.
    pub(super) fn set_start(&self) {
        self.started.set(crate::edges::clock::unix_seconds());
    }

    /// Updates the metrics of the process. Those that cannot be read stay as they are.
    pub(super) fn sample(&self) {
        let (status, limits) = (read("/proc/self/status"), read("/proc/self/limits"));
        let resident = field(&status, "VmRSS:").and_then(|kib| kib.checked_mul(1024));
        for (gauge, value) in [
            (&self.resident_bytes, resident),
            (&self.threads, field(&status, "Threads:")),
            (&self.open_fds, open_fds()),
            (&self.max_fds, field(&limits, "Max open files")),
        ] {
            if let Some(value) = value {
                gauge.set(value);
            }
        }
        if let Some(seconds) = cpu_seconds(&read("/proc/self/stat")) {
            self.cpu_seconds.raise_to(seconds);
        }
    }
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
    // One of them is that of the listing itself.
    u64::try_from(listed.saturating_sub(1)).ok()
}

/// `utime` and `stime` are fields 14 and 15; field 2 is the name in parentheses and may contain anything.
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
        let text = super::super::Metrics::new(&[], &[]).unwrap().render();
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
            assert!(value.is_some_and(|value| value > 0.0), "{name} in {text}");
        }
    }
}
