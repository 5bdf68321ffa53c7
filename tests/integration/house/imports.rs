//! Who uses whom in `src/`, file by file, read from the paths in the code.
//!
//! A file uses another one when it names an item that is defined there: `crate::a::B`, `super::B`, `self::a::B`, or a
//! path that begins with a child or with what an import has brought in. A name is followed through re-exports to the file
//! that defines it, so that a parent which declares its children and passes their items on uses none of them, and who
//! takes an item from such a parent uses the child. Calls of methods name no file and are not seen; neither is code that
//! is compiled for tests alone.
#![expect(
    clippy::indexing_slicing,
    reason = "helpers of tests: the places come from searches in the same code"
)]

use std::collections::{BTreeMap, BTreeSet};

use super::source::Source;
use super::tokens::{Token, tokens, without_tests};

/// How often a name may be passed on until it is defined.
const REEXPORTS_MAX: usize = 8;

/// The path of a module: `["domain", "sse"]` for `src/domain/wire/sse.rs`.
pub(super) type Module = Vec<String>;

/// One file that names an item of another one, and where it does so first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Use {
    pub(super) from: Module,
    pub(super) to: Module,
    /// `path:line`
    pub(super) place: String,
}

/// A file's module and what it says.
struct File {
    path: String,
    code: Vec<Token>,
    imports: Vec<Import>,
    test_modules: Vec<String>,
}

/// One name of one `use` line.
struct Import {
    name: String,
    path: Vec<String>,
    line: usize,
    is_public: bool,
}

/// The files of `src/` and the names in them.
pub(super) struct Imports(BTreeMap<Module, File>);

impl Imports {
    pub(super) fn of(sources: Vec<Source>) -> Self {
        let mut files: BTreeMap<Module, File> = sources
            .into_iter()
            .filter(|source| !["src/lib.rs", "src/main.rs"].contains(&source.path.as_str()))
            .map(|source| (module(&source.path), File::read(source)))
            .collect();
        let test_modules: Vec<Module> = files
            .iter()
            .flat_map(|(module, file)| file.test_modules.iter().map(|child| joined(module, child)))
            .collect();
        files.retain(|module, _| !test_modules.iter().any(|tests| module.starts_with(tests)));
        Self(files)
    }

    /// Every use of one file by another, once for each pair, sorted.
    pub(super) fn uses(&self) -> Vec<Use> {
        let mut found: BTreeMap<(Module, Module), usize> = BTreeMap::new();
        for (module, file) in &self.0 {
            for (path, line) in self.named(file) {
                if let Some(to) = self.definer(module, &path, 0).filter(|to| to != module) {
                    let first = found.entry((module.clone(), to)).or_insert(line);
                    *first = line.min(*first);
                }
            }
        }
        let named = |((from, to), line): ((Module, Module), usize)| Use {
            place: format!("{}:{line}", self.0[&from].path),
            from,
            to,
        };
        found.into_iter().map(named).collect()
    }

    /// The paths in a file's code, and those of its imports; a re-exported name counts where the file uses it itself.
    fn named(&self, file: &File) -> Vec<(Vec<String>, usize)> {
        let mut found = Vec::new();
        let mut words = BTreeSet::new();
        let mut code = file.code.iter().peekable();
        let mut before: Option<&str> = None;
        while let Some(token) = code.next() {
            let continues = matches!(before, Some("." | "fn" | "mod"));
            before = Some(&token.text);
            if !token.is_name() || continues {
                continue;
            }
            let mut path = vec![token.text.clone()];
            while code.next_if(|next| next.text == "::").is_some() {
                let Some(next) = code.next_if(|next| next.is_name()) else {
                    break;
                };
                path.push(next.text.clone());
            }
            before = None;
            words.insert(path[0].clone());
            if path.len() > 1 {
                found.push((path, token.line));
            }
        }
        let used = |import: &&Import| !import.is_public || words.contains(&import.name);
        let imports = file.imports.iter().filter(used);
        found.extend(imports.map(|import| (import.path.clone(), import.line)));
        found
    }

    /// The file that defines what `path` names in `module`; `None`: another crate, or a module as such.
    fn definer(&self, module: &[String], path: &[String], depth: usize) -> Option<Module> {
        let (first, rest) = path.split_first()?;
        let mut at: Module = match first.as_str() {
            "crate" => Vec::new(),
            "self" => module.to_vec(),
            "super" => module.split_last()?.1.to_vec(),
            child if self.0.contains_key(&joined(module, child)) => joined(module, child),
            name if depth < REEXPORTS_MAX => {
                let import = self.0.get(module)?.import(name).filter(|import| import.path != path)?;
                let whole = [import.path.as_slice(), rest].concat();
                return self.definer(module, &whole, depth + 1);
            }
            _ => return None,
        };
        for (index, name) in rest.iter().enumerate() {
            if name == "super" {
                at.pop();
            } else if self.0.contains_key(&joined(&at, name)) {
                at.push(name.clone());
            } else if depth < REEXPORTS_MAX && self.0.get(&at).is_some_and(|file| file.import(name).is_some()) {
                return self.definer(&at, &rest[index..], depth + 1);
            } else {
                return Some(at);
            }
        }
        None
    }
}

impl File {
    fn read(source: Source) -> Self {
        let (mut code, test_modules) = without_tests(&tokens(&source.text));
        let mut imports = Vec::new();
        while let Some(start) = code.iter().position(|token| token.text == "use") {
            // `use<..>` of a return type is none.
            let end = code[start..].iter().position(|token| token.text == ";").unwrap_or(0);
            if code.get(start + 1).is_some_and(|next| next.text == "<") {
                code.remove(start);
                continue;
            }
            let is_public = start > 0 && ["pub", ")"].contains(&code[start - 1].text.as_str());
            let tree: Vec<Token> = code.drain(start..=start + end).collect();
            let mut names = tree[1..].iter().peekable();
            tree_of(&mut names, &[], is_public, &mut imports);
        }
        Self {
            path: source.path,
            code,
            imports,
            test_modules,
        }
    }

    fn import(&self, name: &str) -> Option<&Import> {
        self.imports.iter().find(|import| import.name == name)
    }
}

/// Reads one branch of a `use` line: up to the comma, the brace or the semicolon behind it.
fn tree_of<'a>(
    tokens: &mut std::iter::Peekable<impl Iterator<Item = &'a Token>>,
    above: &[String],
    is_public: bool,
    imports: &mut Vec<Import>,
) {
    let mut path = above.to_vec();
    let mut line = 0;
    while let Some(token) = tokens.next() {
        line = token.line.max(line);
        match token.text.as_str() {
            "::" => {}
            "{" => {
                while tokens.peek().is_some_and(|next| next.text != "}") {
                    tree_of(tokens, &path, is_public, imports);
                }
                tokens.next();
                tokens.next_if(|next| next.text == ",");
                return;
            }
            "as" => {
                let name = tokens.next().map_or_else(String::new, |token| token.text.clone());
                tokens.next_if(|next| next.text == ",");
                return imports.push(Import {
                    name,
                    path,
                    line,
                    is_public,
                });
            }
            "," | ";" => break,
            "self" if !above.is_empty() => {}
            name => path.push(name.to_owned()),
        }
        if tokens.peek().is_some_and(|next| next.text == "}") {
            break;
        }
    }
    let name = path.last().cloned().unwrap_or_default();
    imports.push(Import {
        name,
        path,
        line,
        is_public,
    });
}

fn module(path: &str) -> Module {
    let inside = path.trim_start_matches("src/").trim_end_matches(".rs");
    inside.split('/').map(str::to_owned).collect()
}

fn joined(module: &[String], child: &str) -> Module {
    let mut joined = module.to_vec();
    joined.push(child.to_owned());
    joined
}
