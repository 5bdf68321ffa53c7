//! What an answer has said so far.

use crate::domain::wire::protocol::{dialect::Dialect, facts::Facts};

/// What the answer has said.
#[derive(Clone, Debug)]
pub(super) struct AnswerProgress {
    pub(super) dialect: Dialect,
    pub(super) facts: Facts,
}
