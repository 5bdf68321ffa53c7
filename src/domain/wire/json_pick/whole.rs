//! Picks values out of an object or array that is completely in memory. Nothing is copied, and values to which no path leads are
//! skipped.

use super::path::{PathSet, PickLeaves, PickNodeId, ROOT};
use super::{Picker, Picks, TextCounter};
use crate::domain::wire::json_skip::{skip_space, skip_value, split_key, without_end};

impl Picker {
    /// Reads the object or array at the beginning of `bytes`, with the same result as a new picker that reads it in pieces. The
    /// bytes after it are ignored. If `bytes` does not begin with a complete object or array, returns `None` and leaves the
    /// picker unchanged.
    pub(crate) fn pick_whole<'b>(&mut self, bytes: &'b [u8]) -> Option<Picks<'b>> {
        let text = skip_space(bytes);
        if !matches!(text, [b'{' | b'[', ..]) {
            return None;
        }
        let mut reader = WholePickReader {
            set: self.set,
            picks: Picks::default(),
            text_counter: self.text_counter.clone(),
            is_counting: false,
        };
        reader.picks.make_room(self.set);
        reader.read_value(text, ROOT, 0)?;
        self.text_counter = reader.text_counter;
        Some(reader.picks)
    }
}

/// A reader that follows the paths of a set through JSON in memory. It does not recurse deeper than the paths.
struct WholePickReader<'b> {
    set: &'static PathSet,
    picks: Picks<'b>,
    text_counter: TextCounter,
    /// Whether the current position is in an object or array whose text is counted.
    is_counting: bool,
}

impl<'b> WholePickReader<'b> {
    /// Reads the value at the beginning of `text`, which is inside `outer` containers, and returns the text after it. `None` if
    /// the value is not complete.
    fn read_value(&mut self, text: &'b [u8], node: PickNodeId, outer: usize) -> Option<&'b [u8]> {
        let leaves = self.set.leaves(node);
        if let [b'{' | b'[', inside @ ..] = text {
            return self.read_container(text, inside, node, leaves, outer);
        }
        let behind = skip_value(text, outer)?;
        let json = without_end(text, behind);
        self.picks.count_each(leaves.count);
        if let [b'"', inner @ .., b'"'] = json
            && leaves.text
            && !self.is_counting
        {
            self.text_counter.push(inner);
            self.text_counter.end();
        }
        self.picks.store_borrowed(leaves.scalar, json);
        Some(behind)
    }

    fn read_container(
        &mut self,
        text: &'b [u8],
        inside: &'b [u8],
        node: PickNodeId,
        leaves: &PickLeaves,
        outer: usize,
    ) -> Option<&'b [u8]> {
        let is_array = text.starts_with(b"[");
        self.picks.on_container_begin(leaves);
        let listens = leaves.text && !self.is_counting;
        self.is_counting |= listens;
        let inside = skip_space(inside);
        if !matches!(inside, [b'}' | b']', ..]) {
            self.picks.set_present(leaves.presence);
        }
        let behind = match (leaves.tree, is_array, self.set.element_child(node)) {
            (0, true, Some(each)) => self.read_elements(inside, each, outer + 1)?,
            (0, false, _) if self.set.has_keys(node) => self.read_members(inside, node, outer + 1)?,
            _ => self.read_unfollowed(text, leaves, outer)?,
        };
        if listens {
            self.is_counting = false;
            self.text_counter.push_json(without_end(text, behind));
            self.text_counter.end();
        }
        match leaves.tree {
            0 => self.picks.on_container_end(leaves.marked),
            tree => self.picks.store_borrowed(tree, without_end(text, behind)),
        }
        Some(behind)
    }

    /// Reads a container that no path leads into, and returns the text after it.
    fn read_unfollowed(&mut self, text: &'b [u8], leaves: &PickLeaves, outer: usize) -> Option<&'b [u8]> {
        if leaves.fields.is_empty() {
            return skip_value(text, outer);
        }
        let read = self.picks.read_fields(text, leaves.fields, outer);
        read.or_else(|| skip_value(text, outer))
    }

    fn read_members(&mut self, mut rest: &'b [u8], node: PickNodeId, outer: usize) -> Option<&'b [u8]> {
        if let [b'}', behind @ ..] = rest {
            return Some(behind);
        }
        loop {
            let (key, value) = split_key(rest)?;
            // A key with an escape contains a backslash. No path contains a backslash, so the key matches no path.
            let behind = match self.set.key_child(node, key) {
                Some(node) => self.read_value(value, node, outer)?,
                None => skip_value(value, outer)?,
            };
            match skip_space(behind) {
                [b',', next @ ..] => rest = skip_space(next),
                [b'}', behind @ ..] => return Some(behind),
                _ => return None,
            }
        }
    }

    fn read_elements(&mut self, mut rest: &'b [u8], each: PickNodeId, outer: usize) -> Option<&'b [u8]> {
        if let [b']', behind @ ..] = rest {
            return Some(behind);
        }
        loop {
            match skip_space(self.read_value(rest, each, outer)?) {
                [b',', next @ ..] => rest = skip_space(next),
                [b']', behind @ ..] => return Some(behind),
                _ => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests;
