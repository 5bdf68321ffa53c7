//! What callgrind has counted: instructions by function, and how often functions call each other
//! (<https://valgrind.org/docs/manual/cl-format.html>).

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
};

/// Where a request's connection is served: the thread that has run this is a thread of requests.
const SERVES: &str = "as pingora_core::apps::ServerApp>::process_new";

/// What hands out memory, in the allocator that weir is built with.
const ALLOCATING: [&str; 4] = ["mi_malloc", "mi_zalloc", "mi_calloc", "mi_realloc"];

/// The counts of a while.
#[derive(Default)]
pub(crate) struct Profile {
    /// Of the threads that serve requests.
    pub(crate) serving: Threads,
    /// Of all others.
    pub(crate) beside: Threads,
}

/// The counts of some threads.
#[derive(Default)]
pub(crate) struct Threads {
    /// All instructions.
    pub(crate) instructions: u64,
    /// Blocks of memory asked for, or asked to grow.
    pub(crate) allocations: u64,
    /// By function: its own instructions, and those of what it calls.
    inclusive: HashMap<String, u64>,
}

impl Profile {
    /// Reads the files, one for each thread.
    pub(crate) fn read(files: &[PathBuf]) -> Self {
        let mut profile = Self::default();
        for file in files {
            let thread = Threads::read(file);
            let serves = thread.inclusive.keys().any(|function| function.contains(SERVES));
            let sum = if serves {
                &mut profile.serving
            } else {
                &mut profile.beside
            };
            sum.add(thread);
        }
        profile
    }
}

impl Threads {
    fn read(file: &Path) -> Self {
        let bytes = fs::read(file).expect("callgrind's file can be read");
        let text = String::from_utf8_lossy(&bytes);
        let mut names: HashMap<&str, &str> = HashMap::new();
        let (mut thread, mut function, mut callee, mut calls) = (Self::default(), "", "", None);
        for line in text.lines() {
            if let Some(name) = line.strip_prefix("fn=") {
                function = named(&mut names, name);
            } else if let Some(name) = line.strip_prefix("cfn=") {
                callee = named(&mut names, name);
            } else if let Some(count) = line.strip_prefix("calls=") {
                calls = count.split(' ').next().and_then(|count| count.parse::<u64>().ok());
            } else if line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first)) {
                let cost = line
                    .split(' ')
                    .nth(1)
                    .and_then(|cost| cost.parse::<u64>().ok())
                    .unwrap_or(0);
                match calls.take() {
                    // What calls itself would count twice.
                    Some(_) if callee == function => continue,
                    Some(count) if allocates(callee) && !allocator(function) => thread.allocations += count,
                    Some(_) => {}
                    None => thread.instructions += cost,
                }
                *thread.inclusive.entry(function.to_owned()).or_default() += cost;
            }
        }
        thread
    }

    fn add(&mut self, other: Self) {
        self.instructions += other.instructions;
        self.allocations += other.allocations;
        for (function, cost) in other.inclusive {
            *self.inclusive.entry(function).or_default() += cost;
        }
    }

    /// The instructions of the functions with all of these texts in their names, with what they call: so a closure is in those of the
    /// function that it is written in.
    pub(crate) fn of(&self, texts: &[&str]) -> u64 {
        let is_meant = |function: &&String| texts.iter().all(|text| function.contains(text));
        let meant: Vec<&String> = self.inclusive.keys().filter(is_meant).collect();
        let is_inside = |function: &str, outer: &str| {
            function
                .strip_prefix(outer)
                .is_some_and(|rest| rest.starts_with("::{{closure}}"))
        };
        let outermost = meant
            .iter()
            .filter(|function| !meant.iter().any(|outer| is_inside(function, outer)));
        outermost.map(|function| self.inclusive[*function]).sum()
    }

    /// Like [`Self::of`], for functions that call each other: those of the one that has most.
    pub(crate) fn greatest(&self, texts: &[&str]) -> u64 {
        let is_meant = |function: &&String| texts.iter().all(|text| function.contains(text));
        let meant = self.inclusive.keys().filter(is_meant);
        meant.map(|function| self.inclusive[function]).max().unwrap_or(0)
    }
}

fn allocates(function: &str) -> bool {
    ALLOCATING.iter().any(|start| function.starts_with(start))
}

/// Whether it is a part of the allocator.
fn allocator(function: &str) -> bool {
    function.trim_start_matches('_').starts_with("mi_")
}

/// A name is written once, as `(NUMBER) NAME`, and then by its number.
fn named<'t>(names: &mut HashMap<&'t str, &'t str>, text: &'t str) -> &'t str {
    let (number, name) = text.split_once(' ').unwrap_or((text, ""));
    if name.is_empty() {
        return names.get(number).copied().unwrap_or(number);
    }
    names.insert(number, name);
    name
}
