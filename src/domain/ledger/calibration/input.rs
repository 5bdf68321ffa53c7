//! The usual cache use of a key's requests to a model.

use crate::domain::{
    ledger::calibration::{estimate::InputEstimate, scaled},
    wire::usage::Usage,
};

/// Each request moves the averages of errors and of writing by 1/4 of the way.
const AVERAGE_DIVISOR: u64 = 4;
/// The unit of written shares: thousandths of the input that is not read.
const SHARE_ONE: u64 = 1_000;

/// How much one key's requests to one model usually read from a cache and write to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TypicalInput {
    /// The tokens that the last request read from a cache.
    read_last: u64,
    /// The average error of each prediction, in tokens.
    off_by_last: u64,
    off_by_turns: u64,
    /// The written shares of the input that was not read, in units of 1/[`SHARE_ONE`].
    written_short: u64,
    written_long: u64,
    /// Whether anything has been learnt.
    is_known: bool,
}

impl TypicalInput {
    /// Learns from a finished request and its reported usage; `new` is the estimate of its tokens from the model's last answer
    /// on, `None` if there was no answer.
    pub(crate) fn learn(&mut self, reported: &Usage, new: Option<u64>) {
        let input = reported.input_total();
        let read = reported.cache_read_total();
        let off = |guess: u64| guess.abs_diff(read);
        let by_last = off(self.read_last.min(input));
        let by_turns = off(all_but(input, new));
        let fresh = input.saturating_sub(read);
        let share = |part: u64| share_of(part, fresh);
        let (short, long) = (share(reported.cache_write_short), share(reported.cache_write_long));
        if self.is_known {
            self.off_by_last = towards(self.off_by_last, by_last);
            self.off_by_turns = towards(self.off_by_turns, by_turns);
            if fresh > 0 {
                self.written_short = towards(self.written_short, short);
                self.written_long = towards(self.written_long, long);
            }
        } else {
            (self.off_by_last, self.off_by_turns) = (by_last, by_turns);
            (self.written_short, self.written_long) = (short, long);
        }
        self.read_last = read;
        self.is_known = true;
    }

    /// Splits `input` tokens into the expected parts, whose sum is `input`; `new` is the number of tokens from the model's last
    /// answer on.
    pub(crate) fn estimate(&self, input: u64, new: Option<u64>) -> InputEstimate {
        let read = if self.off_by_turns < self.off_by_last {
            all_but(input, new)
        } else {
            self.read_last.min(input)
        };
        let fresh = input - read;
        let part = |share: u64| part_of(fresh, share);
        let (short, long) = (part(self.written_short), part(self.written_long));
        let short = short.min(fresh - long);
        InputEstimate {
            cache_read: read,
            cache_write_short: short,
            cache_write_long: long,
            uncached: fresh - long - short,
        }
    }
}

/// The tokens of a conversation before its `new` ones; zero for a conversation that begins.
fn all_but(input: u64, new: Option<u64>) -> u64 {
    new.map_or(0, |new| input.saturating_sub(new))
}

fn towards(usual: u64, now: u64) -> u64 {
    let step = usual.abs_diff(now).div_ceil(AVERAGE_DIVISOR);
    if now > usual { usual + step } else { usual - step }
}

fn share_of(part: u64, whole: u64) -> u64 {
    scaled(part, SHARE_ONE, whole).min(SHARE_ONE)
}

fn part_of(whole: u64, share: u64) -> u64 {
    scaled(whole, share, SHARE_ONE).min(whole)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn reported(uncached: u64, read: u64, written: u64) -> Usage {
        Usage {
            input_uncached: uncached,
            cache_read: read,
            cache_write_short: written,
            ..Usage::default()
        }
    }

    fn expected(uncached: u64, read: u64, written: u64) -> InputEstimate {
        InputEstimate {
            uncached,
            cache_read: read,
            cache_write_short: written,
            cache_write_long: 0,
        }
    }

    fn after(requests: &[(Usage, Option<u64>)]) -> TypicalInput {
        let mut usual = TypicalInput::default();
        for (usage, new) in requests {
            usual.learn(usage, *new);
        }
        usual
    }

    #[test]
    fn nothing_is_read_before_it_was_seen() {
        assert_eq!(TypicalInput::default().estimate(900, Some(100)), expected(900, 0, 0));
        // Written once is not read once.
        let written = after(&[(reported(0, 0, 150_000), None)]);
        assert_eq!(written.estimate(150_000, None), expected(0, 0, 150_000));
    }

    #[test]
    fn the_same_beginning_is_read_again() {
        let usual = after(&[(reported(0, 0, 150_000), None), (reported(20, 150_000, 0), None)]);
        let parts = usual.estimate(150_020, None);
        assert_eq!((parts.cache_read, parts.total()), (150_000, 150_020));
        // No more than there is.
        assert_eq!(usual.estimate(900, None).cache_read, 900);
    }

    #[test]
    fn conversations_side_by_side_are_read_up_to_their_last_answer() {
        let mut turns = Vec::new();
        for turn in 1..20 {
            turns.push((reported(0, 20_000 + turn * 3_000, 3_000), Some(3_000)));
            turns.push((reported(0, 100_000 + turn * 500, 500), Some(500)));
        }
        let usual = after(&turns);
        assert_eq!(usual.estimate(60_000, Some(2_000)), expected(0, 58_000, 2_000));
    }

    #[test]
    fn a_key_that_reads_no_cache_is_held_for_in_full() {
        let usual = after(&[(reported(9_000, 0, 0), Some(300)); 5]);
        assert_eq!(usual.estimate(12_000, Some(200)), expected(12_000, 0, 0));
        // And one whose cache has gone is so again soon.
        let mut requests = vec![(reported(0, 9_000, 300), Some(300)); 9];
        requests.extend([(reported(9_300, 0, 0), Some(300)); 2]);
        let usual = after(&requests);
        assert_eq!(usual.estimate(9_300, Some(300)).cache_read, 0);
    }

    proptest! {
        #[test]
        fn the_parts_are_the_input(
            requests in prop::collection::vec((0..1_u64 << 53, 0..1_u64 << 53, 0..1_u64 << 53, any::<Option<u64>>()), 0..20),
            input: u64,
            new: Option<u64>,
        ) {
            let requests: Vec<_> = requests.into_iter().map(|(a, b, c, new)| (reported(a, b, c), new)).collect();
            prop_assert_eq!(after(&requests).estimate(input, new).total(), input);
        }
    }
}
