//! Counts the calls of a provider's own tools. The calls are items of an answer's `output` and are billed individually.
//!
//! A web search call can open a page, or find a text in it, instead of searching. The vendor charges neither for these calls
//! (<https://platform.openai.com/docs/guides/tools-web-search>, "Output and citations") nor for failed calls. A call that does
//! not name its action is counted as a search.

use crate::domain::wire::json_pick::PickSegment::{Each, Key};
use crate::domain::wire::json_pick::{PickPath, PickRule, PickSegment, Picks};

/// The number of paths for one list of items. Some of these paths mark items, and the others count them.
pub(super) const PATHS: usize = 8;
/// The indexes of the counting paths among the paths for one list of items.
const WEB_SEARCHES: usize = 3;
const FILE_SEARCHES: usize = 4;
const CODE_INTERPRETER: usize = 5;
const IMAGE_GENERATION: usize = 6;
const OWN_TOOLS: usize = 7;

/// The prefixes of the types that items have if they call a provider's own tool, whether the tool is billed per call or not
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

/// The paths in the item of an event.
pub(super) const IN_ITEM: [PickPath; PATHS] = paths(
    &[Key("item")],
    &[Key("item"), Key("type")],
    &[Key("item"), Key("status")],
    &[Key("item"), Key("action"), Key("type")],
);
/// The paths in the response object of an event.
pub(super) const IN_EVENT: [PickPath; PATHS] = paths(
    &[Key("response"), Key("output"), Each],
    &[Key("response"), Key("output"), Each, Key("type")],
    &[Key("response"), Key("output"), Each, Key("status")],
    &[Key("response"), Key("output"), Each, Key("action"), Key("type")],
);
/// The paths in the body of a non-streaming answer.
pub(super) const IN_BODY: [PickPath; PATHS] = paths(
    &[Key("output"), Each],
    &[Key("output"), Each, Key("type")],
    &[Key("output"), Each, Key("status")],
    &[Key("output"), Each, Key("action"), Key("type")],
);

const fn paths(
    item: &'static [PickSegment],
    kind: &'static [PickSegment],
    status: &'static [PickSegment],
    action: &'static [PickSegment],
) -> [PickPath; PATHS] {
    let kinds = PickRule::Mark {
        words: &[
            ("web_search_call", WEB_SEARCH),
            ("file_search_call", FILE_SEARCH),
            ("code_interpreter_call", CODE),
            ("image_generation_call", IMAGE),
        ],
        other: 0,
    };
    let failed = PickRule::Mark {
        words: &[("failed", FAILED)],
        other: 0,
    };
    let searches = PickRule::Mark {
        words: &[("search", 0)],
        other: NO_SEARCH,
    };
    [
        PickPath::new(kind, kinds),
        PickPath::new(status, failed),
        PickPath::new(action, searches),
        counted_path(item, WEB_SEARCH, FAILED | NO_SEARCH),
        counted_path(item, FILE_SEARCH, FAILED),
        counted_path(item, CODE, FAILED),
        counted_path(item, IMAGE, FAILED),
        PickPath::new(kind, PickRule::CountBeginning(OWN)),
    ]
}

const fn counted_path(item: &'static [PickSegment], all: u8, none: u8) -> PickPath {
    PickPath::new(item, PickRule::CountMarked { all, none })
}

/// The number of calls for each of a provider's own tools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ToolCalls {
    pub(super) web_searches: u64,
    pub(super) file_searches: u64,
    pub(super) code_interpreter: u64,
    pub(super) image_generation: u64,
    /// The number of calls of all tools that the provider runs, including failed calls.
    pub(super) own_tools: u64,
}

impl ToolCalls {
    /// Returns the calls that were counted by the paths from index `base` on.
    pub(super) fn from_picks(picks: &Picks<'_>, base: usize) -> Self {
        Self {
            web_searches: picks.count(base + WEB_SEARCHES),
            file_searches: picks.count(base + FILE_SEARCHES),
            code_interpreter: picks.count(base + CODE_INTERPRETER),
            image_generation: picks.count(base + IMAGE_GENERATION),
            own_tools: picks.count(base + OWN_TOOLS),
        }
    }

    /// Adds the calls in `more` to the counts.
    pub(super) fn add(&mut self, more: Self) {
        *self = self.merge_counts(more, u64::saturating_add);
    }

    /// Raises each count to the count in `all`, which comes from a list of all calls.
    pub(super) fn raise_to(&mut self, all: Self) {
        *self = self.merge_counts(all, u64::max);
    }

    fn merge_counts(self, other: Self, merge: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            web_searches: merge(self.web_searches, other.web_searches),
            file_searches: merge(self.file_searches, other.file_searches),
            code_interpreter: merge(self.code_interpreter, other.code_interpreter),
            image_generation: merge(self.image_generation, other.image_generation),
            own_tools: merge(self.own_tools, other.own_tools),
        }
    }
}
