//! Where and when a table was made.

use std::{fs, process::Command};

/// Sets the date of the table, for a run whose clock is not to be trusted.
const DATE_VARIABLE: &str = "WEIR_BENCH_DATE";

/// The machine and the build.
pub(crate) struct Machine {
    /// The processor's name.
    pub(crate) processor: String,
    /// Cores that this process may use.
    pub(crate) cores: usize,
    /// The kernel's release.
    pub(crate) kernel: String,
    /// The compiler.
    pub(crate) compiler: String,
    /// The build profile's folder.
    pub(crate) profile: String,
    /// The day, UTC.
    pub(crate) date: String,
}

impl Machine {
    /// Reads all of it; what cannot be found is `unknown`.
    pub(crate) fn read() -> Self {
        let unknown = || "unknown".to_owned();
        let processors = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let named = processors
            .lines()
            .find(|line| line.starts_with("model name"))
            .and_then(|line| line.split_once(':'));
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").map(|text| text.trim().to_owned());
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let version = Command::new(rustc).arg("--version").output().ok();
        let compiler = version.and_then(|output| Some(String::from_utf8(output.stdout).ok()?.trim().to_owned()));
        let folder = std::path::Path::new(env!("CARGO_BIN_EXE_weir"))
            .parent()
            .and_then(|folder| folder.file_name());
        let today = || {
            jiff::Timestamp::now()
                .to_string()
                .split('T')
                .next()
                .unwrap_or_default()
                .to_owned()
        };
        Self {
            processor: named.map_or_else(unknown, |(_, name)| name.trim().to_owned()),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            kernel: kernel.unwrap_or_else(|_| unknown()),
            compiler: compiler.filter(|text| !text.is_empty()).unwrap_or_else(unknown),
            profile: folder.map_or_else(unknown, |name| name.to_string_lossy().into_owned()),
            date: std::env::var(DATE_VARIABLE).unwrap_or_else(|_| today()),
        }
    }

    /// One line.
    pub(crate) fn line(&self) -> String {
        let Self {
            processor,
            cores,
            kernel,
            compiler,
            profile,
            date,
        } = self;
        format!(
            "{date}, {processor}, {cores} cores for everything, Linux {kernel}, {compiler}, profile `{profile}`, mimalloc"
        )
    }
}
