//! Checks the typed configuration, part one: the values that are not routes.

use std::{
    fmt::Display,
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use galgo_spawn::{
    Limits,
    identity::{Identity, resolve_group, resolve_identity},
};
use toml::Spanned;

use crate::{
    config::{
        AdmissionSettings, BodyMode, CgiOptions, Config, DevErrors, Http, SpoolSettings, StartMode,
        TemplateSettings,
    },
    config_check::routes,
    config_text::{
        config_error::{Checked, ConfigError, ConfigText},
        include,
        raw::{
            self, RawConfig, RawOptions, Typed, each_typed, flag_or_default, place, where_typed,
        },
        read::Misread,
        units::{G, K, M, Mask, T, Time, Value},
    },
};
use galgo_io::rate_allowance::Rates;

type Interpreters = Arc<Vec<(String, PathBuf)>>;

const EMPTY: &str = "the file is empty: add keys to it, or remove it to serve cgi-bin/ and public/";

/// Reads, checks and opens everything that `source`, the text of `file`, says. The server becomes `user`, if there is one,
/// instead of the user that the file names. `left_out`: files that `include` names but that are not used.
pub(crate) fn check_config(
    file: &Path,
    source: &str,
    user: Option<&Identity>,
    left_out: &[&Path],
) -> Checked<Config> {
    let mut text = ConfigText::new(file, source)?;
    // An editor that writes in place empties the file first. Read at that moment, the file would be a configuration of
    // defaults, and a reload would close the listeners.
    if source.trim().is_empty() {
        return Err(text.error_at(0..0, EMPTY));
    }
    let mut misread = Misread::default();
    let mut raw: RawConfig = misread.parse_source(&text, source, 0).unwrap_or_default();
    let wrong = &mut Vec::new();
    let included = include::read_included(&mut text, &mut raw, left_out, &mut misread);
    let included = or_default(wrong, included);
    let all_read = wrong.is_empty() && misread.is_empty();
    let d = Config::default();
    let pid_file = where_typed(&raw.pid_file, |path| text.resolve_path(path));
    let mut config = Config {
        included,
        trusted: or_default(wrong, text.check_trusted(&raw)),
        socket_mode: mask_or_default(&raw.socket_mode, d.socket_mode),
        socket_group: or_default(wrong, text.check_socket_group(&raw)),
        supplementary_groups: or_default(wrong, text.check_supplementary_groups(&raw)),
        identity: user
            .cloned()
            .or(or_default(wrong, text.check_identity(&raw))),
        min_uid: or_default(wrong, text.check_number(&raw.min_uid, d.min_uid, 1, 60_000)),
        min_gid: or_default(wrong, text.check_number(&raw.min_gid, d.min_gid, 1, 60_000)),
        event_loops: or_default(wrong, text.or_derived(&raw.workers, d.event_loops, 1024)),
        umask: mask_or_default(&raw.umask, d.umask),
        path: or_default(wrong, text.check_search_path(&raw, d.path)),
        log: or_default(wrong, text.check_logs(&raw)),
        pid_file: or_default(wrong, pid_file),
        cache: or_default(wrong, text.check_path_or_auto(&raw.cache)),
        spool: or_default(wrong, text.check_spool(&raw)),
        dev_errors: DevErrors::from_typed(raw.dev_errors.as_ref().map(Spanned::get_ref)),
        shutdown_grace: or_default(
            wrong,
            text.check_time(&raw.shutdown_grace, d.shutdown_grace, 0, 3_600_000),
        ),
        http: or_default(wrong, text.check_http(&raw)),
        templates: or_default(wrong, text.check_templates(&raw)),
        admission: or_default(wrong, text.check_admission(&raw)),
        interpreters: or_default(wrong, text.check_interpreters(&raw)),
        ..d
    };
    keep_groups(&mut config);
    read_dependent_keys(&text, &raw, &mut config, wrong);
    let filled = routes::fill_routes(&text, &raw, all_read, &mut config);
    or_default(wrong, filled);
    config.read = text.take_read_files();
    config.warnings.extend(text.take_warnings());
    ConfigError::join_errors(misread.join_errors(std::mem::take(wrong))).map_or(Ok(config), Err)
}

/// Reads keys that need others to be read first: listeners, defaults of routes, and what uses both.
fn read_dependent_keys(
    text: &ConfigText,
    raw: &RawConfig,
    config: &mut Config,
    wrong: &mut Vec<ConfigError>,
) {
    or_default(wrong, text.check_listen(raw, config));
    read_defaults(text, raw, config, wrong);
    config.tls = or_default(wrong, text.check_tls(raw, &mut config.warnings));
    config.rewrites = or_default(wrong, text.check_rewrites(raw));
    config.errors = or_default(wrong, text.check_errors(&raw.errors));
    let sites = text.or_warn(text.check_sites(raw, config));
    config.sites = or_default(wrong, sites).flatten();
}

/// Reads `[defaults]`.
fn read_defaults(
    text: &ConfigText,
    raw: &RawConfig,
    config: &mut Config,
    wrong: &mut Vec<ConfigError>,
) {
    let Some(raw) = raw.defaults.as_ref().map(Spanned::get_ref) else {
        return;
    };
    config.options = or_default(wrong, text.check_options(raw, &config.options));
    config.rate_limit = or_default(wrong, text.check_rate_limit(&raw.rate_limit, None));
    let runs_as = text.runs_as(&raw.user, &raw.group, config);
    config.runs_as = or_default(wrong, runs_as);
}

/// Has the server keep some groups when it becomes its user: the group of its sockets, and the groups that the file names.
fn keep_groups(config: &mut Config) {
    let groups = config.supplementary_groups.iter();
    let kept: Vec<_> = groups.chain(&config.socket_group).copied().collect();
    if let Some(identity) = &mut config.identity {
        identity.keep_groups(&kept);
    }
}

/// Records an error and returns a default value, so that checking goes on and reports errors elsewhere too.
fn or_default<T: Default>(wrong: &mut Vec<ConfigError>, checked: Checked<T>) -> T {
    checked.unwrap_or_else(|e| {
        wrong.push(e);
        T::default()
    })
}

impl ConfigText<'_> {
    fn check_identity(&self, raw: &RawConfig) -> Checked<Option<Identity>> {
        let Some(user) = &raw.user else {
            self.refuse(place(&raw.group), "needs a `user` beside it")?;
            return Ok(None);
        };
        let group = raw.group.as_ref();
        let found =
            resolve_identity(user.get_ref(), group.map(|g| g.get_ref().as_str())).map_err(|e| {
                // The group is at fault only if the user alone can be found.
                let alone = resolve_identity(user.get_ref(), None).is_ok();
                let at = group.filter(|_| alone).unwrap_or(user);
                self.error_at(at.span(), format!("{e}: create it or correct the name"))
            })?;
        if found.uid == 0 {
            return Err(self.error_at(
                user.span(),
                "galgo does not serve as root: name a user without privileges (www-data)",
            ));
        }
        Ok(Some(found))
    }

    fn check_supplementary_groups(&self, raw: &RawConfig) -> Checked<Vec<u32>> {
        each_typed(&raw.supplementary_groups, |typed| {
            let gid = resolve_group(typed.get_ref()).map_err(|e| {
                self.error_at(typed.span(), format!("{e}: create it or correct the name"))
            })?;
            match gid {
                0 => Err(self.error_at(
                    typed.span(),
                    "programs never run in the group of root: delete it",
                )),
                gid => Ok(gid),
            }
        })
    }

    fn check_search_path(&self, raw: &RawConfig, default: String) -> Checked<String> {
        let Some(path) = &raw.path else {
            return Ok(default);
        };
        // An empty or relative folder would be looked up in the folder of each program.
        let mut folders = path.get_ref().split(':');
        if !folders.all(|folder| folder.starts_with('/')) {
            let message = "every folder begins with \"/\": \"/usr/local/bin:/usr/bin:/bin\"";
            return Err(self.error_at(path.span(), message));
        }
        self.no_nul(path)
    }

    /// Returns an absolute path; `None` for "auto".
    fn check_path_or_auto(&self, typed: &Typed<String>) -> Checked<Option<PathBuf>> {
        match typed {
            Some(typed) if typed.get_ref() != "auto" => self.resolve_path(typed).map(Some),
            _ => Ok(None),
        }
    }

    fn check_spool(&self, raw: &RawConfig) -> Checked<SpoolSettings> {
        let d = SpoolSettings::default();
        let folder = self.check_path_or_auto(&raw.spool)?;
        if let (Some(typed), Some(path)) = (&raw.spool, &folder)
            && !path.is_dir()
        {
            let message = format!("{} is no folder: create it", path.display());
            return Err(self.error_at(typed.span(), message));
        }
        Ok(SpoolSettings {
            folder,
            limit: self.check_number(&raw.spool_limit, d.limit, 0, T)?,
            memory: self.check_number(&raw.spool_memory, d.memory, 0, T)?,
        })
    }

    fn check_http(&self, raw: &RawConfig) -> Checked<Http> {
        let d = Http::default();
        let http = Http {
            head_timeout: self.check_time(&raw.head_timeout, d.head_timeout, 1000, 3_600_000)?,
            keep_alive: self.check_time(&raw.keep_alive, d.keep_alive, 0, 3_600_000)?,
            rates: Rates {
                least: self.check_number(&raw.min_rate, d.rates.least, 0, G)?,
                busy: self.check_number(&raw.busy_rate, d.rates.busy, 0, G)?,
                grace: self.check_time(&raw.rate_grace, d.rates.grace, 1000, 3_600_000)?,
            },
            max_connections: self.check_number(
                &raw.max_connections,
                d.max_connections,
                0,
                1_000_000,
            )?,
            max_connections_per_client: self.check_number(
                &raw.max_connections_per_client,
                d.max_connections_per_client,
                0,
                1_000_000,
            )?,
            max_head: self.check_number(&raw.max_head, d.max_head, K, M)?,
            max_fields: self.check_number(&raw.max_fields, d.max_fields, 8, 10_000)?,
            max_target: self.check_number(&raw.max_target, d.max_target, 256, 64 * K)?,
            encoded_slash: self.one_of(
                &raw.encoded_slash,
                d.encoded_slash,
                &[("refuse", false), ("decode", true)],
                "is neither \"refuse\" nor \"decode\"",
            )?,
        };
        if let Some(at) = &raw.max_target
            && http.max_target > http.max_head
        {
            return Err(self.error_at(at.span(), "is larger than `max_head`, which contains it"));
        }
        Ok(http)
    }

    fn check_templates(&self, raw: &RawConfig) -> Checked<TemplateSettings> {
        const DAY: u64 = 24 * 3_600_000;
        let d = TemplateSettings::default();
        Ok(TemplateSettings {
            count: self.check_number(&raw.max_templates, d.count, 0, 10_000)?,
            memory: self.check_number(&raw.templates_memory, d.memory, 0, T)?,
            idle: self.check_time(&raw.template_idle, d.idle, 1000, 30 * DAY)?,
            wait: d.wait,
        })
    }

    fn check_admission(&self, raw: &RawConfig) -> Checked<AdmissionSettings> {
        let d = AdmissionSettings::default();
        Ok(AdmissionSettings {
            running: self.or_derived(&raw.max_running, d.running, 100_000)?,
            running_per_client: self.check_number(&raw.max_running_per_client, 0, 0, 100_000)?,
            cpu_share: self.check_number(&raw.cpu_share, d.cpu_share, 0, 100)?,
            queue: self.check_number(&raw.queue, d.queue, 0, 1_000_000)?,
            wait: self.check_time(&raw.queue_wait, d.wait, 0, 3_600_000)?,
        })
    }

    /// Checks `[interpreters]` and sorts it with the longest extension first, so that `.tar.x` is tried before `.x`.
    fn check_interpreters(&self, raw: &RawConfig) -> Checked<Interpreters> {
        let mut found = Vec::new();
        for (ending, program) in raw.interpreters.iter().flat_map(|map| map.get_ref()) {
            let name = ending.get_ref();
            if name.len() < 2 || !name.starts_with('.') || name.contains(['/', '\0', '*']) {
                let message = format!("{name:?} is not a file extension: write it as in \".php\"");
                return Err(self.keyless_error(ending.span(), message));
            }
            let path = Path::new(program.get_ref());
            if !path.is_absolute() {
                let message = format!(
                    "{} is not absolute: write the whole path, as /usr/bin/php-cgi",
                    path.display()
                );
                return Err(self.error_at(program.span(), message));
            }
            // Without its interpreter, a request for such a file fails; the file's source stays hidden.
            self.or_warn(self.require_program(program.span(), path, true))?;
            found.push((name.clone(), path.to_owned()));
        }
        found.sort_by_key(|(ending, _)| std::cmp::Reverse(ending.len()));
        Ok(Arc::new(found))
    }

    /// Checks the options of programs: each value comes from `raw` if it is typed there, else from `d`.
    pub(crate) fn check_options(&self, raw: &RawOptions, d: &CgiOptions) -> Checked<CgiOptions> {
        const DAY: u64 = 24 * 3_600_000;
        let (sandbox, strict) = self.check_sandbox(raw, d)?;
        Ok(CgiOptions {
            start: self.one_of(
                &raw.start,
                d.start,
                &[("cold", StartMode::Cold), ("warm", StartMode::Warm)],
                "is no way to start a program: choose \"cold\" or \"warm\"",
            )?,
            pass_authorization: flag_or_default(&raw.pass_authorization, d.pass_authorization),
            body: self.one_of(
                &raw.body,
                d.body,
                &[("stream", BodyMode::Stream), ("file", BodyMode::File)],
                "is no way to hand over a body: choose \"stream\" or \"file\"",
            )?,
            stream_body: flag_or_default(&raw.stream_body, d.stream_body),
            run_to_completion: flag_or_default(&raw.run_to_completion, d.run_to_completion),
            query_args: flag_or_default(&raw.query_args, d.query_args),
            drop_shellshock: flag_or_default(&raw.drop_shellshock, d.drop_shellshock),
            first_byte_timeout: self.check_time(
                &raw.first_byte_timeout,
                d.first_byte_timeout,
                1,
                DAY,
            )?,
            idle_timeout: self.check_time(&raw.idle_timeout, d.idle_timeout, 1, DAY)?,
            total_timeout: self.check_time(&raw.total_timeout, d.total_timeout, 1, 7 * DAY)?,
            kill_grace: self.check_time(&raw.kill_grace, d.kill_grace, 0, 60_000)?,
            max_body: self.check_number(&raw.max_body, d.max_body, 0, T)?,
            max_reply_head: self.check_number(&raw.max_reply_head, d.max_reply_head, K, M)?,
            max_stderr: self.check_number(&raw.max_stderr, d.max_stderr, 0, G)?,
            limits: Limits {
                may_stay: flag_or_default(&raw.run_to_completion, d.run_to_completion),
                ..self.check_limits(raw, &d.limits)?
            },
            no_new_privs: flag_or_default(&raw.no_new_privs, d.no_new_privs),
            sandbox,
            strict,
            max_running: self.optional(&raw.max_running, d.max_running, 1, 100_000)?,
        })
    }

    fn check_limits(&self, raw: &RawOptions, d: &Limits) -> Checked<Limits> {
        let (cpu, cpu_percent) = self.check_cpu(raw, d)?;
        Ok(Limits {
            cpu,
            cpu_percent,
            memory: self.optional(&raw.memory, d.memory, M, T)?,
            file_size: self.optional(&raw.file_size, d.file_size, 0, T)?,
            open_files: self.optional(&raw.open_files, d.open_files, 8, 1 << 20)?,
            processes: self.optional(&raw.processes, d.processes, 1, 1 << 20)?,
            may_stay: d.may_stay,
            is_worker: d.is_worker,
        })
    }
}

/// Checks of ranges and of fixed words.
impl ConfigText<'_> {
    pub(crate) fn check_within<U: Copy + PartialOrd + Display>(
        &self,
        span: Range<usize>,
        value: U,
        low: U,
        high: U,
    ) -> Checked<U> {
        if low <= value && value <= high {
            return Ok(value);
        }
        Err(self.error_at(span, format!("{value} is out of range: {low} to {high}")))
    }

    /// Checks a duration between `low` and `high` milliseconds.
    pub(crate) fn check_time(
        &self,
        typed: &Typed<Value<Time>>,
        default: Duration,
        low: u64,
        high: u64,
    ) -> Checked<Duration> {
        let Some(typed) = typed else {
            return Ok(default);
        };
        let value = typed.get_ref().0;
        let time = self.check_within(
            typed.span(),
            value,
            Time::from_millis(low),
            Time::from_millis(high),
        )?;
        Ok(time.0)
    }

    /// Checks a number, or a size in bytes, between `low` and `high`.
    pub(crate) fn check_number<U: Number, N: TryFrom<u64>>(
        &self,
        typed: &Typed<Value<U>>,
        default: N,
        low: u64,
        high: u64,
    ) -> Checked<N> {
        match typed {
            None => Ok(default),
            Some(typed) => self.check_number_at(typed.span(), typed.get_ref().0, low, high),
        }
    }

    /// Checks a number up to `high`. A missing value and 0 both stand for `derived`, a value derived from the machine.
    fn or_derived(&self, typed: &Typed<Value<u64>>, derived: usize, high: u64) -> Checked<usize> {
        let number = self.check_number(typed, 0, 0, high)?;
        Ok(if number == 0 { derived } else { number })
    }

    /// Checks a number between `low` and `high`, or `"none"`.
    fn optional<U: Number, N: TryFrom<u64>>(
        &self,
        typed: &Typed<Value<Option<U>>>,
        default: Option<N>,
        low: u64,
        high: u64,
    ) -> Checked<Option<N>> {
        match typed
            .as_ref()
            .map(|typed| (typed.span(), typed.get_ref().0))
        {
            None => Ok(default),
            Some((_, None)) => Ok(None),
            Some((span, Some(number))) => self.check_number_at(span, number, low, high).map(Some),
        }
    }

    /// Checks that a number typed at `span` lies between `low` and `high`.
    pub(crate) fn check_number_at<U: Number, N: TryFrom<u64>>(
        &self,
        span: Range<usize>,
        number: U,
        low: u64,
        high: u64,
    ) -> Checked<N> {
        let number = self.check_within(span.clone(), number, low.into(), high.into())?;
        N::try_from(number.into()).map_err(|_| self.error_at(span, "is too large for this machine"))
    }

    /// Returns the value that the typed word stands for in `words`. `wrong`: the message about any other word.
    pub(crate) fn one_of<T: Copy>(
        &self,
        typed: &Typed<String>,
        default: T,
        words: &[(&str, T)],
        wrong: &str,
    ) -> Checked<T> {
        let Some(typed) = typed else {
            return Ok(default);
        };
        let word = typed.get_ref();
        let found = words.iter().find(|(known, _)| known == word);
        let other = || self.error_at(typed.span(), format!("{word:?} {wrong}"));
        found.map(|(_, meant)| *meant).ok_or_else(other)
    }

    /// Checks a text that will become part of an environment or a path.
    pub(crate) fn no_nul(&self, typed: &raw::Text) -> Checked<String> {
        if typed.get_ref().contains('\0') {
            return Err(self.error_at(typed.span(), "holds a NUL character: remove it"));
        }
        Ok(typed.get_ref().clone())
    }
}

/// A number of some unit.
pub(crate) trait Number: Copy + PartialOrd + Display + From<u64> + Into<u64> {}

impl<U: Copy + PartialOrd + Display + From<u64> + Into<u64>> Number for U {}

fn mask_or_default(typed: &Typed<Value<Mask>>, default: u32) -> u32 {
    typed.as_ref().map_or(default, |mask| mask.get_ref().0.0)
}
