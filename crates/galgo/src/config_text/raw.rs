//! The values as the user typed them: every key is optional, and every value has its place in the file.

use std::{collections::BTreeMap, fmt, marker::PhantomData, ops::Range};

use serde::{
    Deserialize, Deserializer,
    de::{self, MapAccess, Visitor, value::MapAccessDeserializer},
};
use toml::Spanned;

use crate::config_text::{
    host_names::RawHosts,
    units::{Cpu, Mask, Size, Switch, Time, Value},
};

pub(crate) type Typed<T> = Option<Spanned<T>>;
pub(crate) type Text = Spanned<String>;
pub(crate) type Map = BTreeMap<Text, Text>;
pub(crate) type Groups = BTreeMap<Text, Vec<Text>>;

/// A route as it is typed.
pub(crate) type Raw = Spanned<RawRoute>;

/// Applies `check` to a typed value; `None` if the key is absent.
pub(crate) fn where_typed<T, X, E>(
    typed: &Typed<T>,
    check: impl FnOnce(&Spanned<T>) -> Result<X, E>,
) -> Result<Option<X>, E> {
    typed.as_ref().map(check).transpose()
}

/// Applies `check` to each value of a typed list. The result is empty if the key is absent.
pub(crate) fn each_typed<T, X, E>(
    typed: &Typed<Vec<T>>,
    check: impl FnMut(&T) -> Result<X, E>,
) -> Result<Vec<X>, E> {
    let values = typed.iter().flat_map(|list| list.get_ref());
    values.map(check).collect()
}

/// Returns the place of a typed value in the file.
pub(crate) fn place<T>(typed: &Typed<T>) -> Option<Range<usize>> {
    typed.as_ref().map(Spanned::span)
}

/// Returns the place of the first of these keys that is typed in a table.
macro_rules! first_place {
    ($table:expr, $($key:ident),*) => {
        None$(.or_else(|| $crate::config_text::raw::place(&$table.$key)))*
    };
}
pub(crate) use first_place;

/// A table, or a text in its place.
#[derive(Debug, Clone)]
pub(crate) enum TextOr<T> {
    Text(String),
    Table(Box<T>),
}

/// A table that the user may replace by a text.
pub(crate) trait OrText {
    /// Both forms as the user writes them, for messages.
    const FORM: &str;
    /// Whether this text may replace the table.
    fn accepts_text(_text: &str) -> bool {
        true
    }
}

struct TextOrVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de> + OrText> Visitor<'de> for TextOrVisitor<T> {
    type Value = TextOr<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::FORM)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
        if T::accepts_text(text) {
            Ok(TextOr::Text(text.to_owned()))
        } else {
            Err(E::invalid_value(de::Unexpected::Str(text), &self))
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        let table = T::deserialize(MapAccessDeserializer::new(map))?;
        Ok(TextOr::Table(Box::new(table)))
    }
}

impl<'de, T: Deserialize<'de> + OrText> Deserialize<'de> for TextOr<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextOrVisitor(PhantomData))
    }
}

/// `fastcgi = "address"` or `fastcgi = { run = […], … }`.
pub(crate) type RawTo = TextOr<RawWorkers>;

impl OrText for RawWorkers {
    const FORM: &str = "an address (\"unix:/path\", \"127.0.0.1:9000\") or a table with `run`";
}

/// `rate_limit = "none"` or `rate_limit = { requests = 10, … }`.
pub(crate) type RawRateLimit = TextOr<RawRate>;

impl OrText for RawRate {
    const FORM: &str = "a table, as in { requests = 10, per = \"1s\", burst = 20 }, or \"none\"";

    fn accepts_text(text: &str) -> bool {
        text == "none"
    }
}

/// `sandbox = "strict"` or `sandbox = { read = […], … }`.
pub(crate) type RawSandbox = TextOr<RawConfinement>;

impl OrText for RawConfinement {
    const FORM: &str =
        "\"off\", \"standard\", \"strict\", or a table, as in { write = [\"data\"] }";
}

/// `sites = "/srv/www"` or `sites = { path = "/srv/www", user = "owner" }`.
pub(crate) type RawSites = TextOr<RawSitesTable>;

impl OrText for RawSitesTable {
    const FORM: &str = "a folder, or a table, as in { path = \"/srv/www\", user = \"owner\" }";
}

/// Defines a table of the file. Unknown keys are refused; `KEYS` are the known ones.
macro_rules! table {
    ($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Default, Clone, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct $name {
            $(pub(crate) $field: Typed<$type>,)*
        }

        impl $name {
            #[allow(dead_code)] // only the tests use the keys of some tables
            pub(crate) const KEYS: &[&str] = &[$(stringify!($field)),*];
        }
    };
}

/// The options of programs are keys of two tables, `[defaults]` and `[[route]]`. `serde(flatten)`
/// would lose the places and the refusal of unknown keys, so the macro writes the second table from
/// the same list.
macro_rules! options {
    ($($field:ident: $type:ty,)*) => {
        table! {
            /// `[defaults]`.
            RawOptions {
                user: String,
                group: String,
                rate_limit: RawRateLimit,
                $($field: $type,)*
            }
        }

        table! {
            /// `[[route]]`.
            RawRoute {
                host: RawHosts,
                path: String,
                cgi: String,
                user: String,
                group: String,
                fastcgi: RawTo,
                scgi: RawTo,
                authorizer: RawTo,
                passwords: String,
                realm: String,
                require: Vec<Text>,
                groups: Groups,
                access: RawAccess,
                redirect: RawRedirect,
                r#try: Vec<Text>,
                rate_limit: RawRateLimit,
                root: String,
                scripts: Vec<Text>,
                connect_timeout: Value<Time>,
                keep_connections: Value<u64>,
                files: String,
                cgi_names: Vec<Text>,
                respond: RawRespond,
                env: Map,
                env_rules: Vec<Spanned<RawVariableRule>>,
                pass_env: Vec<Text>,
                env_file: String,
                load_env: Map,
                preopen: Map,
                preopen_rw: Map,
                network: bool,
                upgrade: bool,
                cache: Value<Time>,
                sendfile: Vec<Text>,
                accel_redirect: Map,
                index: Vec<Text>,
                listing: bool,
                precompressed: bool,
                types: Map,
                default_type: String,
                headers: Map,
                header_rules: Vec<Spanned<RawHeaderRule>>,
                request_headers: RawChanges,
                security_headers: bool,
                expires: BTreeMap<Text, Value<Time>>,
                cors: RawCors,
                errors: Map,
                access_log: String,
                log_format: String,
                compress: bool,
                compress_types: Vec<Text>,
                compress_min: Value<Size>,
                $($field: $type,)*
            }
        }

        impl RawRoute {
            /// Returns the options of programs that this route sets.
            pub(crate) fn options(&self) -> RawOptions {
                RawOptions {
                    user: None,
                    group: None,
                    rate_limit: None,
                    $($field: self.$field.clone(),)*
                }
            }

            /// Returns the place of the first option that is typed.
            pub(crate) fn option_typed(&self) -> Option<Range<usize>> {
                first_place!(self, $($field),*)
            }
        }
    };
}

options! {
    start: String,
    pass_authorization: bool,
    body: String,
    stream_body: bool,
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
    cpu: Value<Option<Cpu>>,
    memory: Value<Option<Size>>,
    file_size: Value<Option<Size>>,
    open_files: Value<Option<u64>>,
    processes: Value<Option<u64>>,
    no_new_privs: bool,
    sandbox: RawSandbox,
    max_running: Value<Option<u64>>,
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
        supplementary_groups: Vec<Text>,
        min_uid: Value<u64>,
        min_gid: Value<u64>,
        workers: Value<u64>,
        umask: Value<Mask>,
        path: String,
        pid_file: String,
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
        max_connections: Value<u64>,
        max_connections_per_client: Value<u64>,
        max_head: Value<Size>,
        max_fields: Value<u64>,
        max_target: Value<Size>,
        encoded_slash: String,
        max_templates: Value<u64>,
        templates_memory: Value<Size>,
        template_idle: Value<Time>,
        max_running: Value<u64>,
        max_running_per_client: Value<u64>,
        cpu_share: Value<u64>,
        queue: Value<u64>,
        queue_wait: Value<Time>,
        defaults: RawOptions,
        route: Vec<Spanned<RawRoute>>,
        rewrite: Vec<Spanned<RawRewrite>>,
        include: String,
        sites: RawSites,
        errors: Map,
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
        automatic: RawAutomatic,
        client_ca: String,
        client_certificate: String,
        client_user: String,
        redirect_to_https: bool,
        hsts: Value<Time>,
    }
}

table! {
    /// `automatic = { … }`.
    RawAutomatic {
        hosts: Vec<Text>,
        contact: String,
        authority: String,
        authority_ca: String,
        state: String,
    }
}

table! {
    /// An entry of `certificates = [{ … }]`.
    RawCertificate {
        certificate: String,
        key: String,
    }
}

table! {
    /// `respond = { … }`.
    RawRespond {
        status: Value<u64>,
        r#type: String,
        headers: Map,
        body: String,
        file: String,
    }
}

table! {
    /// `fastcgi = { … }`, `authorizer = { … }`.
    RawWorkers {
        cgi: String,
        run: Vec<Text>,
        workers: Value<u64>,
        max_requests: Value<u64>,
    }
}

table! {
    /// `sandbox = { … }`.
    RawConfinement {
        read: Vec<Text>,
        write: Vec<Text>,
        exec: Vec<Text>,
        network: String,
    }
}

table! {
    /// `rate_limit = { … }`.
    RawRate {
        requests: Value<u64>,
        per: Value<Time>,
        burst: Value<u64>,
    }
}

table! {
    /// `[userdir]`.
    RawUserDir {
        files: String,
        cgi_names: Vec<Text>,
        cgi: String,
        user: String,
        users: Vec<Text>,
    }
}

table! {
    /// `sites = { … }`.
    RawSitesTable {
        path: String,
        cgi_names: Vec<Text>,
        user: String,
    }
}

table! {
    /// `access = { … }`.
    RawAccess {
        allow: Vec<Text>,
        deny: Vec<Text>,
        methods: Vec<Text>,
        satisfy: String,
    }
}

table! {
    /// `redirect = { … }`.
    RawRedirect {
        to: String,
        status: Value<u64>,
        scheme: String,
        port: Value<u64>,
    }
}

table! {
    /// `[[rewrite]]`.
    RawRewrite {
        pattern: String,
        query: String,
        to: String,
        status: Value<u64>,
        host: RawHosts,
        scheme: String,
    }
}

table! {
    /// An entry of `header_rules = [{ … }]`.
    RawHeaderRule {
        status: Vec<Text>,
        types: Vec<Text>,
        set: Map,
        add: Map,
        default: Map,
        remove: Vec<Text>,
    }
}

table! {
    /// `request_headers = { … }`.
    RawChanges {
        set: Map,
        add: Map,
        remove: Vec<Text>,
    }
}

table! {
    /// An entry of `env_rules = [{ … }]`.
    RawVariableRule {
        headers: Map,
        path: String,
        query: String,
        methods: Vec<Text>,
        host: RawHosts,
        from: Vec<Text>,
        set: Map,
    }
}

table! {
    /// `cors = { … }`.
    RawCors {
        origins: Vec<Text>,
        methods: Vec<Text>,
        headers: Vec<Text>,
        expose: Vec<Text>,
        credentials: bool,
        max_age: Value<Time>,
    }
}

/// Returns the typed value, or `default`.
pub(crate) fn flag_or_default(typed: &Typed<bool>, default: bool) -> bool {
    typed.as_ref().map_or(default, |typed| *typed.get_ref())
}
