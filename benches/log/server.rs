//! `weir serve` on a log, and `weir log export` against it.

use std::{
    fs,
    io::Read,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

/// The first word of a call that is weir's.
pub(crate) const AS_WEIR: &str = "as-weir";
/// How long a start may take.
const START_WAIT: Duration = Duration::from_secs(120);

/// A running weir.
pub(crate) struct Server {
    child: Child,
    admin: PathBuf,
    /// From its start until it answers.
    pub(crate) took: Duration,
}

fn weir() -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.arg(AS_WEIR).env("WEIR_BENCH_SECRET", "bench-provider-secret");
    command
}

impl Server {
    /// With a log at home in a folder, and everything else anew.
    pub(crate) fn start(folder: &Path, log: &Path) -> Self {
        let home = tempfile::tempdir_in(folder).expect("a temporary folder").keep();
        let shown = home.display();
        let text = format!(
            "[gateway]\nlisten = \"127.0.0.1:0\"\n\
             [store]\nengine = \"embedded\"\n[store.embedded]\npath = \"{shown}/store\"\n\
             [ops]\nlisten = \"127.0.0.1:0\"\n\
             [admin]\nsocket = \"{shown}/admin.sock\"\naudit = \"{shown}/audit.jsonl\"\n\
             [journal]\npath = \"{shown}/journal\"\n\
             [prices]\nfile = \"{shown}/prices.toml\"\n\
             [log]\naccess = \"{shown}/access.jsonl\"\nlevel = \"warn\"\nhome = \"files\"\n\
             [log.files]\npath = \"{log}\"\n\
             [provider.anthropic]\nbase_url = \"http://127.0.0.1:9\"\nsecret = \"env:WEIR_BENCH_SECRET\"\n\
             [[model]]\nname = \"bench\"\nproviders = [\"anthropic\"]\nprotocols = [\"messages\"]\n",
            log = log.display(),
        );
        let prices = "version = \"bench\"\n[[price]]\nname = \"bench\"\ntiers = [{ input = \"3\", output = \"15\" }]\n";
        fs::create_dir(home.join("etc")).expect("a folder");
        fs::write(home.join("prices.toml"), prices).expect("a file in the temporary folder");
        let conf = home.join("etc/weir.toml");
        fs::write(&conf, text).expect("a file in the temporary folder");
        let ready = home.join("ready.json");
        let began = Instant::now();
        let mut command = weir();
        command
            .arg("serve")
            .arg("--conf")
            .arg(&conf)
            .arg("--ready-file")
            .arg(&ready);
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("weir starts");
        while !ready.exists() {
            let ended = child.try_wait().expect("a child");
            assert!(ended.is_none() && began.elapsed() < START_WAIT, "weir does not start");
            std::thread::sleep(Duration::from_millis(1));
        }
        Self {
            child,
            admin: home.join("admin.sock"),
            took: began.elapsed(),
        }
    }

    /// All rows; how long it took, and how many bytes they are.
    pub(crate) fn export(&self, form: &str) -> (Duration, u64) {
        let began = Instant::now();
        let mut command = weir();
        command.args(["log", "export", "--format", form, "--admin"]);
        command.arg(format!("unix:{}", self.admin.display()));
        let mut child = command.stdout(Stdio::piped()).spawn().expect("an export starts");
        let mut out = child.stdout.take().expect("its output");
        let (mut bytes, mut piece) = (0, vec![0; 1 << 20]);
        loop {
            match out.read(&mut piece).expect("its output") {
                0 => break,
                count => bytes += count as u64,
            }
        }
        assert!(child.wait().expect("a child").success(), "the export is whole");
        (began.elapsed(), bytes)
    }

    /// The most memory that it has had, in bytes.
    pub(crate) fn peak_bytes(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("a running weir");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kilobytes = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
        kilobytes.expect("a peak") * 1024
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
