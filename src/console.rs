//! Pages for people: the operators' console on a listener of its own, and the portal for owners of keys on the gateway's.
//!
//! Both are whole documents made here, without scripts. What they change, they change by the admin API ([`crate::admin`]),
//! with its checks and its audit lines.

mod alerts;
mod answer;
mod ask;
mod chart;
mod cookie;
mod desk;
mod example;
mod exchange;
mod fields;
mod forms;
mod frame;
mod key_view;
mod limits;
mod link;
pub(crate) mod listener;
mod new_key;
pub(crate) mod oauth;
pub(crate) mod openid;
mod operator;
mod origin;
pub(crate) mod portal;
mod rotation;
mod rows;
mod session;
mod site;
mod snippet;
mod usage_chart;
mod usage_table;
mod view;

pub(crate) use self::{
    alerts::{Alerts, AlertsReply},
    desk::Source,
    example::Examples,
    exchange::read,
    link::{LinkAddress, Links},
    operator::{Console, Doors},
    site::Site,
    snippet::of_key as snippets_of_key,
};
