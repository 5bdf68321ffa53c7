//! The scripts: each is one operation, and atomic.

use ::redis::RedisResult;
use ::redis::aio::MultiplexedConnection;

use super::ledger_scripts::LedgerScripts;
use super::loaded::Loaded;
use super::web_session_scripts::WebSessionScripts;

macro_rules! alone {
    ($file:literal) => {
        Loaded::new(include_str!($file))
    };
}

macro_rules! script {
    ($file:literal) => {
        Loaded::new(concat!(include_str!("prelude.lua"), include_str!($file)))
    };
}

/// A script about the text before a key's present one.
macro_rules! of_former {
    ($file:literal) => {
        Loaded::new(concat!(
            include_str!("prelude.lua"),
            include_str!("former.lua"),
            include_str!($file)
        ))
    };
}

pub(super) struct Scripts {
    pub(super) find: Loaded,
    pub(super) create: Loaded,
    pub(super) view: Loaded,
    pub(super) list: Loaded,
    pub(super) replace: Loaded,
    pub(super) delete: Loaded,
    pub(super) heal: Loaded,
    pub(super) gone: Loaded,
    pub(super) init: Loaded,
    pub(super) empty: Loaded,
    pub(super) load: Loaded,
    pub(super) gone_ids: Loaded,
    pub(super) touch: Loaded,
    pub(super) changes: Loaded,
    pub(super) recall: Loaded,
    pub(super) remember: Loaded,
    pub(super) document: Loaded,
    pub(super) exchange: Loaded,
    pub(super) generation: Loaded,
    pub(super) time: Loaded,
    pub(super) stability_tell: Loaded,
    pub(super) stability_load: Loaded,
    pub(super) stability_read: Loaded,
    pub(super) web_sessions: WebSessionScripts,
    pub(super) ledger: LedgerScripts,
}

impl Scripts {
    pub(super) fn new() -> Self {
        Self {
            find: of_former!("find.lua"),
            create: of_former!("create.lua"),
            view: script!("view.lua"),
            list: script!("list.lua"),
            replace: of_former!("replace.lua"),
            delete: of_former!("delete.lua"),
            heal: of_former!("heal.lua"),
            gone: script!("gone.lua"),
            init: alone!("init.lua"),
            empty: alone!("empty.lua"),
            load: Loaded::new(concat!(include_str!("former.lua"), include_str!("load.lua"))),
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
            stability_load: Loaded::new(concat!(
                include_str!("stability/filling.lua"),
                include_str!("stability/tell.lua")
            )),
            stability_read: script!("stability/read.lua"),
            web_sessions: WebSessionScripts::new(),
            ledger: LedgerScripts::new(),
        }
    }

    /// Gives all of them to the server, in one round trip.
    pub(super) async fn load(&self, connection: &mut MultiplexedConnection) -> RedisResult<()> {
        let Self {
            find,
            create,
            view,
            list,
            replace,
            delete,
            heal,
            gone,
            init,
            empty,
            load,
            gone_ids,
            touch,
            changes,
            recall,
            remember,
            document,
            exchange,
            generation,
            time,
            stability_tell,
            stability_load,
            stability_read,
            web_sessions,
            ledger,
        } = self;
        let mut pipe = ::redis::pipe();
        let keys = [
            find,
            create,
            view,
            list,
            replace,
            delete,
            heal,
            gone,
            init,
            empty,
            load,
            gone_ids,
            touch,
            changes,
            recall,
            remember,
            document,
            exchange,
            generation,
            time,
            stability_tell,
            stability_load,
            stability_read,
        ];
        for loaded in keys.into_iter().chain(web_sessions.all()).chain(ledger.all()) {
            pipe.cmd("SCRIPT").arg("LOAD").arg(loaded.text).ignore();
        }
        pipe.query_async(connection).await
    }
}
