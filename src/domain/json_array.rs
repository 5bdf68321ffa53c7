//! Splits a JSON array that arrives in pieces (a Gemini stream without `alt=sse`) into its elements.
//!
//! The elements go straight into a [`Picker`]. At any byte the framer knows how to end the array so that it is valid
//! JSON.

use crate::domain::json_pick::Picker;

#[cfg(test)]
mod tests;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Before,
    /// Behind the opening bracket.
    Opened,
    Element,
    AfterElement,
    AfterComma,
    Closed,
    /// A value that is no array: Google answers errors with a bare object.
    Bare,
    BareClosed,
    Broken,
}

/// The framer. Any split of the array gives the same elements.
#[derive(Debug)]
pub struct ArrayFramer {
    state: State,
}

impl Default for ArrayFramer {
    fn default() -> Self {
        Self::new()
    }
}

impl ArrayFramer {
    /// A framer at the start of a body.
    pub const fn new() -> Self {
        Self { state: State::Before }
    }

    /// Whether the array (or the bare value in its place) is closed.
    pub fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed | State::BareClosed)
    }

    /// Reads the next bytes. `picker` holds the element in progress; `on_element` is called with it when an element is complete.
    pub fn push(&mut self, bytes: &[u8], picker: &mut Picker, mut on_element: impl FnMut(&Picker)) {
        let mut rest = bytes;
        while let Some(&first) = rest.first() {
            let used = match self.state {
                State::Closed | State::BareClosed | State::Broken => return,
                State::Element | State::Bare => {
                    let used = picker.push(rest);
                    if picker.is_done() {
                        on_element(picker);
                        self.state = if self.state == State::Element {
                            State::AfterElement
                        } else {
                            State::BareClosed
                        };
                    } else if picker.is_inert() {
                        self.state = State::Broken;
                    }
                    used
                }
                State::Before | State::Opened | State::AfterElement | State::AfterComma => self.between(first, picker),
            };
            rest = rest.get(used..).unwrap_or_default();
        }
    }

    fn between(&mut self, first: u8, picker: &mut Picker) -> usize {
        let (state, used) = match (self.state, first) {
            (state, b' ' | b'\t' | b'\r' | b'\n') => (state, 1),
            (State::Before, b'[') => (State::Opened, 1),
            (State::Before, _) => (State::Bare, 0),
            (State::Opened | State::AfterElement, b']') => (State::Closed, 1),
            (State::AfterElement, b',') => (State::AfterComma, 1),
            (State::Opened | State::AfterComma, _) => (State::Element, 0),
            _ => (State::Broken, 0),
        };
        if matches!(state, State::Element | State::Bare) {
            picker.reset();
        }
        self.state = state;
        used
    }

    /// The bytes that end the array here with `last` (a JSON value) as its last element. `None` when the array is closed, or is none.
    pub fn failure_tail(&self, picker: &Picker, last: &[u8]) -> Option<Vec<u8>> {
        let before = match self.state {
            State::Before => b"[".to_vec(),
            State::Opened | State::AfterComma => Vec::new(),
            State::AfterElement => b",".to_vec(),
            State::Element => {
                let mut before = picker.completion()?;
                before.push(b',');
                before
            }
            State::Closed | State::Bare | State::BareClosed | State::Broken => return None,
        };
        Some([before.as_slice(), last, b"]"].concat())
    }
}
