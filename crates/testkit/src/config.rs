//! The configuration of a test's server, as data.

use std::{fs, path::Path};

use toml::{Table, Value};

use crate::stream::{self, Spoken};

/// Content of a galgo.toml.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Config(Table);

impl Config {
    /// Reads a configuration from a file.
    pub fn read(file: &Path) -> Self {
        Self(fs::read_to_string(file).unwrap().parse().unwrap())
    }

    /// Writes the configuration to a file.
    pub fn write(&self, file: &Path) {
        fs::write(file, self.text()).unwrap();
    }

    /// Returns the content of the file.
    pub fn text(&self) -> String {
        toml::to_string(&self.0).unwrap()
    }

    /// Adds the keys of `toml`. If a key exists, its value is replaced; if a table exists, it gets the keys of
    /// both. A route replaces the existing route with the same path and host.
    pub fn merge(&mut self, toml: &str) {
        let new = toml.parse().unwrap_or_else(|e| panic!("{e}\n{toml}"));
        merge(&mut self.0, new);
    }

    /// Adds the keys of `toml` to `[defaults]`.
    pub fn merge_defaults(&mut self, toml: &str) {
        let keys: Table = toml.parse().unwrap_or_else(|e| panic!("{e}\n{toml}"));
        merge(
            &mut self.0,
            Table::from_iter([("defaults".into(), keys.into())]),
        );
    }

    /// Adds a key to `[defaults]`, unless the key exists.
    pub fn default_to(&mut self, key: &str, value: &str) {
        let defaults = self
            .0
            .entry("defaults")
            .or_insert_with(|| Table::new().into());
        let defaults = defaults.as_table_mut().unwrap();
        defaults.entry(key).or_insert_with(|| value.into());
    }

    /// Makes all listeners for which `plain` returns true use `spoken`.
    pub(crate) fn speak(&mut self, spoken: Spoken, plain: impl Fn(&str) -> bool) {
        if spoken == Spoken::Tls {
            let own = stream::own();
            let file = |path: &Path| Value::from(path.to_str().unwrap());
            let tls = [
                ("certificate", file(&own.certificate)),
                ("key", file(&own.key)),
            ];
            let tls = tls.map(|(key, value)| (key.to_owned(), value));
            self.0.insert("tls".into(), Table::from_iter(tls).into());
        }
        let listen = self.0.get_mut("listen").and_then(Value::as_array_mut);
        for address in listen.into_iter().flatten() {
            if let Some(text) = address.as_str().filter(|text| plain(text)) {
                *address = format!("{}{text}", spoken.scheme()).into();
            }
        }
    }

    /// Removes a key at the top.
    pub fn remove(&mut self, key: &str) {
        self.0.remove(key);
    }

    /// Removes the routes with this path.
    pub fn remove_route(&mut self, path: &str) {
        let routes = self.0.get_mut("route").and_then(Value::as_array_mut);
        let routes = routes.expect("a route");
        routes.retain(|r| r["path"].as_str() != Some(path));
    }
}

fn merge(into: &mut Table, from: Table) {
    for (key, value) in from {
        match (into.get_mut(&key), value) {
            (Some(Value::Table(old)), Value::Table(new)) => merge(old, new),
            (Some(Value::Array(old)), Value::Array(new)) if key == "route" => {
                let same =
                    |a: &Value, b: &Value| ["path", "host"].iter().all(|k| a.get(k) == b.get(k));
                old.retain(|old| !new.iter().any(|new| same(old, new)));
                old.extend(new);
            }
            (_, value) => {
                into.insert(key, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragments_are_merged() {
        let mut config = Config::default();
        config.merge("workers = 1\n[[route]]\npath = '/a'\nfiles = 'x'\n[[route]]\npath = '/b'");
        config.merge("workers = 2\n[defaults]\ncpu = 1\n[[route]]\npath = '/a'\ncgi = 'y'");
        config.merge_defaults("memory = '1M'");
        config.default_to("start", "warm");
        config.default_to("memory", "2M");
        config.merge("[[route]]\npath = '/b'\nhost = 'h'");
        let wanted = "workers = 2\n[defaults]\ncpu = 1\nmemory = '1M'\nstart = 'warm'\n\
                      [[route]]\npath = '/b'\n[[route]]\npath = '/a'\ncgi = 'y'\n[[route]]\npath = '/b'\nhost = 'h'";
        assert_eq!(config, Config(wanted.parse().unwrap()));
        config.remove_route("/b");
        config.remove("workers");
        let wanted: Table = config.text().parse().unwrap();
        assert_eq!(wanted["route"].as_array().unwrap().len(), 1);
        assert!(!wanted.contains_key("workers"));
    }
}
