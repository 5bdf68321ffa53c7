//! The scripts: each is one atomic operation.

use super::script::{RedisScript, script_table};

/// A script made of these parts.
macro_rules! alone {
    ($($file:literal)*) => {
        RedisScript::new(concat!($(include_str!($file)),*))
    };
}

/// The same after the part with which most scripts begin.
macro_rules! script {
    ($($file:literal)*) => {
        alone!("prelude.lua" $($file)*)
    };
}

script_table! { Scripts,
    find: script!("former.lua" "find.lua"),
    create: script!("former.lua" "create.lua"),
    view: script!("view.lua"),
    list: script!("list.lua"),
    replace: script!("former.lua" "replace.lua"),
    delete: script!("former.lua" "delete.lua"),
    heal: script!("former.lua" "heal.lua"),
    gone: script!("gone.lua"),
    init: alone!("init.lua"),
    empty: alone!("empty.lua"),
    load: alone!("former.lua" "load.lua"),
    gone_ids: script!("gone_ids.lua"),
    touch: script!("touch.lua"),
    changes: script!("changes.lua"),
    recall: script!("recall.lua"),
    remember: script!("remember.lua"),
    document: script!("document.lua"),
    exchange: script!("exchange.lua"),
    generation: script!("generation.lua"),
    time: alone!("time.lua"),
    stability_tell: script!("stability/tell.lua"),
    stability_load: alone!("stability/filling.lua" "stability/tell.lua"),
    stability_read: script!("stability/read.lua"),
    web_session_begin: script!("web_sessions/head.lua" "web_sessions/begin.lua"),
    web_session_visit: script!("web_sessions/head.lua" "web_sessions/visit.lua"),
    web_session_end: script!("web_sessions/head.lua" "web_sessions/end.lua"),
    web_session_list: script!("web_sessions/head.lua" "web_sessions/list.lua"),
}
