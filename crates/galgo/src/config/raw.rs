//! What was typed, exactly: every key optional, every value with its place.

use std::{collections::BTreeMap, ops::Range};

use serde::{
    Deserialize, Deserializer,
    de::{self, MapAccess, Visitor, value::MapAccessDeserializer},
};
use toml::Spanned;

use super::units::{Count, Mask, OrNone, Size, Switch, Time, Value};

pub(super) type Typed<T> = Option<Spanned<T>>;
pub(super) type Text = Spanned<String>;
pub(super) type Map = BTreeMap<Text, Text>;

/// A route as it is typed.
pub(super) type Raw = Spanned<RawRoute>;

/// `fastcgi = "address"` or `fastcgi = { run = […], … }`.
#[derive(Debug, Clone)]
pub(super) enum RawTo {
    Address(String),
    Workers(Box<RawWorkers>),
}

impl<'de> Deserialize<'de> for RawTo {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = RawTo;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an address (\"unix:/path\", \"127.0.0.1:9000\") or a table with `run`")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<RawTo, E> {
                Ok(RawTo::Address(text.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<RawTo, A::Error> {
                let workers = RawWorkers::deserialize(MapAccessDeserializer::new(map))?;
                Ok(RawTo::Workers(Box::new(workers)))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// A table of the file. Unknown keys are refused; `KEYS` are the known ones.
macro_rules! table {
    ($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Default, Clone, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(super) struct $name {
            $(pub(super) $field: Typed<$type>,)*
        }

        impl $name {
            #[allow(dead_code)] // of some tables only the tests ask
            pub(super) const KEYS: &[&str] = &[$(stringify!($field)),*];
        }
    };
}

/// The options of programs stand in two tables, `[defaults]` and `[[route]]`. `serde(flatten)` would
/// lose the places and the refusal of unknown keys, so the second table is written from the same list.
macro_rules! options {
    ($($field:ident: $type:ty,)*) => {
        table! {
            /// `[defaults]`.
            RawOptions { $($field: $type,)* }
        }

        table! {
            /// `[[route]]`.
            RawRoute {
                host: String,
                path: String,
                cgi: String,
                fastcgi: RawTo,
                scgi: RawTo,
                authorizer: RawTo,
                root: String,
                scripts: Vec<Text>,
                connect_timeout: Value<Time>,
                keep_connections: Value<Count>,
                files: String,
                respond: RawRespond,
                env: Map,
                load_env: Map,
                preopen: Map,
                preopen_rw: Map,
                network: bool,
                sendfile: Vec<Text>,
                accel_redirect: Map,
                index: Vec<Text>,
                listing: bool,
                precompressed: bool,
                types: Map,
                default_type: String,
                headers: Map,
                $($field: $type,)*
            }
        }

        impl RawRoute {
            /// The options of programs that this route sets.
            pub(super) fn options(&self) -> RawOptions {
                RawOptions { $($field: self.$field.clone(),)* }
            }
        }

        impl RawOptions {
            /// The place of one that is set.
            pub(super) fn any(&self) -> Option<Range<usize>> {
                $(if let Some(value) = &self.$field {
                    return Some(value.span());
                })*
                None
            }
        }
    };
}

options! {
    start: String,
    pass_authorization: bool,
    body: String,
    run_to_completion: bool,
    query_args: bool,
    drop_shellshock: bool,
    first_byte_timeout: Value<Time>,
    idle_timeout: Value<Time>,
    total_timeout: Value<Time>,
    kill_grace: Value<Time>,
    max_body: Value<Size>,
    max_reply_head: Value<Size>,
    max_stderr: Value<Size>,
    cpu: Value<OrNone<Time>>,
    memory: Value<OrNone<Size>>,
    file_size: Value<OrNone<Size>>,
    open_files: Value<OrNone<Count>>,
    processes: Value<OrNone<Count>>,
    no_new_privs: bool,
    max_running: Value<OrNone<Count>>,
}

table! {
    /// The whole file.
    RawConfig {
        listen: Vec<Text>,
        socket_mode: Value<Mask>,
        socket_group: String,
        trusted_proxies: Vec<Text>,
        forwarded: Vec<Text>,
        user: String,
        group: String,
        workers: Value<Count>,
        umask: Value<Mask>,
        path: String,
        access_log: String,
        log_format: String,
        error_log: String,
        cache: String,
        spool: String,
        spool_limit: Value<Size>,
        spool_memory: Value<Size>,
        dev_errors: Switch,
        shutdown_grace: Value<Time>,
        head_timeout: Value<Time>,
        keep_alive: Value<Time>,
        min_rate: Value<Size>,
        rate_grace: Value<Time>,
        busy_rate: Value<Size>,
        max_connections: Value<Count>,
        max_connections_per_client: Value<Count>,
        max_head: Value<Size>,
        max_fields: Value<Count>,
        max_target: Value<Size>,
        encoded_slash: String,
        max_templates: Value<Count>,
        templates_memory: Value<Size>,
        template_idle: Value<Time>,
        max_running: Value<Count>,
        queue: Value<Count>,
        queue_wait: Value<Time>,
        defaults: RawOptions,
        route: Vec<Spanned<RawRoute>>,
        interpreters: Map,
        userdir: RawUserDir,
        tls: RawTls,
    }
}

table! {
    /// `[tls]`.
    RawTls {
        certificate: String,
        key: String,
        certificates: Vec<RawCertificate>,
        redirect_to_https: bool,
        hsts: Value<Time>,
    }
}

table! {
    /// One of `certificates = [{ … }]`.
    RawCertificate {
        certificate: String,
        key: String,
    }
}

table! {
    /// `respond = { … }`.
    RawRespond {
        status: Value<Count>,
        r#type: String,
        headers: Map,
        body: String,
        file: String,
    }
}

table! {
    /// `fastcgi = { … }`.
    RawWorkers {
        run: Vec<Text>,
        workers: Value<Count>,
        max_requests: Value<Count>,
    }
}

table! {
    /// `[userdir]`.
    RawUserDir {
        files: String,
        cgi: String,
        users: Vec<Text>,
    }
}
