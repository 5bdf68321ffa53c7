//! Pages for people: the operators' console on its own listener, and the portal for key owners on the gateway's listeners.
//!
//! Both consist of complete HTML documents without scripts. All their changes go through the admin API ([`crate::admin`]), with
//! its checks and its audit lines.

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
    desk::ConsoleSource,
    example::Examples,
    exchange::read,
    link::{LinkAddress, Links},
    operator::{Console, SignInMethods},
    site::Site,
    snippet::of_key as snippets_of_key,
};
