//! How the models behave, as everybody may read it.

mod http;
mod openapi;
