//! Calls of the provider's own tools that are paid by call: items of an answer's `output`.
//!
//! A web search call may open a page or look for a text in one instead of searching, which the vendor does not charge
//! (<https://platform.openai.com/docs/guides/tools-web-search>, "Output and citations"); nor is a call that failed. A call
//! that does not say what it did is taken for a search.

use crate::domain::wire::json_pick::Segment::{Each, Key};
use crate::domain::wire::json_pick::{Path, Picks, Segment, Take};

/// The paths of one place with items: marks and counts.
pub(super) const PATHS: usize = 8;
/// Where the counts are among them.
const WEB_SEARCHES: usize = 3;
const FILE_SEARCHES: usize = 4;
const CODE_INTERPRETER: usize = 5;
const IMAGE_GENERATION: usize = 6;
const OWN_TOOLS: usize = 7;

/// How the types of items begin that are calls of a tool which the provider runs, paid by call or not
/// (<https://platform.openai.com/docs/api-reference/responses/object>, `output`).
const OWN: &[&str] = &[
    "web_search_call",
    "file_search_call",
    "code_interpreter_call",
    "image_generation_call",
    "mcp_call",
    "shell_call\"",
    "tool_search_call",
];

const WEB_SEARCH: u8 = 1;
const FILE_SEARCH: u8 = 1 << 1;
const CODE: u8 = 1 << 2;
const IMAGE: u8 = 1 << 3;
const FAILED: u8 = 1 << 4;
const NO_SEARCH: u8 = 1 << 5;

/// In the item that an event carries.
pub(super) const IN_ITEM: [Path; PATHS] = paths(
    &[Key("item")],
    &[Key("item"), Key("type")],
    &[Key("item"), Key("status")],
    &[Key("item"), Key("action"), Key("type")],
);
/// In the response that an event carries.
pub(super) const IN_EVENT: [Path; PATHS] = paths(
    &[Key("response"), Key("output"), Each],
    &[Key("response"), Key("output"), Each, Key("type")],
    &[Key("response"), Key("output"), Each, Key("status")],
    &[Key("response"), Key("output"), Each, Key("action"), Key("type")],
);
/// In a response that is a body.
pub(super) const IN_BODY: [Path; PATHS] = paths(
    &[Key("output"), Each],
    &[Key("output"), Each, Key("type")],
    &[Key("output"), Each, Key("status")],
    &[Key("output"), Each, Key("action"), Key("type")],
);

const fn paths(
    item: &'static [Segment],
    kind: &'static [Segment],
    status: &'static [Segment],
    action: &'static [Segment],
) -> [Path; PATHS] {
    let kinds = Take::Mark {
        words: &[
            ("web_search_call", WEB_SEARCH),
            ("file_search_call", FILE_SEARCH),
            ("code_interpreter_call", CODE),
            ("image_generation_call", IMAGE),
        ],
        other: 0,
    };
    let failed = Take::Mark {
        words: &[("failed", FAILED)],
        other: 0,
    };
    let searches = Take::Mark {
        words: &[("search", 0)],
        other: NO_SEARCH,
    };
    [
        Path::new(kind, kinds),
        Path::new(status, failed),
        Path::new(action, searches),
        counted(item, WEB_SEARCH, FAILED | NO_SEARCH),
        counted(item, FILE_SEARCH, FAILED),
        counted(item, CODE, FAILED),
        counted(item, IMAGE, FAILED),
        Path::new(kind, Take::CountBeginning(OWN)),
    ]
}

const fn counted(item: &'static [Segment], all: u8, none: u8) -> Path {
    Path::new(item, Take::CountMarked { all, none })
}

/// How many calls there were of each tool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Calls {
    pub(super) web_searches: u64,
    pub(super) file_searches: u64,
    pub(super) code_interpreter: u64,
    pub(super) image_generation: u64,
    /// Those of all tools that the provider runs, whether they failed or not.
    pub(super) own_tools: u64,
}

impl Calls {
    /// Those of the items at one place, whose paths begin at `base`.
    pub(super) fn counted(picks: &Picks<'_>, base: usize) -> Self {
        Self {
            web_searches: picks.count(base + WEB_SEARCHES),
            file_searches: picks.count(base + FILE_SEARCHES),
            code_interpreter: picks.count(base + CODE_INTERPRETER),
            image_generation: picks.count(base + IMAGE_GENERATION),
            own_tools: picks.count(base + OWN_TOOLS),
        }
    }

    /// More calls have been made.
    pub(super) fn add(&mut self, more: Self) {
        *self = self.by_tool(more, u64::saturating_add);
    }

    /// All calls are told of once more.
    pub(super) fn raise(&mut self, all: Self) {
        *self = self.by_tool(all, u64::max);
    }

    fn by_tool(self, other: Self, merge: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            web_searches: merge(self.web_searches, other.web_searches),
            file_searches: merge(self.file_searches, other.file_searches),
            code_interpreter: merge(self.code_interpreter, other.code_interpreter),
            image_generation: merge(self.image_generation, other.image_generation),
            own_tools: merge(self.own_tools, other.own_tools),
        }
    }
}
