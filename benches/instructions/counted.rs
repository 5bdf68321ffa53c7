//! A process under callgrind, whose counters are set to zero before a load and read behind it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::{process::Process, profile::Profile};

/// What callgrind's files begin with, in the process's folder.
const FILES: &str = "callgrind";

/// Copies as vector loads and stores: valgrind counts each byte of a `rep movsb` as an instruction, which is what the C
/// library takes for large copies.
const TUNABLES: &str = "glibc.cpu.x86_rep_movsb_threshold=1000000000:glibc.cpu.x86_rep_stosb_threshold=1000000000";

/// Whether valgrind can be started here.
pub(crate) fn has_callgrind() -> bool {
    let version = Command::new("valgrind")
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    version.is_ok_and(|status| status.success())
}

/// The program under callgrind, its files in `home`.
pub(crate) fn command(program: &Path, home: &Path) -> Command {
    let mut command = Command::new("valgrind");
    command
        .args(["--tool=callgrind", "--separate-threads=yes"])
        .arg(format!("--callgrind-out-file={}", home.join(FILES).display()))
        .arg(program)
        .env("GLIBC_TUNABLES", TUNABLES);
    command
}

/// Sets the counters to zero.
pub(crate) fn zero(process: &Process) {
    control("--zero", process);
}

/// What was counted since the last call, or since the counters were set to zero. `home` is that of [`command`].
pub(crate) fn take(process: &Process, home: &Path) -> Profile {
    control("--dump", process);
    let files = files(home);
    let profile = Profile::read(&files);
    for file in files {
        fs::remove_file(file).expect("callgrind's file can be removed");
    }
    profile
}

/// Keeps what was counted since the last call in a folder, for `callgrind_annotate`.
pub(crate) fn keep(process: &Process, home: &Path, folder: &Path, name: &str) -> Profile {
    control("--dump", process);
    let files = files(home);
    fs::create_dir_all(folder).expect("--keep: a folder");
    for file in &files {
        let thread = file.extension().unwrap_or_default().to_string_lossy();
        fs::copy(file, folder.join(format!("{name}.{thread}"))).expect("--keep: a file in the folder");
    }
    let profile = Profile::read(&files);
    for file in files {
        fs::remove_file(file).expect("callgrind's file can be removed");
    }
    profile
}

fn control(what: &str, process: &Process) {
    let told = Command::new("callgrind_control")
        .arg(what)
        .arg(process.id().to_string())
        .output()
        .expect("callgrind_control comes with valgrind");
    let said = String::from_utf8_lossy(&told.stdout);
    assert!(said.contains("OK"), "callgrind_control {what}: {said}");
}

/// The files of all threads: `callgrind.NUMBER-THREAD`.
fn files(home: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(home).expect("the process's folder").flatten();
    let is_dump = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.strip_prefix(FILES).is_some_and(|rest| rest.starts_with('.'))
    };
    entries.map(|entry| entry.path()).filter(is_dump).collect()
}
