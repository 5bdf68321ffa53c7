//! Tests of `calibration`.

use proptest::prelude::*;

use super::*;

fn after(samples: &[(u64, u64)]) -> Calibration {
    let mut calibration = Calibration::default();
    for (estimated, reported) in samples {
        calibration.learn(*estimated, *reported);
    }
    calibration
}

#[test]
fn it_starts_at_one_and_small_requests_teach_nothing() {
    assert_eq!(Calibration::default().factor(), TokenFactor::ONE);
    assert_eq!(
        after(&[(49, 400), (400, 49), (0, 0), (0, u64::MAX)]).factor(),
        TokenFactor::ONE
    );
    assert_eq!(TokenFactor::ONE.apply(7), 7);
}

#[test]
fn what_may_be_sound_or_images_is_held_for_at_the_dearest_of_their_prices() {
    let list = "version = \"v1\"\n[[price]]\nname = \"m\"\ntiers = [{ input = \"1\", output = \"10\", cache_read = \"0.1\", \
                input_audio = \"3\", cache_read_audio = \"0.3\", output_image = \"120\" }]";
    let list = crate::domain::money::price::PriceList::read("p.toml", list).unwrap();
    let price = list.find("m", "any").unwrap();
    let estimate = Estimate {
        input: InputEstimate {
            uncached: 100,
            cache_read: 1_000,
            ..InputEstimate::default()
        },
        output: 50,
    };
    assert_eq!(estimate.cost(price).nanos(), 100 * 3_000 + 1_000 * 300 + 50 * 120_000);
    assert_eq!(estimate.input_cost(price).nanos(), 100 * 3_000 + 1_000 * 300);
    // What a row can say of an answer that nobody has reported is that it was text.
    assert_eq!(estimate.uncached_cost(price).nanos(), 1_100 * 1_000);
}

#[test]
fn it_comes_to_what_requests_agree_on() {
    for (reported, thousandths) in [(1_300_u64, 1_300_u64), (700, 700), (4_000, 4_000), (250, 250)] {
        let factor = after(&[(1_000, reported); 200]).factor().apply(1_000);
        assert!(factor.abs_diff(thousandths) <= 1, "{factor} for {thousandths}");
    }
}

#[test]
fn a_few_absurd_requests_do_little() {
    let mut samples = vec![(1_000, 1_200); 100];
    samples.extend([(50, u64::MAX); 3]);
    let factor = after(&samples).factor().apply(1_000);
    assert!((1_150..1_400).contains(&factor), "{factor}");
    // And are forgotten.
    samples.extend([(1_000, 1_200); 40]);
    assert!(after(&samples).factor().apply(1_000).abs_diff(1_200) < 5);
}

#[test]
fn a_corrected_estimate_is_rounded_up_and_never_overflows() {
    assert_eq!(after(&[(1_000, 4_000); 200]).factor().apply(u64::MAX), u64::MAX);
    assert_eq!(after(&[(1_000, 250); 200]).factor().apply(1), 1);
    assert_eq!(after(&[(1_000, 250); 200]).factor().apply(0), 0);
}

#[test]
fn steady_output_is_held_for_as_it_is_and_varying_output_as_its_average() {
    let mut usual = TypicalOutput::new(1_000);
    (0..50).for_each(|_| usual.learn(1_000));
    assert!((990..=1_000).contains(&usual.tokens()), "{usual:?}");
    let outputs = [300_u64, 900, 500, 1_400, 200, 800, 2_000, 600];
    for round in 0..80 {
        usual.learn(outputs[round % outputs.len()]);
    }
    assert!((600..1_100).contains(&usual.tokens()), "{usual:?}");
}

#[test]
fn what_is_held_for_output_is_no_more_than_was_asked_for() {
    let usual = TypicalOutput::new(20_000);
    assert_eq!(output_estimate(None, None, None), OUTPUT_TOKENS_UNKNOWN);
    assert_eq!(output_estimate(Some(100), None, None), 100);
    assert_eq!(output_estimate(Some(0), Some(&usual), None), 0);
    assert_eq!(output_estimate(Some(50_000), Some(&usual), Some(8_192)), 8_192);
    assert_eq!(output_estimate(Some(50_000), Some(&usual), None), 20_000);
    assert_eq!(
        output_estimate(None, Some(&TypicalOutput::new(3)), None),
        OUTPUT_TOKENS_MIN
    );
}

proptest! {
    #[test]
    fn a_factor_stays_within_its_bounds(samples in prop::collection::vec((any::<u64>(), any::<u64>()), 0..300)) {
        let factor = after(&samples).factor().apply(1_000);
        prop_assert!((250..=4_000).contains(&factor), "{}", factor);
    }

    #[test]
    fn a_request_moves_a_factor_by_at_most_a_twentieth(
        samples in prop::collection::vec((50_u64..9_999, 50_u64..9_999), 0..50),
        last in (any::<u64>(), any::<u64>()),
    ) {
        let mut calibration = after(&samples);
        let before = calibration.factor().apply(1_000);
        calibration.learn(last.0, last.1);
        prop_assert!(calibration.factor().apply(1_000).abs_diff(before) <= before / 20 + 1);
    }

    #[test]
    fn what_is_usual_never_overflows(outputs in prop::collection::vec(any::<u64>(), 1..100)) {
        let mut usual = TypicalOutput::new(outputs[0]);
        for output in &outputs {
            usual.learn(*output);
            prop_assert!((OUTPUT_TOKENS_MIN..=COUNT_MAX).contains(&usual.tokens()));
        }
    }
}

proptest! {
    #[test]
    fn a_part_is_exact_also_where_a_product_is_large(value: u64, times: u64, over: u64, small in 0..1_000_000_u64) {
        for (value, times) in [(value, times), (value, small), (small, times), (small, small)] {
            let exact = u128::from(value) * u128::from(times) / u128::from(over.max(1));
            prop_assert_eq!(u128::from(scaled(value, times, over)), exact.min(u128::from(u64::MAX)));
        }
    }
}
