//! Splits a JSON array into its elements. The array arrives in pieces, as a Gemini stream without `alt=sse` does.
//!
//! The elements are passed to a [`Picker`] as they arrive. After any byte, the framer can end the array so that it is valid JSON.

use crate::domain::wire::json_pick::Picker;

#[cfg(test)]
mod tests;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ArrayState {
    Before,
    /// After the opening bracket, before the first element.
    Opened,
    Element,
    AfterElement,
    AfterComma,
    Closed,
    /// In a value that is not an array. Google sends an error as an object without an array.
    Bare,
    BareClosed,
    Broken,
}

/// A framer that splits an array into elements. The elements do not depend on how the array is split into pieces.
#[derive(Debug)]
pub(crate) struct ArrayFramer {
    state: ArrayState,
}

impl Default for ArrayFramer {
    fn default() -> Self {
        Self::new()
    }
}

impl ArrayFramer {
    /// Returns a framer at the start of a body.
    pub(crate) const fn new() -> Self {
        Self {
            state: ArrayState::Before,
        }
    }

    /// Whether the array is complete, or the value that was sent instead of an array.
    pub(crate) fn is_closed(&self) -> bool {
        matches!(self.state, ArrayState::Closed | ArrayState::BareClosed)
    }

    /// Whether the current position is outside of all elements: among brackets, commas and white space.
    pub(crate) fn is_between_elements(&self) -> bool {
        !matches!(self.state, ArrayState::Element | ArrayState::Bare | ArrayState::Broken)
    }

    /// Reads the next bytes. `picker` reads the current element. When an element is complete, `on_element` is called with the
    /// picker and the offset in `bytes` at which the element ends.
    pub(crate) fn push(&mut self, bytes: &[u8], picker: &mut Picker, mut on_element: impl FnMut(&Picker, usize)) {
        let mut rest = bytes;
        while let Some(&first) = rest.first() {
            let used = match self.state {
                ArrayState::Closed | ArrayState::BareClosed | ArrayState::Broken => return,
                ArrayState::Element | ArrayState::Bare => {
                    let used = picker.push(rest);
                    if picker.is_done() {
                        on_element(picker, bytes.len() - rest.len() + used);
                        self.state = if self.state == ArrayState::Element {
                            ArrayState::AfterElement
                        } else {
                            ArrayState::BareClosed
                        };
                    } else if picker.is_inert() {
                        self.state = ArrayState::Broken;
                    }
                    used
                }
                ArrayState::Before | ArrayState::Opened | ArrayState::AfterElement | ArrayState::AfterComma => {
                    self.step_between_elements(first, picker)
                }
            };
            rest = rest.get(used..).unwrap_or_default();
        }
    }

    fn step_between_elements(&mut self, first: u8, picker: &mut Picker) -> usize {
        let (state, used) = match (self.state, first) {
            (state, b' ' | b'\t' | b'\r' | b'\n') => (state, 1),
            (ArrayState::Before, b'[') => (ArrayState::Opened, 1),
            (ArrayState::Before, _) => (ArrayState::Bare, 0),
            (ArrayState::Opened | ArrayState::AfterElement, b']') => (ArrayState::Closed, 1),
            (ArrayState::AfterElement, b',') => (ArrayState::AfterComma, 1),
            (ArrayState::Opened | ArrayState::AfterComma, _) => (ArrayState::Element, 0),
            _ => (ArrayState::Broken, 0),
        };
        if matches!(state, ArrayState::Element | ArrayState::Bare) {
            picker.reset();
        }
        self.state = state;
        used
    }

    /// Returns the bytes that end the array at the current position with the JSON value `last` as its last element. `None` if the
    /// array is already closed, or the value is not an array.
    pub(crate) fn failure_tail(&self, picker: &Picker, last: &[u8]) -> Option<Vec<u8>> {
        let before = match self.state {
            ArrayState::Before => b"[".to_vec(),
            ArrayState::Opened | ArrayState::AfterComma => Vec::new(),
            ArrayState::AfterElement => b",".to_vec(),
            ArrayState::Element => {
                let mut before = picker.completion()?;
                before.push(b',');
                before
            }
            ArrayState::Closed | ArrayState::Bare | ArrayState::BareClosed | ArrayState::Broken => return None,
        };
        Some([before.as_slice(), last, b"]"].concat())
    }
}
