//! The query on the command line (RFC 3875, 4.4).

use crate::{digits::parse_percent, h1::Method};

/// Returns the search words of `query` (as it came, without `?`) as arguments of the program, decoded.
/// There are no words if the method is not GET or HEAD, or if the query holds an unencoded `=`. A
/// single bad word also drops all words. A word is bad if it is empty, begins with `-` (it would be an
/// option: CVE-2012-1823), holds NUL, or has a bad percent-encoding.
pub fn search_words(method: &Method, query: &str) -> Vec<Vec<u8>> {
    let asked = matches!(method, Method::Get | Method::Head);
    if !asked || query.is_empty() || query.contains('=') {
        return Vec::new();
    }
    let words: Option<_> = query.split('+').map(decode_word).collect();
    words.unwrap_or_default()
}

fn decode_word(encoded: &str) -> Option<Vec<u8>> {
    let word = decode_percent(encoded.as_bytes())?;
    let safe = !matches!(word[..], [] | [b'-', ..]) && !word.contains(&0);
    safe.then_some(word)
}

fn decode_percent(mut encoded: &[u8]) -> Option<Vec<u8>> {
    let mut word = Vec::with_capacity(encoded.len());
    while let [first, rest @ ..] = encoded {
        let escaped = *first == b'%';
        word.push(if escaped {
            parse_percent(rest)?
        } else {
            *first
        });
        encoded = if escaped { &rest[2..] } else { rest };
    }
    Some(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s4_4_words_of_a_query() {
        for (query, want) in [
            ("a", &["a"][..]),
            ("a+b", &["a", "b"]),
            ("a%2Bb+%3d", &["a+b", "="]),
            ("a%20b", &["a b"]),
            ("a-b", &["a-b"]),
            ("%e4%2F", &["\u{fffd}/"]),
            ("", &[]),
            ("a=b", &[]),
            ("a+b=", &[]),
            ("-s", &[]),
            ("%2ds", &[]),
            ("%2Dd+allow_url_include%3d1", &[]),
            ("a+-s", &[]),
            ("a+%00", &[]),
            ("a%00b", &[]),
            ("a++b", &[]),
            ("a+", &[]),
            ("a%", &[]),
            ("a%4", &[]),
            ("a%4g+b", &[]),
            ("a%+1", &[]),
        ] {
            let words = search_words(&Method::Get, query);
            let words: Vec<_> = words.iter().map(|w| String::from_utf8_lossy(w)).collect();
            assert_eq!(words, want, "{query}");
        }
    }

    #[test]
    fn s4_4_only_for_get_and_head() {
        assert_eq!(search_words(&Method::Head, "a"), [b"a"]);
        assert!(search_words(&Method::Post, "a").is_empty());
        assert!(search_words(&Method::Other("PUT".into()), "a").is_empty());
    }
}
