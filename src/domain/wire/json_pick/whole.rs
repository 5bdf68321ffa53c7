//! Picks out of an object or array that is whole in memory: nothing is copied, and what is on no path is only skipped.

use super::path::{Leaves, NodeId, PathSet, ROOT};
use super::{Heard, Picker, Picks};
use crate::domain::wire::json_skip::{before, skip_space, skip_value, split_key};

impl Picker {
    /// Reads the object or array that `bytes` begin with, as a new picker reads it in any split; what follows is nobody's. `None`
    /// if they begin with none that is whole: then nothing has changed.
    pub(crate) fn pick_whole<'b>(&mut self, bytes: &'b [u8]) -> Option<Picks<'b>> {
        let text = skip_space(bytes);
        if !matches!(text, [b'{' | b'[', ..]) {
            return None;
        }
        let mut reader = Reader {
            set: self.set,
            picks: Picks::default(),
            heard: self.heard.clone(),
            is_listening: false,
        };
        reader.picks.make_room(self.set);
        reader.value(text, ROOT, 0)?;
        self.heard = reader.heard;
        Some(reader.picks)
    }
}

/// Follows the paths; it goes no deeper than they do.
struct Reader<'b> {
    set: &'static PathSet,
    picks: Picks<'b>,
    heard: Heard,
    /// What is being read is within an object or array that is listened to.
    is_listening: bool,
}

impl<'b> Reader<'b> {
    /// Takes in the value that `text` begins with, inside `outer` containers; returns what follows it.
    fn value(&mut self, text: &'b [u8], node: NodeId, outer: usize) -> Option<&'b [u8]> {
        let leaves = self.set.leaves(node);
        if let [b'{' | b'[', inside @ ..] = text {
            return self.container(text, inside, node, leaves, outer);
        }
        let behind = skip_value(text, outer)?;
        let json = before(text, behind);
        self.picks.count_each(leaves.count);
        if let [b'"', inner @ .., b'"'] = json
            && leaves.text
            && !self.is_listening
        {
            self.heard.push(inner);
            self.heard.end();
        }
        self.picks.borrow(leaves.scalar, json);
        Some(behind)
    }

    fn container(
        &mut self,
        text: &'b [u8],
        inside: &'b [u8],
        node: NodeId,
        leaves: &Leaves,
        outer: usize,
    ) -> Option<&'b [u8]> {
        let is_array = text.starts_with(b"[");
        self.picks.open(leaves);
        let listens = leaves.text && !self.is_listening;
        self.is_listening |= listens;
        let inside = skip_space(inside);
        if !matches!(inside, [b'}' | b']', ..]) {
            self.picks.take_each(leaves.presence);
        }
        let behind = match (leaves.tree, is_array, self.set.each(node)) {
            (0, true, Some(each)) => self.elements(inside, each, outer + 1)?,
            (0, false, _) if self.set.has_keys(node) => self.members(inside, node, outer + 1)?,
            _ => self.unfollowed(text, leaves, outer)?,
        };
        if listens {
            self.is_listening = false;
            self.heard.push_plain(before(text, behind));
            self.heard.end();
        }
        match leaves.tree {
            0 => self.picks.end_marked(leaves.marked),
            tree => self.picks.borrow(tree, before(text, behind)),
        }
        Some(behind)
    }

    /// Takes in a container that no path leads into.
    fn unfollowed(&mut self, text: &'b [u8], leaves: &Leaves, outer: usize) -> Option<&'b [u8]> {
        if leaves.fields.is_empty() {
            return skip_value(text, outer);
        }
        let read = self.picks.read_fields(text, leaves.fields, outer);
        read.or_else(|| skip_value(text, outer))
    }

    fn members(&mut self, mut rest: &'b [u8], node: NodeId, outer: usize) -> Option<&'b [u8]> {
        if let [b'}', behind @ ..] = rest {
            return Some(behind);
        }
        loop {
            let (key, value) = split_key(rest)?;
            // One that is written with escapes has a backslash, and no path has.
            let behind = match self.set.key(node, key) {
                Some(node) => self.value(value, node, outer)?,
                None => skip_value(value, outer)?,
            };
            match skip_space(behind) {
                [b',', next @ ..] => rest = skip_space(next),
                [b'}', behind @ ..] => return Some(behind),
                _ => return None,
            }
        }
    }

    fn elements(&mut self, mut rest: &'b [u8], each: NodeId, outer: usize) -> Option<&'b [u8]> {
        if let [b']', behind @ ..] = rest {
            return Some(behind);
        }
        loop {
            match skip_space(self.value(rest, each, outer)?) {
                [b',', next @ ..] => rest = skip_space(next),
                [b']', behind @ ..] => return Some(behind),
                _ => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests;
