//! A child process: started, read from `/proc` with the processes that it has started itself, killed when it is no longer held.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

/// Microseconds in a clock tick of `/proc`: Linux shows every process 100 of them a second.
const TICK_MICROS: f64 = 10_000.0;

/// How long a process may take to say that it serves. Under callgrind everything takes fifty times as long.
const START_WAIT: Duration = Duration::from_secs(120);

const START_POLL: Duration = Duration::from_millis(5);

/// A running child.
pub(crate) struct Process {
    name: String,
    child: Child,
    messages: PathBuf,
}

/// A reading of CPU time, to be compared with a later one.
pub(crate) struct CpuReading {
    /// By the thread's id.
    threads: BTreeMap<String, ThreadCpu>,
    user_ticks: f64,
    system_ticks: f64,
}

/// A thread's name, and how long it was on a core, in nanoseconds.
struct ThreadCpu {
    name: String,
    nanos: f64,
}

/// CPU time, in microseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cpu {
    /// All of it, exact.
    pub(crate) total: f64,
    /// What the kernel says it spent itself: exact to a clock tick.
    pub(crate) system: f64,
}

impl CpuReading {
    /// What was spent since `earlier`. What a thread that has ended since then had spent is lost; neither proxy ends
    /// threads under load.
    pub(crate) fn since(&self, earlier: &Self) -> Cpu {
        let ticks = self.user_ticks + self.system_ticks - earlier.user_ticks - earlier.system_ticks;
        let exact: f64 = self.threads_since(earlier).map(|(_, micros)| micros).sum();
        // A kernel without schedstat shows no thread, or zeros.
        let total = if exact > 0.0 { exact } else { ticks * TICK_MICROS };
        Cpu {
            total,
            system: (self.system_ticks - earlier.system_ticks) * TICK_MICROS,
        }
    }

    /// Microseconds since `earlier` by the names of the threads, of which several may have the same.
    pub(crate) fn by_thread(&self, earlier: &Self) -> BTreeMap<String, f64> {
        let mut spent = BTreeMap::new();
        for (name, micros) in self.threads_since(earlier) {
            *spent.entry(name.to_owned()).or_default() += micros;
        }
        spent
    }

    fn threads_since<'a>(&'a self, earlier: &'a Self) -> impl Iterator<Item = (&'a str, f64)> {
        self.threads.iter().map(|(id, now)| {
            let before = earlier.threads.get(id).map_or(0.0, |before| before.nanos);
            (now.name.as_str(), (now.nanos - before) / 1000.0)
        })
    }
}

/// Memory, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    /// Resident.
    pub(crate) resident: f64,
    /// Resident, shared pages counted in part; the kernel's own exact count.
    pub(crate) proportional: f64,
}

/// The threads of a process by id, each with its folder.
fn tasks(process: u32) -> impl Iterator<Item = (String, PathBuf)> {
    let tasks = fs::read_dir(format!("/proc/{process}/task"))
        .into_iter()
        .flatten()
        .flatten();
    tasks.map(|task| (task.file_name().to_string_lossy().into_owned(), task.path()))
}

impl Process {
    /// Starts the command; what it says on stdout and stderr goes to files in `folder`.
    pub(crate) fn start(name: &str, command: &mut Command, folder: &Path) -> Self {
        let messages = folder.join(format!("{name}.err"));
        let child = command
            .stdin(Stdio::null())
            .stdout(File::create(folder.join(format!("{name}.out"))).expect("a file in the temporary folder"))
            .stderr(File::create(&messages).expect("a file in the temporary folder"))
            .spawn()
            .unwrap_or_else(|error| panic!("{name} cannot be started: {error}"));
        Self {
            name: name.to_owned(),
            child,
            messages,
        }
    }

    /// Its process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for a line `... listening on http://ADDRESS`, then for the address to accept.
    pub(crate) fn announced_address(&mut self) -> SocketAddr {
        let told = self.messages.with_extension("out");
        let address = self.wait_for("to say where it listens", || {
            let mut line = String::new();
            BufReader::new(File::open(&told).ok()?).read_line(&mut line).ok()?;
            line.strip_suffix('\n')?.rsplit_once("http://")?.1.parse().ok()
        });
        self.wait_until_accepting(address);
        address
    }

    /// Waits until something accepts connections at `address`.
    pub(crate) fn wait_until_accepting(&mut self, address: SocketAddr) {
        self.wait_for("to accept connections", || std::net::TcpStream::connect(address).ok());
    }

    /// Waits until `ready` gives something; panics with what the process said when it ends or takes too long.
    pub(crate) fn wait_for<T>(&mut self, what: &str, mut ready: impl FnMut() -> Option<T>) -> T {
        let started = Instant::now();
        loop {
            if let Some(found) = ready() {
                return found;
            }
            let ended = self.child.try_wait().expect("a child can be waited for");
            if ended.is_some() || started.elapsed() > START_WAIT {
                let said = fs::read_to_string(&self.messages).unwrap_or_default();
                let state = ended.map_or_else(|| "still runs".to_owned(), |status| status.to_string());
                panic!("waited in vain for {} {what} ({state}); it said:\n{said}", self.name);
            }
            std::thread::sleep(START_POLL);
        }
    }

    /// CPU time of all threads until now.
    pub(crate) fn cpu(&self) -> CpuReading {
        let mut reading = CpuReading {
            threads: BTreeMap::new(),
            user_ticks: 0.0,
            system_ticks: 0.0,
        };
        for id in self.family() {
            let text = self.proc(id, "stat");
            // The name in parentheses may hold anything; the fields behind it are numbered from 3 (proc(5)).
            let fields: Vec<&str> = text
                .rsplit_once(')')
                .expect("stat has a name")
                .1
                .split_whitespace()
                .collect();
            let ticks = |field: usize| fields[field - 3].parse::<f64>().expect("stat has numbers");
            reading.user_ticks += ticks(14);
            reading.system_ticks += ticks(15);
            reading.threads.extend(Self::threads(id));
        }
        reading
    }

    /// It, and the processes that it has started and that run.
    fn family(&self) -> Vec<u32> {
        let mut family = vec![self.child.id()];
        let mut at = 0;
        while let Some(id) = family.get(at) {
            let started = tasks(*id).map(|(_, task)| fs::read_to_string(task.join("children")).unwrap_or_default());
            let started: String = started.collect();
            family.extend(started.split_whitespace().filter_map(|id| id.parse::<u32>().ok()));
            at += 1;
        }
        family
    }

    /// Ticks are too coarse for a short round, so the scheduler's own count is summed.
    fn threads(id: u32) -> BTreeMap<String, ThreadCpu> {
        let threads = tasks(id).filter_map(|(id, task)| {
            let text = fs::read_to_string(task.join("schedstat")).ok()?;
            let nanos = text.split_whitespace().next()?.parse().ok()?;
            let name = fs::read_to_string(task.join("comm")).ok()?.trim_end().to_owned();
            Some((id, ThreadCpu { name, nanos }))
        });
        threads.collect()
    }

    /// The cores that each of its threads may use.
    pub(crate) fn cores(&self) -> Vec<String> {
        let cores = tasks(self.child.id()).filter_map(|(_, task)| {
            let status = fs::read_to_string(task.join("status")).ok()?;
            let mut lines = status.lines();
            let list = lines.find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
            Some(list.trim().to_owned())
        });
        cores.collect()
    }

    /// Memory as it is now.
    pub(crate) fn memory(&self) -> Memory {
        let texts: Vec<String> = self
            .family()
            .into_iter()
            .map(|id| self.proc(id, "smaps_rollup"))
            .collect();
        let bytes = |field: &str| {
            let of_one = |text: &String| {
                let line = text
                    .lines()
                    .find_map(|line| line.strip_prefix(field))
                    .expect("smaps_rollup has the field");
                line.trim().trim_end_matches(" kB").parse::<f64>().expect("kilobytes") * 1024.0
            };
            texts.iter().map(of_one).sum()
        };
        Memory {
            resident: bytes("Rss:"),
            proportional: bytes("Pss:"),
        }
    }

    fn proc(&self, id: u32, file: &str) -> String {
        let path = format!("/proc/{id}/{file}");
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{} ended early ({path}: {error})", self.name))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself; either way nothing is left to do.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
