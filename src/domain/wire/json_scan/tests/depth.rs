//! How deep a body may nest.

use super::*;

fn nested(levels: usize) -> String {
    // Objects and arrays by turns, so that the level stack has to tell them apart on the way back.
    let (mut open, mut close) = (String::from("{\"a\":"), String::from("}"));
    for level in 1..levels {
        open.push_str(if level % 3 == 0 { "{\"a\":" } else { "[" });
        close.insert(0, if level % 3 == 0 { '}' } else { ']' });
    }
    format!("{open}1{close}")
}

#[test]
fn depth_is_limited_without_recursion() {
    for depth_max in [1, 2, 63, 64, 65, 256, DEPTH_MAX] {
        let limits = ScanLimits { depth_max, ..LIMITS };
        assert_eq!(
            facts(scan(nested(depth_max).as_bytes(), &limits)),
            Ok(Scan::default()),
            "{depth_max}"
        );
        let error = scan(nested(depth_max + 1).as_bytes(), &limits).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("the body nests deeper than {depth_max} levels")
        );
    }
    let unlimited = ScanLimits {
        depth_max: usize::MAX,
        ..LIMITS
    };
    for unit in ["[", "{\"a\":"] {
        let bottomless = format!("{{\"a\":{}", unit.repeat(1_000_000));
        let error = scan(bottomless.as_bytes(), &unlimited).unwrap_err();
        assert!(
            matches!(
                error,
                ScanError::TooDeep {
                    depth_max: DEPTH_MAX,
                    ..
                }
            ),
            "{error}"
        );
    }
    let none = ScanLimits { depth_max: 0, ..LIMITS };
    assert_eq!(facts(scan(b"{}", &none)), Ok(Scan::default()));
}
