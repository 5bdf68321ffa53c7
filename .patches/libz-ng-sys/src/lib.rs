//! `pingora-core` asks for flate2's `zlib-ng` backend, whose crate runs cmake at build time. weir promises to build
//! with Rust and a C compiler alone, so `[patch.crates-io]` puts this crate in its place: the same interface, served
//! by the stock zlib that `libz-sys` carries in source. weir never compresses on the relay path.

#![no_std]

pub use libz_sys::*;
