//! A call of the embedded store that holds its files takes no second guard for them: between the two there may be somebody who
//! waits for the first one to go, and the second one waits behind that.

use super::none;
use super::source::sources;
use super::tokens::{Token, tokens, without_tests};

/// The methods of an `Ownership` that give a guard which lets others have one, too.
const SHARED: [&str; 3] = ["owner", "here", "here_now"];

/// How many guards a function takes by itself.
fn guards(function: &[Token]) -> usize {
    let is_guard = |window: &&[Token]| {
        let [dot, name, next, method] = window else {
            return false;
        };
        (dot.text.as_str(), name.text.as_str(), next.text.as_str()) == (".", "ownership", ".")
            && SHARED.contains(&method.text.as_str())
    };
    function.windows(4).filter(is_guard).count()
}

/// Whether a function calls a method of its own type.
fn calls_itself(function: &[Token]) -> bool {
    function.windows(4).any(|window| {
        let [this, dot, name, open] = window else { return false };
        (this.text.as_str(), dot.text.as_str(), open.text.as_str()) == ("self", ".", "(") && name.is_name()
    })
}

/// The functions that take a guard, and whether they may take another one.
fn guarded(text: &str) -> Vec<(String, bool)> {
    let (code, _) = without_tests(&tokens(text));
    let functions = code.split(|token| token.text == "fn").skip(1);
    let guarded = functions.filter(|function| guards(function) > 0);
    let named = guarded.map(|function| {
        let name = function.first().map_or_else(String::new, |name| name.text.clone());
        (name, guards(function) > 1 || calls_itself(function))
    });
    named.collect()
}

#[test]
fn a_call_that_holds_the_embedded_files_takes_no_second_guard() {
    let (mut complaints, mut seen) = (Vec::new(), 0);
    for source in sources(&["src/store"])
        .into_iter()
        .filter(|source| source.path.starts_with("src/store/embedded") && !source.path.contains("tests"))
    {
        for (name, takes_another) in guarded(&source.text) {
            seen += 1;
            if takes_another {
                complaints.push(format!("{}: {name}", source.path));
            }
        }
    }
    assert!(seen > 30, "{seen} functions take a guard");
    none(
        &complaints,
        "what needs the files of a call that holds them gets them as an argument",
    );
}

#[test]
fn a_second_guard_is_found() {
    let text = "fn a(&self) { let here = self.ownership.here().await?; here.b() }\n\
                fn c(&self) { let here = self.ownership.here().await?; self.a().await }\n\
                fn d(&self) { self.a().await }\n\
                fn e(&self) { self.ownership.owner(); self.x.ownership.here_now(); (self.now)() }\n";
    let named = |name: &str, takes_another| (name.to_owned(), takes_another);
    assert_eq!(guarded(text), [named("a", false), named("c", true), named("e", true)]);
}
