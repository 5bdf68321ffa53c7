//! What everybody may read without a key: how stable each model is (spec sections 2.5 and 4.6).

pub mod page;
