//! What a sum was over the last minutes: a bounded number of samples of a bounded number of series.

use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

/// The most series of one sum that are remembered; of others nothing is said.
const SERIES_MAX: usize = 4096;
/// A series that was not there yet.
const ABSENT: f64 = f64::NAN;

/// The samples of one sum within its window.
#[derive(Debug)]
pub(super) struct Ring {
    window: Duration,
    samples_max: usize,
    /// Where in a sample a series stands.
    places: BTreeMap<String, usize>,
    /// The oldest first.
    samples: VecDeque<(Instant, Vec<f64>)>,
}

impl Ring {
    /// One that remembers so much time, sampled once in `step`.
    pub(super) fn new(window: Duration, step: Duration) -> Self {
        let samples = window.as_secs() / step.as_secs().max(1);
        Self {
            window,
            samples_max: usize::try_from(samples).map_or(usize::MAX, |samples| samples.saturating_add(1)),
            places: BTreeMap::new(),
            samples: VecDeque::new(),
        }
    }

    /// Takes the sums of a moment, later than those before.
    pub(super) fn note(&mut self, at: Instant, sums: Vec<(String, f64)>) {
        let mut values = vec![ABSENT; self.places.len()];
        for (series, value) in sums {
            let next = self.places.len();
            if next == SERIES_MAX && !self.places.contains_key(&series) {
                continue;
            }
            let place = *self.places.entry(series).or_insert(next);
            if values.len() <= place {
                values.resize(place + 1, ABSENT);
            }
            if let Some(slot) = values.get_mut(place) {
                *slot = value;
            }
        }
        self.samples.push_back((at, values));
        while self.samples.len() > self.samples_max {
            self.samples.pop_front();
        }
    }

    /// Its samples of a series within the window before `now`, with how long ago each was, the oldest first. None before the
    /// first sample, and none of a series that found no room. Before it was there, a series is nothing.
    fn of<'a>(&'a self, series: &str, now: Instant) -> impl Iterator<Item = (Duration, Option<f64>)> + use<'a> {
        let place = self.places.get(series).copied();
        let is_told = place.is_some() || self.places.len() < SERIES_MAX;
        let within = move |(at, values): &'a (Instant, Vec<f64>)| {
            let ago = now.saturating_duration_since(*at);
            let value = place.and_then(|place| values.get(place)).copied();
            (is_told && ago <= self.window).then_some((ago, value.filter(|value| !value.is_nan())))
        };
        self.samples.iter().filter_map(within)
    }

    /// By how much a counter that is `value` now has grown within the window; `None`: nobody knows.
    pub(super) fn growth(&self, series: &str, value: f64, now: Instant) -> Option<f64> {
        let (_, oldest) = self.of(series, now).next()?;
        Some(value - oldest.unwrap_or_default())
    }

    /// Whether a gauge that is `value` now was another within the window.
    pub(super) fn has_changed(&self, series: &str, value: f64, now: Instant) -> bool {
        let mut values = self.of(series, now).filter_map(|(_, value)| value);
        values.any(|before| (before - value).abs() > f64::EPSILON)
    }

    /// What a gauge that is `value` now will be, if it goes on by the straight line through its samples; `None`: they do not
    /// span half the window.
    pub(super) fn foreseen(&self, series: &str, value: f64, now: Instant, ahead: Duration) -> Option<f64> {
        let before = self.of(series, now).filter_map(|(ago, value)| Some((ago, value?)));
        let points: Vec<(f64, f64)> = before.map(|(ago, value)| (-ago.as_secs_f64(), value)).collect();
        let (first, _) = points.first()?;
        if -first < self.window.as_secs_f64() / 2.0 {
            return None;
        }
        let points = || points.iter().copied().chain([(0.0, value)]);
        let count = points().map(|_| 1.0).sum::<f64>();
        let mean = |of: fn((f64, f64)) -> f64| points().map(of).sum::<f64>() / count;
        let (time, level) = (mean(|(time, _)| time), mean(|(_, level)| level));
        let spread = points().map(|(at, _)| (at - time).powi(2)).sum::<f64>();
        let together = points().map(|(at, one)| (at - time) * (one - level)).sum::<f64>();
        let slope = together / spread;
        Some(slope.mul_add(ahead.as_secs_f64() - time, level))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edges::clock;

    const STEP: Duration = Duration::from_secs(30);

    fn filled(values: &[f64]) -> (Ring, Instant) {
        let mut ring = Ring::new(Duration::from_secs(300), STEP);
        let mut at = clock::instant();
        for value in values {
            at += STEP;
            ring.note(at, vec![("a".to_owned(), *value)]);
        }
        (ring, at)
    }

    #[test]
    fn growth_is_what_came_within_the_window() {
        let (ring, last) = filled(&[100.0; 3]);
        assert_eq!(ring.growth("a", 107.0, last + STEP), Some(7.0));
        assert_eq!(ring.growth("new", 3.0, last), Some(3.0), "it was nothing before");
        assert_eq!(ring.growth("a", 107.0, last + Duration::from_secs(301)), None);
        let (empty, at) = filled(&[]);
        assert_eq!(empty.growth("a", 7.0, at), None);
        // Of 100 samples that rise by one each, the window has the last ten steps.
        let rising: Vec<f64> = (0..100).map(f64::from).collect();
        let (ring, last) = filled(&rising);
        assert_eq!(ring.growth("a", 99.0, last), Some(10.0));
        assert_eq!(ring.samples.len(), 11, "no more are kept");
    }

    #[test]
    fn a_series_without_room_is_not_told_as_if_it_were_new() {
        let mut ring = Ring::new(Duration::from_secs(300), STEP);
        let at = clock::instant();
        let many = |count: usize| (0..count).map(|number| (number.to_string(), 1.0)).collect::<Vec<_>>();
        ring.note(at, many(SERIES_MAX + 2));
        assert_eq!(ring.places.len(), SERIES_MAX);
        let kept = ring.places.keys().next().unwrap().clone();
        assert_eq!(ring.growth(&kept, 3.0, at), Some(2.0));
        assert_eq!(ring.growth("without room", 3.0, at), None);
    }

    #[test]
    fn a_gauge_that_changed_is_told_and_one_that_has_just_come_has_not() {
        let (ring, last) = filled(&[1.0, 1.0]);
        assert!(!ring.has_changed("a", 1.0, last) && ring.has_changed("a", 2.0, last));
        assert!(!ring.has_changed("new", 2.0, last));
    }

    #[test]
    fn a_line_is_drawn_on_when_half_the_window_is_known() {
        let falling: Vec<f64> = (0..6).map(|step| 1000.0 - 30.0 * f64::from(step)).collect();
        let (ring, last) = filled(&falling);
        let foreseen = ring.foreseen("a", 850.0, last, Duration::from_secs(850)).unwrap();
        assert!(foreseen.abs() < 1e-6, "{foreseen}");
        let (short, last) = filled(&falling[..5]);
        assert_eq!(short.foreseen("a", 880.0, last, STEP), None);
    }
}
