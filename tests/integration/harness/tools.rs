//! Tools the tests need beside Rust: where they are, and what happens when they are missing.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Skips the running test with a word, or fails it where the tools must be there (CI=true or WEIR_REQUIRE_TOOLS=1).
macro_rules! skip {
    ($($word:tt)*) => {{
        $crate::harness::tools::skipped(&format!($($word)*));
        return;
    }};
}
pub(crate) use skip;

/// Tells that a test is left out. Written past libtest's capture, so that it is seen although the test passes.
#[track_caller]
pub(crate) fn skipped(word: &str) {
    assert!(
        !tools_required(),
        "{word} (a missing tool fails here: CI=true or WEIR_REQUIRE_TOOLS=1)"
    );
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    let _ = writeln!(std::io::stderr(), "skipped {test}: {word}");
}

/// True where a missing tool is a failure.
pub(crate) fn tools_required() -> bool {
    let set = |name: &str, value: &str| std::env::var(name).is_ok_and(|found| found == value);
    set("CI", "true") || set("WEIR_REQUIRE_TOOLS", "1")
}

/// How often something is repeated: `short` usually, `long` in `tests/run --full` (WEIR_FULL=1).
pub(crate) fn rounds(short: usize, long: usize) -> usize {
    if std::env::var("WEIR_FULL").is_ok_and(|value| value == "1") {
        long
    } else {
        short
    }
}

/// Tells a figure of a long run; said aloud in `tests/run --full` only.
pub(crate) fn note(text: &str) {
    if rounds(0, 1) == 1 {
        let _ = writeln!(std::io::stderr(), "{text}");
    }
}

/// The environment variable with the path of the weir that is shipped. The tests start it instead of the one built beside them.
const SHIPPED: &str = "WEIR_SHIPPED";

/// The weir that the tests start: the one built beside them or, in `tests/run --full`, the optimized one (WEIR_SHIPPED).
pub(crate) fn weir_program() -> PathBuf {
    match std::env::var_os(SHIPPED).filter(|program| !program.is_empty()) {
        Some(program) => Path::new(&program).canonicalize().unwrap(),
        None => env!("CARGO_BIN_EXE_weir").into(),
    }
}

/// True where the weir that the tests start is optimized.
pub(crate) fn is_weir_optimized() -> bool {
    weir_program() != Path::new(env!("CARGO_BIN_EXE_weir")) || !cfg!(debug_assertions)
}

/// The path of a program found through PATH.
pub(crate) fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

/// A program of `examples/`, as cargo builds it beside weir. `cargo test` does so by itself, unless it is told which targets to test.
#[track_caller]
pub(crate) fn example(name: &str) -> PathBuf {
    let program = Path::new(env!("CARGO_BIN_EXE_weir"))
        .with_file_name("examples")
        .join(name);
    let changed = |file: &Path| file.metadata().and_then(|there| there.modified()).ok();
    let advice = "run `cargo build --locked --all-features --examples` first";
    let built = changed(&program).unwrap_or_else(|| panic!("there is no {}: {advice}", program.display()));
    // Beside it cargo lists the files that it is made of.
    let listed = std::fs::read_to_string(program.with_extension("d")).unwrap();
    let sources = listed.lines().flat_map(|line| line.split_whitespace().skip(1));
    for source in sources.map(Path::new) {
        let is_older = changed(source).is_none_or(|changed| changed <= built);
        assert!(
            is_older,
            "{} has changed since {name} was built: {advice}",
            source.display()
        );
    }
    program
}

/// The root of the repository.
pub(crate) fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The Python of a virtual environment that `tests/run` makes (`.venv`, `.venv-anthropic0`).
pub(crate) fn python(environment: &str) -> Option<PathBuf> {
    let python = repository().join(environment).join("bin/python");
    python.is_file().then_some(python)
}

/// The virtual environment that has schemathesis.
pub(crate) const SCHEMATHESIS: &str = ".venv-schemathesis";

/// Has schemathesis compare a service with its description: whether all checks pass, and what was said.
pub(crate) fn schemathesis(python: &PathBuf, folder: &Path, words: &[&str]) -> (bool, String) {
    let output = Command::new(python)
        .current_dir(folder)
        .args(["-m", "schemathesis.cli", "run"])
        .args(words)
        .args(["--checks", "all", "--seed", "20261121", "--no-color"])
        .args(["--request-timeout", "20", "--workers", "1"])
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("NO_PROXY", "*")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.success(),
        format!("{}\n{}", said(&output.stdout), said(&output.stderr)),
    )
}
