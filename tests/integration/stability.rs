//! The public stability service: what everybody may read of how stable the models are.

mod page;
