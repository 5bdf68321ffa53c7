//! Tests of `apply`.


