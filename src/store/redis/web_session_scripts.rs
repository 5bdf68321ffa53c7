//! The scripts about people's sessions in browsers.

use super::loaded::Loaded;

macro_rules! script {
    ($file:literal) => {
        Loaded::new(concat!(
            include_str!("prelude.lua"),
            include_str!("web_sessions/head.lua"),
            include_str!($file)
        ))
    };
}

pub(super) struct WebSessionScripts {
    pub(super) begin: Loaded,
    pub(super) visit: Loaded,
    pub(super) end: Loaded,
    pub(super) list: Loaded,
}

impl WebSessionScripts {
    pub(super) fn new() -> Self {
        Self {
            begin: script!("web_sessions/begin.lua"),
            visit: script!("web_sessions/visit.lua"),
            end: script!("web_sessions/end.lua"),
            list: script!("web_sessions/list.lua"),
        }
    }

    pub(super) fn all(&self) -> [&Loaded; 4] {
        let Self {
            begin,
            visit,
            end,
            list,
        } = self;
        [begin, visit, end, list]
    }
}
