//! The admin API without its listeners: it answers the questions of the subcommands, the console and the portal. Every change is
//! in the audit record before it is made.

mod accounts;
pub(crate) mod ask;
pub(crate) mod audit;
pub(crate) mod author;
pub(crate) mod changes_seen;
mod connection_extension;
mod counters;
mod errors;
mod home;
mod keys;
pub(crate) mod log;
mod log_home;
mod node;
mod overview;
mod own_journal;
mod parts;
mod peer;
mod providers;
mod recent;
pub(crate) mod sessions;
mod state;
mod usage;
mod verify;

pub(crate) use connection_extension::ConnectionExtension;
pub(crate) use home::AdminLogBackends;
pub(crate) use parts::{ConsoleLinks, ProviderDirectory, Upgrades};
pub(crate) use peer::AdminPeer;
pub(crate) use state::{Admin, AdminStores};
