//! Chooses the content coding of an answer (RFC 9110 section 12.5.3).

use http::{HeaderMap, header};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AcceptedCoding {
    Identity,
    /// RFC 1952.
    Gzip,
    /// RFC 7932.
    Brotli,
}

/// The weights that a client gives to codings, in thousandths; `None` for a coding that it does not accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CodingWeights {
    identity: Option<u16>,
    gzip: Option<u16>,
    brotli: Option<u16>,
}

impl CodingWeights {
    /// Reads `accept-encoding`. Several lines are one list, and an invalid member is ignored.
    pub(super) fn from_headers(headers: &HeaderMap) -> Self {
        let (mut identity, mut gzip, mut brotli, mut rest) = (None, None, None, None);
        let lines = headers.get_all(header::ACCEPT_ENCODING).iter();
        let members = lines
            .filter_map(|line| line.to_str().ok())
            .flat_map(|line| line.split(','));
        for (name, weight) in members.filter_map(member) {
            let place = match name.to_ascii_lowercase().as_str() {
                "identity" => &mut identity,
                "gzip" | "x-gzip" => &mut gzip,
                "br" => &mut brotli,
                "*" => &mut rest,
                _ => continue,
            };
            *place = Some(weight);
        }
        let wanted = |weight: Option<u16>| weight.or(rest).filter(|weight| *weight > 0);
        let identity = match identity.or(rest) {
            // Not mentioned: acceptable, but with the lowest weight.
            None => Some(0),
            Some(0) => None,
            Some(weight) => Some(weight),
        };
        Self {
            identity,
            gzip: wanted(gzip),
            brotli: wanted(brotli),
        }
    }

    /// The coding with the highest weight, or the most compact one of several with the same weight. A `small` body is not
    /// compressed unless the client refuses identity. `None` if the client accepts no coding.
    pub(super) fn choose(self, small: bool) -> Option<AcceptedCoding> {
        if small && self.identity.is_some() {
            return Some(AcceptedCoding::Identity);
        }
        let mut best: Option<(u16, AcceptedCoding)> = None;
        for (weight, coding) in [
            (self.brotli, AcceptedCoding::Brotli),
            (self.gzip, AcceptedCoding::Gzip),
            (self.identity, AcceptedCoding::Identity),
        ] {
            match (weight, best) {
                (Some(weight), None) => best = Some((weight, coding)),
                (Some(weight), Some((most, _))) if weight > most => best = Some((weight, coding)),
                (Some(_) | None, _) => {}
            }
        }
        best.map(|(_, coding)| coding)
    }
}

/// A member of the list: a coding and its weight, which is 1 by default.
fn member(text: &str) -> Option<(&str, u16)> {
    let mut parts = text.split(';').map(str::trim);
    let name = parts.next().filter(|name| !name.is_empty())?;
    let weight = match parts.next() {
        None => 1000,
        Some(parameter) => {
            let (key, value) = parameter.split_once('=')?;
            if !key.trim().eq_ignore_ascii_case("q") {
                return None;
            }
            weight(value.trim())?
        }
    };
    Some((name, weight))
}

/// `0`, `1`, or one of them with up to three decimals, in thousandths (RFC 9110 section 12.4.2).
fn weight(text: &str) -> Option<u16> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    if decimals.len() > 3 || !decimals.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let thousandths: u16 = format!("{decimals:0<3}").parse().ok()?;
    match whole {
        "0" => Some(thousandths),
        "1" if thousandths == 0 => Some(1000),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn wishes(lines: &[&str]) -> CodingWeights {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(header::ACCEPT_ENCODING, line.parse().unwrap());
        }
        CodingWeights::from_headers(&headers)
    }

    #[test]
    fn the_most_wanted_coding_is_chosen_and_none_that_is_refused() {
        use AcceptedCoding::{Brotli, Gzip, Identity};
        for (accept, chosen) in [
            ("gzip, deflate, br, zstd", Some(Brotli)),
            ("gzip", Some(Gzip)),
            ("x-gzip", Some(Gzip)),
            ("BR", Some(Brotli)),
            ("", Some(Identity)),
            ("deflate", Some(Identity)),
            ("*", Some(Brotli)),
            ("br;q=0, *", Some(Gzip)),
            ("br;q=0.5, gzip;q=0.8", Some(Gzip)),
            ("br;q=0.001", Some(Brotli)),
            ("gzip;q=0.5, identity", Some(Identity)),
            ("gzip;q=0", Some(Identity)),
            ("identity;q=0, gzip", Some(Gzip)),
            ("identity;q=0", None),
            ("*;q=0", None),
            ("*;q=0, gzip ; q=0.3", Some(Gzip)),
            ("br;q=2, gzip", Some(Gzip)),
            ("br;q=, gzip;q=0.1234", Some(Identity)),
            ("br;level=3", Some(Identity)),
        ] {
            assert_eq!(wishes(&[accept]).choose(false), chosen, "{accept}");
        }
        assert_eq!(wishes(&[]).choose(false), Some(Identity));
        assert_eq!(wishes(&["gzip", "br"]).choose(false), Some(Brotli));
    }

    #[test]
    fn a_small_body_stays_plain_unless_the_client_insists() {
        assert_eq!(wishes(&["br, gzip"]).choose(true), Some(AcceptedCoding::Identity));
        assert_eq!(wishes(&["identity;q=0, gzip"]).choose(true), Some(AcceptedCoding::Gzip));
        assert_eq!(wishes(&["*;q=0"]).choose(true), None);
    }

    proptest! {
        #[test]
        fn any_text_can_be_read(text in "[ -~]{0,60}") {
            let _ = wishes(&[&text]).choose(false);
        }
    }
}
