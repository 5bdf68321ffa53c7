//! What the integration tests stand on: the real binary, real peers on free ports, byte-exact clients.
//!
//! No fixed port, no fixed sleep: everything waits for a condition with a deadline ([`wait`]).

pub(crate) mod acp;
pub(crate) mod answer;
pub(crate) mod at_end;
pub(crate) mod books;
pub(crate) mod browser;
pub(crate) mod bucket;
pub(crate) mod certificates;
pub(crate) mod client;
pub(crate) mod cluster;
pub(crate) mod crowd;
pub(crate) mod faulty_way;
pub(crate) mod h2_frames;
pub(crate) mod h2c;
pub(crate) mod halting;
pub(crate) mod hours;
pub(crate) mod http2_provider;
pub(crate) mod https;
pub(crate) mod kills;
pub(crate) mod leaving;
pub(crate) mod load;
pub(crate) mod models;
pub(crate) mod multiplied;
pub(crate) mod node;
pub(crate) mod openid;
pub(crate) mod packed;
pub(crate) mod port;
pub(crate) mod postgres;
pub(crate) mod process;
pub(crate) mod prometheus;
pub(crate) mod provider;
pub(crate) mod recordings;
pub(crate) mod redis;
pub(crate) mod request;
pub(crate) mod rules;
pub(crate) mod sample;
pub(crate) mod sentinel;
pub(crate) mod shapes;
pub(crate) mod slow_way;
pub(crate) mod steps;
pub(crate) mod store;
pub(crate) mod tab;
pub(crate) mod terminal;
pub(crate) mod tools;
pub(crate) mod upgrades;
pub(crate) mod wait;
pub(crate) mod websocket;
pub(crate) mod weir;

pub(crate) use client::Client;
pub(crate) use models::*;
pub(crate) use provider::RecordingProvider;
pub(crate) use request::Request;
pub(crate) use steps::Steps;
pub(crate) use wait::{wait_for, wait_until};
pub(crate) use weir::{Weir, WeirBuilder};
