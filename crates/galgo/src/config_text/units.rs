//! Values with a unit, as they are typed: `"10s"`, `"64K"`, `"022"`, `"none"`.

use std::{fmt, marker::PhantomData, time::Duration};

use serde::{
    Deserialize, Deserializer,
    de::{self, Visitor},
};

/// A kind of value that may be typed as a number, as a text, or as either.
pub(crate) trait Unit: Sized {
    /// The name of the unit and how it is written, for messages.
    const FORM: &str;
    /// The same text with `"none"` as another choice: Rust cannot build one constant from another.
    const FORM_OR_NONE: &str = "";
    /// Makes a value from a plain number; `None` if the unit takes none, or not this number.
    fn from_number(_number: u64) -> Option<Self> {
        None
    }
    /// Makes a value from a text; `None` if the text is not written like this unit.
    fn from_text(_text: &str) -> Option<Self> {
        None
    }
    /// Guesses the right spelling of a wrong text.
    fn suggest_spelling(_text: &str) -> Option<String> {
        None
    }
}

/// Makes a [`Unit`] readable from TOML.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Value<U>(pub(crate) U);

impl<'de, U: Unit> Deserialize<'de> for Value<U> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(UnitVisitor(PhantomData))
    }
}

struct UnitVisitor<U>(PhantomData<U>);

impl<U: Unit> Visitor<'_> for UnitVisitor<U> {
    type Value = Value<U>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(U::FORM)
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Self::Value, E> {
        let value = u64::try_from(number).ok().and_then(U::from_number);
        value
            .map(Value)
            .ok_or_else(|| E::custom(format!("{number} is not {}", U::FORM)))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
        U::from_text(text).map(Value).ok_or_else(|| {
            let meant = U::suggest_spelling(text).map(|meant| format!("; did you mean {meant}?"));
            let meant = meant.unwrap_or_default();
            E::custom(format!("{text:?} is not {}{meant}", U::FORM))
        })
    }
}

/// A duration: whole seconds, or a number with `ms`, `s`, `m` or `h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
pub(crate) struct Time(pub(crate) Duration);

impl Time {
    pub(crate) const fn from_millis(ms: u64) -> Self {
        Self(Duration::from_millis(ms))
    }

    pub(crate) const fn from_secs(secs: u64) -> Self {
        Self(Duration::from_secs(secs))
    }
}

impl Unit for Time {
    const FORM: &str = r#"a duration: seconds (10), or "250ms", "10s", "2m", "1h""#;
    const FORM_OR_NONE: &str = r#"a duration: seconds (10), or "10s", "2m", "1h"; or "none""#;

    fn from_number(number: u64) -> Option<Self> {
        Some(Self::from_secs(number))
    }

    fn from_text(text: &str) -> Option<Self> {
        let (number, unit) = split_number_unit(text)?;
        let ms = match unit {
            "ms" => 1,
            "s" => 1000,
            "m" => 60_000,
            "h" => 3_600_000,
            _ => return None,
        };
        number.checked_mul(ms).map(Self::from_millis)
    }

    fn suggest_spelling(text: &str) -> Option<String> {
        match split_number_word(text)? {
            (number, "d" | "day" | "days") => Some(format!("\"{}h\"", number.checked_mul(24)?)),
            (number, "" | "sec" | "secs" | "second" | "seconds") => Some(format!("\"{number}s\"")),
            (number, "min" | "mins" | "minute" | "minutes") => Some(format!("\"{number}m\"")),
            (number, "hour" | "hours") => Some(format!("\"{number}h\"")),
            _ => None,
        }
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_millis() {
            ms if ms % 1000 != 0 => write!(f, "{ms}ms"),
            ms if ms > 0 && ms % 3_600_000 == 0 => write!(f, "{}h", ms / 3_600_000),
            ms if ms > 0 && ms % 60_000 == 0 => write!(f, "{}m", ms / 60_000),
            ms => write!(f, "{}s", ms / 1000),
        }
    }
}

/// Processor time of a process, or percent of one processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cpu {
    Time(Time),
    Percent(u64),
}

impl Unit for Cpu {
    const FORM: &str = Time::FORM;
    const FORM_OR_NONE: &str = r#"a duration: seconds (10), or "10s", "2m", "1h"; a part of a processor: "50%"; or "none""#;

    fn from_number(number: u64) -> Option<Self> {
        Time::from_number(number).map(Self::Time)
    }

    fn from_text(text: &str) -> Option<Self> {
        match split_number_unit(text)? {
            (percent, "%") => Some(Self::Percent(percent)),
            _ => Time::from_text(text).map(Self::Time),
        }
    }

    fn suggest_spelling(text: &str) -> Option<String> {
        Time::suggest_spelling(text)
    }
}

/// A number of bytes: plain, or with `K`, `M`, `G` or `T` (powers of 1024).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
pub(crate) struct Size(pub(crate) u64);

pub(crate) const K: u64 = 1 << 10;
pub(crate) const M: u64 = 1 << 20;
pub(crate) const G: u64 = 1 << 30;
pub(crate) const T: u64 = 1 << 40;

impl Unit for Size {
    const FORM: &str = r#"a size: bytes (65536), or "64K", "16M", "1G" (powers of 1024)"#;
    const FORM_OR_NONE: &str = r#"a size: bytes (65536), or "64K", "16M", "1G"; or "none""#;

    fn from_number(number: u64) -> Option<Self> {
        Some(Self(number))
    }

    fn from_text(text: &str) -> Option<Self> {
        let (number, unit) = split_number_unit(text)?;
        let factor = match unit {
            "K" | "k" => K,
            "M" | "m" => M,
            "G" | "g" => G,
            "T" | "t" => T,
            _ => return None,
        };
        number.checked_mul(factor).map(Self)
    }

    fn suggest_spelling(text: &str) -> Option<String> {
        let (number, unit) = split_number_word(text)?;
        let unit = unit.to_ascii_uppercase();
        let letter = match unit.as_str() {
            "" | "B" => return Some(number.to_string()),
            "KB" | "KIB" => "K",
            "MB" | "MIB" => "M",
            "GB" | "GIB" => "G",
            "TB" | "TIB" => "T",
            _ => return None,
        };
        Some(format!("\"{number}{letter}\""))
    }
}

impl From<u64> for Size {
    fn from(bytes: u64) -> Self {
        Self(bytes)
    }
}

impl From<Size> for u64 {
    fn from(size: Size) -> Self {
        size.0
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(T, "T"), (G, "G"), (M, "M"), (K, "K")];
        match units
            .iter()
            .find(|(unit, _)| self.0 > 0 && self.0.is_multiple_of(*unit))
        {
            Some((unit, name)) => write!(f, "{}{name}", self.0 / unit),
            None => write!(f, "{}", self.0),
        }
    }
}

/// A plain number.
impl Unit for u64 {
    const FORM: &str = "a number from 0";
    const FORM_OR_NONE: &str = r#"a number from 0, or "none""#;

    fn from_number(number: u64) -> Option<Self> {
        Some(number)
    }
}

/// A value that may be absent: `"none"`.
impl<U: Unit> Unit for Option<U> {
    const FORM: &str = U::FORM_OR_NONE;

    fn suggest_spelling(text: &str) -> Option<String> {
        U::suggest_spelling(text)
    }

    fn from_number(number: u64) -> Option<Self> {
        U::from_number(number).map(Some)
    }

    fn from_text(text: &str) -> Option<Self> {
        match text {
            "none" => Some(None),
            _ => U::from_text(text).map(Some),
        }
    }
}

/// A file mode creation mask. A text, because an octal number cannot begin with 0 in TOML.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mask(pub(crate) u32);

impl Unit for Mask {
    const FORM: &str = r#"a mask: three octal digits in quotes ("022")"#;

    fn from_text(text: &str) -> Option<Self> {
        let octal = matches!(text.len(), 3 | 4) && text.bytes().all(|b| (b'0'..=b'7').contains(&b));
        let mask = octal.then(|| u32::from_str_radix(text, 8).ok())??;
        (mask <= 0o777).then_some(Self(mask))
    }
}

/// `dev_errors`: true, false or `"auto"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Switch {
    Auto,
    Is(bool),
}

impl<'de> Deserialize<'de> for Switch {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct SwitchVisitor;
        impl Visitor<'_> for SwitchVisitor {
            type Value = Switch;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(r#"true, false or "auto""#)
            }
            fn visit_bool<E: de::Error>(self, is: bool) -> Result<Switch, E> {
                Ok(Switch::Is(is))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Switch, E> {
                match text {
                    "auto" => Ok(Switch::Auto),
                    _ => Err(E::custom(format!(
                        "{text:?} is not true, false or \"auto\""
                    ))),
                }
            }
        }
        deserializer.deserialize_any(SwitchVisitor)
    }
}

/// Splits a text into the digits at its start and the word after them, if there is one.
fn split_number_word(text: &str) -> Option<(u64, &str)> {
    let text = text.trim();
    let end = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(end);
    Some((number.parse().ok()?, unit.trim_start()))
}

/// Splits a text into the digits at its start and the rest; `None` if there is no rest, because a number without a unit is not
/// typed as text.
fn split_number_unit(text: &str) -> Option<(u64, &str)> {
    let end = text.bytes().position(|b| !b.is_ascii_digit())?;
    Some((text[..end].parse().ok()?, &text[end..]))
}

#[cfg(test)]
mod tests {
    use crate::config_text::units::*;

    #[test]
    fn durations() {
        let table = [
            ("250ms", Some(250)),
            ("10s", Some(10_000)),
            ("2m", Some(120_000)),
            ("1h", Some(3_600_000)),
            ("0s", Some(0)),
            ("10", None),
            ("10 s", None),
            ("-1s", None),
            ("1.5s", None),
            ("s", None),
            ("", None),
            ("1d", None),
            ("99999999999999999999s", None),
            ("18446744073709551615h", None),
        ];
        for (text, ms) in table {
            assert_eq!(Time::from_text(text), ms.map(Time::from_millis), "{text}");
        }
    }

    #[test]
    fn sizes() {
        let table = [
            ("64K", Some(65_536)),
            ("16M", Some(16 << 20)),
            ("1G", Some(1 << 30)),
            ("1g", Some(1 << 30)),
            ("2T", Some(2 << 40)),
            ("64KB", None),
            ("64", None),
            ("18446744073709551615K", None),
        ];
        for (text, bytes) in table {
            assert_eq!(Size::from_text(text), bytes.map(Size), "{text}");
        }
    }

    #[test]
    fn masks() {
        let table = [
            ("022", Some(0o22)),
            ("0077", Some(0o77)),
            ("22", None),
            ("1022", None),
        ];
        for (text, mask) in table {
            assert_eq!(Mask::from_text(text), mask.map(Mask), "{text}");
        }
        assert_eq!(Mask::from_text("+22"), None);
    }

    #[test]
    fn shown_as_typed() {
        let times = [
            (0, "0s"),
            (250, "250ms"),
            (10_000, "10s"),
            (75_000, "75s"),
            (120_000, "2m"),
        ];
        for (ms, text) in times {
            assert_eq!(Time::from_millis(ms).to_string(), text);
        }
        for (bytes, text) in [
            (0, "0"),
            (1, "1"),
            (1536, "1536"),
            (65_536, "64K"),
            (G, "1G"),
        ] {
            assert_eq!(Size(bytes).to_string(), text);
        }
    }
}
