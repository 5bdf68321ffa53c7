//! `weir manual`: man pages and shell completions, generated from the definition of the command line.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use clap::{Args, Command};
use clap_complete::{Shell, generate_to};

/// `weir manual`
#[derive(Args, Debug)]
pub struct ManualArgs {
    /// The folder for the new folders `man` and `completions`
    #[arg(value_name = "FOLDER")]
    pub folder: PathBuf,
}

/// Writes `man/*.1`, one page for each subcommand, and `completions/` for bash, zsh and fish.
///
/// # Errors
/// A folder or a file cannot be written.
pub(crate) fn write_manual_pages(mut line: Command, folder: &Path) -> io::Result<()> {
    let (man, completions) = (folder.join("man"), folder.join("completions"));
    fs::create_dir_all(&man)?;
    fs::create_dir_all(&completions)?;
    clap_mangen::generate_to(line.clone(), &man)?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        generate_to(shell, &mut line, "weir", &completions)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::CommandLine;

    #[test]
    fn every_command_has_a_page_and_every_shell_its_completions() {
        let folder = tempfile::tempdir().unwrap();
        write_manual_pages(CommandLine::command(), folder.path()).unwrap();
        let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
        for command in CommandLine::command().get_subcommands() {
            let page = read(&format!("man/weir-{}.1", command.get_name()));
            assert!(
                page.contains(&roff(&command.get_about().unwrap().to_string())),
                "{page}"
            );
            for nested in command.get_subcommands() {
                let flag = nested.get_arguments().find_map(|argument| argument.get_long());
                let page = read(&format!("man/weir-{}-{}.1", command.get_name(), nested.get_name()));
                assert!(flag.is_none_or(|flag| page.contains(&roff(flag))), "{page}");
            }
        }
        assert!(read("man/weir.1").contains(&roff("weir-serve(1)")));
        for (file, words) in [
            ("weir.bash", "complete -F _weir"),
            ("_weir", "#compdef weir"),
            ("weir.fish", "complete -c weir"),
        ] {
            let script = read(&format!("completions/{file}"));
            assert!(script.contains(words) && script.contains("ready-file"), "{file}");
        }
    }

    /// The text as a page has it.
    fn roff(text: &str) -> String {
        text.replace('-', "\\-").replace('\'', "\\*(Aq")
    }
}
