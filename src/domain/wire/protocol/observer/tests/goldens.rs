//! Recorded streams and what has to be observed in them. `WEIR_UPDATE_GOLDEN=1` writes the expectations anew.

use super::*;

#[test]
fn every_stream_is_observed_as_recorded_in_any_split() {
    let update = std::env::var_os("WEIR_UPDATE_GOLDEN").is_some();
    let names = names();
    assert!(names.len() > 15);
    for name in names {
        let (protocol, framing) = kind_of(&name);
        let bytes = stream(&name);
        let observed = observe(protocol, framing, &bytes, usize::MAX).observed();
        let text = format!("{observed:#?}\n");
        let file = folder().join(format!("{name}.expected"));
        if update {
            std::fs::write(&file, &text).unwrap();
        }
        assert_eq!(text, std::fs::read_to_string(&file).unwrap(), "{name}");
        for size in [1, 2, 3, 7, 16, 61, 150, 1000] {
            assert_eq!(
                observe(protocol, framing, &bytes, size).observed(),
                observed,
                "{name} in chunks of {size}"
            );
        }
    }
}
