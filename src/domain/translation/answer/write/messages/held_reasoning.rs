//! Reasoning of a Messages answer that is held until other content follows.

use crate::domain::translation::{
    answer::{AnswerLosses, REPEATED_BYTES_MAX, WAITING_BYTES_MAX, write::messages::block::MessageBlock},
    reasoning::{ReasoningMaker, ReasoningState},
};

/// Reasoning that is held until other content follows. Some agents display nothing of a message if only reasoning follows its
/// last text.
#[derive(Debug, Default)]
pub(super) struct HeldReasoning {
    blocks: Vec<MessageBlock>,
    /// The length of all visible reasoning in `blocks`, in bytes; at most [`REPEATED_BYTES_MAX`].
    text_bytes: usize,
    /// The length of all carriers in `blocks`, in bytes; at most [`WAITING_BYTES_MAX`].
    carrier_bytes: usize,
    /// Whether the last block is visible reasoning that the next piece may continue.
    has_open_thought: bool,
    /// Whether the visible reasoning was longer than [`REPEATED_BYTES_MAX`] and was dropped. Further visible reasoning is also
    /// dropped until the blocks are taken.
    drops_thoughts: bool,
}

impl HeldReasoning {
    /// Whether visible reasoning is held.
    pub(super) const fn has_thoughts(&self) -> bool {
        self.text_bytes > 0
    }

    /// Adds a piece of visible reasoning, which must not be empty. If the visible reasoning becomes longer than
    /// [`REPEATED_BYTES_MAX`], drops all of it, and every further piece until [`HeldReasoning::take`]. Returns the losses.
    pub(super) fn push_thought(&mut self, piece: &str) -> AnswerLosses {
        self.drops_thoughts |= self.text_bytes + piece.len() > REPEATED_BYTES_MAX;
        if self.drops_thoughts {
            return self.drop_thoughts();
        }
        self.text_bytes += piece.len();
        match self.blocks.last_mut() {
            Some(MessageBlock::Thinking { text, .. }) if self.has_open_thought => text.push_str(piece),
            _ => self.blocks.push(MessageBlock::Thinking {
                text: piece.to_owned(),
                signature: String::new(),
            }),
        }
        self.has_open_thought = true;
        AnswerLosses::default()
    }

    /// Drops all visible reasoning with its signatures; states in blocks of their own remain. Returns the losses. These include
    /// the current piece of reasoning, which is not in a block.
    fn drop_thoughts(&mut self) -> AnswerLosses {
        let is_thought = |block: &mut MessageBlock| matches!(block, MessageBlock::Thinking { .. });
        let dropped: Vec<MessageBlock> = self.blocks.extract_if(.., is_thought).collect();
        for block in &dropped {
            if let MessageBlock::Thinking { signature, .. } = block {
                self.carrier_bytes = self.carrier_bytes.saturating_sub(signature.len());
            }
        }
        self.text_bytes = 0;
        self.has_open_thought = false;
        let mut losses = reasoning_losses(&dropped);
        losses.add(AnswerLosses::REASONING);
        losses
    }

    /// Adds a state. If visible reasoning is directly before the state, the state becomes the signature of this reasoning;
    /// otherwise it becomes a block of its own. Returns whether there was room for the state's carrier.
    pub(super) fn push_state(&mut self, state: &ReasoningState<'_>, maker: &ReasoningMaker) -> bool {
        let is_signature = std::mem::take(&mut self.has_open_thought);
        let thought = match self.blocks.last_mut() {
            Some(MessageBlock::Thinking { text, signature }) if is_signature => Some((text, signature)),
            _ => None,
        };
        let visible = thought.as_ref().map_or("", |(text, _)| text.as_str());
        let Some(carrier) = state.wrap(maker, visible) else {
            return false;
        };
        if self.carrier_bytes + carrier.len() > WAITING_BYTES_MAX {
            return false;
        }
        self.carrier_bytes += carrier.len();
        match thought {
            Some((_, signature)) => *signature = carrier,
            None => self.blocks.push(MessageBlock::Redacted { data: carrier }),
        }
        true
    }

    /// Removes all blocks, and returns them in order.
    pub(super) fn take(&mut self) -> Vec<MessageBlock> {
        std::mem::take(self).blocks
    }
}

/// Returns the losses of an answer from which these blocks of reasoning are dropped.
pub(super) fn reasoning_losses(blocks: &[MessageBlock]) -> AnswerLosses {
    let mut losses = AnswerLosses::default();
    for block in blocks {
        match block {
            MessageBlock::Thinking { signature, .. } => {
                losses.add(AnswerLosses::REASONING);
                if !signature.is_empty() {
                    losses.add(AnswerLosses::REASONING_STATE);
                }
            }
            MessageBlock::Redacted { .. } => losses.add(AnswerLosses::REASONING_STATE),
            MessageBlock::Text { .. } | MessageBlock::Call { .. } => {}
        }
    }
    losses
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::translation::reasoning::CARRIER_BYTES_MAX;

    fn maker() -> ReasoningMaker {
        ReasoningMaker::new("host", "m", "a")
    }

    fn redacted(bytes: usize) -> ReasoningState<'static> {
        ReasoningState::Redacted {
            data: "x".repeat(bytes).into(),
        }
    }

    #[test]
    fn pieces_of_one_thought_are_one_block_with_the_state_behind_them() {
        let mut held = HeldReasoning::default();
        assert!(!held.has_thoughts());
        let state = ReasoningState::Text { text: "because".into() };
        for piece in ["bec", "ause"] {
            held.push_thought(piece);
        }
        assert!(held.has_thoughts() && held.push_state(&state, &maker()) && held.push_state(&redacted(1), &maker()));
        held.push_thought("so");
        let blocks = held.take();
        let [
            MessageBlock::Thinking { text, signature },
            MessageBlock::Redacted { data },
            MessageBlock::Thinking {
                text: second,
                signature: none,
            },
        ] = blocks.as_slice()
        else {
            panic!("{blocks:?}");
        };
        assert_eq!((text.as_str(), second.as_str(), none.as_str()), ("because", "so", ""));
        assert_eq!(Some(signature.clone()), state.wrap(&maker(), "because"));
        assert_eq!(Some(data.clone()), redacted(1).wrap(&maker(), ""));
        assert!(!held.has_thoughts() && held.take().is_empty());
        assert_eq!(reasoning_losses(&blocks).kinds(), ["reasoning", "reasoning_state"]);
        assert_eq!(reasoning_losses(&blocks[1..2]).kinds(), ["reasoning_state"]);
        assert_eq!(reasoning_losses(&blocks[2..]).kinds(), ["reasoning"]);
    }

    #[test]
    fn visible_reasoning_above_the_limit_is_dropped_until_content_follows_and_states_stay() {
        let mut held = HeldReasoning::default();
        let no_losses: [&str; 0] = [];
        let kinds = |losses: AnswerLosses| losses.kinds().to_vec();
        assert_eq!(kinds(held.push_thought(&"x".repeat(REPEATED_BYTES_MAX - 1))), no_losses);
        assert!(held.push_state(&redacted(1), &maker()) && held.push_state(&redacted(2), &maker()));
        assert_eq!(kinds(held.push_thought("x")), no_losses, "exactly the limit");
        assert!(held.has_thoughts());
        assert_eq!(kinds(held.push_thought("x")), ["reasoning", "reasoning_state"]);
        assert!(!held.has_thoughts());
        assert_eq!(kinds(held.push_thought("x")), ["reasoning"], "and all that follows");
        assert!(held.push_state(&redacted(3), &maker()));
        let blocks = held.take();
        let [
            MessageBlock::Redacted { data: second },
            MessageBlock::Redacted { data: third },
        ] = blocks.as_slice()
        else {
            panic!("{} blocks", blocks.len());
        };
        let carrier = |bytes| redacted(bytes).wrap(&maker(), "");
        assert_eq!((Some(second.clone()), Some(third.clone())), (carrier(2), carrier(3)));
        assert_eq!(kinds(held.push_thought("x")), no_losses);
        assert!(held.has_thoughts());
    }

    #[test]
    fn carriers_that_wait_are_limited() {
        let mut held = HeldReasoning::default();
        let carrier_bytes = redacted(1_000).wrap(&maker(), "").unwrap().len();
        for _ in 0..WAITING_BYTES_MAX / carrier_bytes {
            assert!(held.push_state(&redacted(1_000), &maker()));
        }
        assert!(!held.push_state(&redacted(1_000), &maker()));
        held.push_thought("why");
        assert!(!held.push_state(&redacted(1_000), &maker()));
        held.take();
        assert!(held.push_state(&redacted(1_000), &maker()));
        assert!(!held.push_state(&redacted(CARRIER_BYTES_MAX), &maker()));
    }
}
