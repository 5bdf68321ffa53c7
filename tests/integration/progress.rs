//! How far a long command is: shown at the terminal of standard error, and nowhere else.

use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;

use crate::harness::terminal::Terminal;
use crate::harness::tools::skip;

/// How long a command may take.
const LIMIT: Duration = Duration::from_secs(60);
/// The last words that a terminal shows of a command.
const END: &str = "the command has ended";

/// A folder with the configuration of an embedded store.
fn folder() -> TempDir {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let conf = format!(
        "[store]\nengine = \"embedded\"\n[store.embedded]\npath = \"{}\"\n[admin]\nsocket = \"{}\"\naudit = \"{}\"\n",
        path("store"),
        path("admin.sock"),
        path("audit.jsonl")
    );
    std::fs::write(folder.path().join("weir.toml"), conf).unwrap();
    folder
}

/// What a terminal shows of `weir WORDS`, without white space. None: there are no terminals.
fn shown(words: &str, folder: &Path) -> Option<String> {
    let environment = [
        ("PATH", "/usr/local/bin:/usr/bin:/bin"),
        ("SHELL", "/bin/sh"),
        ("TERM", "xterm-256color"),
    ];
    let environment = environment.map(|(name, value)| (name, value.to_owned()));
    let command = format!("sh -c '{} {words}; echo {END}'", env!("CARGO_BIN_EXE_weir"));
    let mut terminal = Terminal::start(&command, &environment, folder, LIMIT)?;
    Some(terminal.until(END))
}

#[test]
fn it_is_shown_on_a_terminal_and_neither_in_a_file_nor_to_a_command_that_is_to_be_quiet() {
    let folder = folder();
    let folder = folder.path();
    let backup = "store backup --conf weir.toml --out backup --force";
    let Some(whole) = shown(backup, folder) else {
        skip!("/usr/bin/script is not there, which makes terminals");
    };
    let said = "0itemswrittentobackup";
    for step in ["Writing:0B", "Checking:0Bof", said] {
        assert!(whole.contains(step), "{step}: {whole}");
    }
    let at = |words: &str| whole.find(words).unwrap();
    assert!(
        at("Writing:") < at("Checking:") && at("Checking:") < at(said),
        "{whole}"
    );
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    for without in ["2> errors", "--quiet", "-q"] {
        let shown = shown(&format!("{backup} {without}"), folder).unwrap();
        assert!(shown.contains(said) && !shown.contains("ing:"), "{without}: {shown}");
    }
    assert_eq!(read("errors"), "");
    let shown = shown(&format!("{backup} > told"), folder).unwrap();
    assert!(shown.contains("Writing:") && !shown.contains(said), "{shown}");
    assert_eq!(read("told"), "0 items written to backup\n");
}

#[test]
fn nothing_of_it_is_drawn_behind_an_error() {
    let folder = folder();
    std::fs::write(folder.path().join("backup"), "no backup\n").unwrap();
    let restore = "store restore --conf weir.toml --from backup";
    let Some(shown) = shown(restore, folder.path()) else {
        skip!("/usr/bin/script is not there, which makes terminals");
    };
    let (before, error) = shown.split_once("weir:").unwrap();
    assert!(before.contains("Checking:0Bof10B"), "{shown}");
    assert!(
        error.starts_with("cannotrestorethebackup:") && !error.contains("Checking:"),
        "{shown}"
    );
}
