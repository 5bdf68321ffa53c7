//! A child process that is ended by its own id, whatever happens to the test.

use std::fs::File;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use super::tools::program;
use super::wait::{wait_for, wait_within};

/// How long a process may take to obey SIGTERM before it is killed.
const TERM_PATIENCE: Duration = Duration::from_millis(700);

/// A running child; its output goes to two files.
pub(crate) struct Process {
    child: Child,
    pub(crate) stdout: PathBuf,
    pub(crate) stderr: PathBuf,
}

impl Process {
    /// Starts `command` with its output in `folder/NAME.stdout` and `folder/NAME.stderr`.
    pub(crate) fn start(command: &Command, folder: &Path, name: &str) -> Process {
        let mut command = tied_to_this_thread(command);
        command
            .stdin(Stdio::null())
            .stdout(appended(&output(folder, name, "stdout")));
        Process::start_as_it_is(command, folder, name)
    }

    /// Starts `command` with the standard input and output that it has, and its errors in `folder/NAME.stderr`.
    pub(crate) fn start_as_it_is(mut command: Command, folder: &Path, name: &str) -> Process {
        let stderr = output(folder, name, "stderr");
        let child = command
            .stderr(appended(&stderr))
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        let stdout = output(folder, name, "stdout");
        Process { child, stdout, stderr }
    }

    /// The process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The most memory it ever had resident, in bytes.
    pub(crate) fn peak_memory(&self) -> usize {
        status_bytes(self.id(), "VmHWM:")
    }

    /// The memory that it has resident, in bytes.
    pub(crate) fn memory(&self) -> usize {
        status_bytes(self.id(), "VmRSS:")
    }

    /// The number of files and sockets that it has open.
    pub(crate) fn open_files(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.id())).unwrap().count()
    }

    /// How nice (`nice(2)`) its thread of that name is.
    pub(crate) fn niceness(&self, thread: &str) -> Option<i32> {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.id())).unwrap();
        threads.flatten().find_map(|of_process| {
            // The name in parentheses may hold anything; the fields behind it are numbered from 3 (proc(5)).
            let stat = std::fs::read_to_string(of_process.path().join("stat")).ok()?;
            let (name, fields) = stat.split_once('(')?.1.rsplit_once(") ")?;
            let nice = || fields.split_whitespace().nth(19 - 3)?.parse().ok();
            (name == thread).then(nice)?
        })
    }

    /// What it wrote to stdout so far.
    pub(crate) fn out(&self) -> String {
        text_so_far(&self.stdout)
    }

    /// What it wrote to stderr so far.
    pub(crate) fn err(&self) -> String {
        text_so_far(&self.stderr)
    }

    /// The exit status, when it has ended.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Sends a signal (`TERM`, `QUIT`, `STOP`, ...) to this very process.
    pub(crate) fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        let _ = Command::new("sh")
            .args(["-c", "kill -s \"$0\" \"$1\"", name, &id])
            .status();
    }

    /// Waits until it has ended.
    #[track_caller]
    pub(crate) fn wait_ended(&mut self) -> ExitStatus {
        let what = format!("the end of process {}", self.id());
        wait_for(&what, || self.ended())
    }

    /// Ends it at once, as `kill -9` does.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the threads of the process with this id have used of the processors.
pub(crate) fn processor_time(id: u32) -> Duration {
    let threads = std::fs::read_dir(format!("/proc/{id}/task")).unwrap();
    let of_thread = |thread: std::io::Result<std::fs::DirEntry>| {
        let stat = std::fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
        stat.split_whitespace().next()?.parse::<u64>().ok()
    };
    Duration::from_nanos(threads.filter_map(of_thread).sum())
}

fn output(folder: &Path, name: &str, stream: &str) -> PathBuf {
    folder.join(format!("{name}.{stream}"))
}

/// A FIFO is opened to be read too: otherwise its reader would be waited for.
fn appended(file: &Path) -> File {
    let is_fifo = file.metadata().is_ok_and(|there| there.file_type().is_fifo());
    File::options()
        .create(true)
        .append(true)
        .read(is_fifo)
        .open(file)
        .unwrap()
}

/// What a file holds. What is no file has no end, and is its test's to read.
fn text_so_far(file: &Path) -> String {
    let is_file = file.metadata().is_ok_and(|there| there.is_file());
    let bytes = is_file.then(|| std::fs::read(file).unwrap_or_default());
    String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned()
}

/// The same command, killed by the kernel when the thread that starts it ends: also when the test runner itself is
/// killed, nothing is left running. Without `setpriv` (Debian has it everywhere) the command stays as it is.
fn tied_to_this_thread(command: &Command) -> Command {
    let mut tied = match program("setpriv") {
        Some(setpriv) => {
            let mut tied = Command::new(setpriv);
            tied.args(["--pdeathsig", "KILL"]).arg(command.get_program());
            tied
        }
        None => Command::new(command.get_program()),
    };
    tied.args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => tied.env(name, value),
            None => tied.env_remove(name),
        };
    }
    tied
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.ended().is_some() {
            return;
        }
        self.signal("TERM");
        if wait_within(TERM_PATIENCE, || self.ended()).is_none() {
            self.kill();
        }
    }
}

fn status_bytes(id: u32, name: &str) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    let kib: usize = line.trim().trim_end_matches("kB").trim().parse().unwrap();
    kib * 1024
}
