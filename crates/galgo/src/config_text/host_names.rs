//! The value of `host` as it is typed: a host, or a list of hosts.

use serde::{
    Deserialize, Deserializer,
    de::{self, SeqAccess, Visitor, value::SeqAccessDeserializer},
};
use toml::Spanned;

/// `host = "example.org"` or `host = ["example.org", "*.example.org"]`.
#[derive(Debug, Clone)]
pub(crate) enum RawHosts {
    One(String),
    Many(Vec<Spanned<String>>),
}

impl RawHosts {
    /// Returns all hosts. A single host gets the place of the whole value.
    pub(crate) fn list_hosts(typed: &Spanned<Self>) -> Vec<Spanned<String>> {
        match typed.get_ref() {
            Self::One(name) => vec![Spanned::new(typed.span(), name.clone())],
            Self::Many(names) => names.clone(),
        }
    }
}

impl<'de> Deserialize<'de> for RawHosts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = RawHosts;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a host, or a list of hosts: [\"example.org\", \"*.example.org\"]")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<RawHosts, E> {
                Ok(RawHosts::One(text.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<RawHosts, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(list)).map(RawHosts::Many)
            }
        }
        deserializer.deserialize_any(Either)
    }
}
