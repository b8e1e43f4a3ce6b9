//! From what was typed to what is served, part one: the values that are not routes.

use std::{fmt::Display, path::Path, sync::Arc, time::Duration};

use galgo_spawn::Limits;
use toml::Spanned;

use super::{
    Identity,
    checked::{
        AdmissionSettings, BodyMode, CgiOptions, Config, DevErrors, Http, SpoolSettings, StartMode,
        TemplateSettings,
    },
    error::{Checked, ConfigError, ConfigText},
    identity::identity,
    include,
    raw::{self, RawConfig, RawOptions, Typed},
    read::Misread,
    routes,
    units::{Count, G, K, M, OrNone, Size, T, Time, Value},
};
use galgo_io::rate_allowance::Rates;

type Interpreters = Arc<Vec<(String, std::path::PathBuf)>>;

const EMPTY: &str = "the file is empty. Where it is not just being written, remove it: cgi-bin/ and public/ are served without it";

/// What holds for programs where their routes do not say.
fn defaults_of(
    text: &ConfigText<'_>,
    raw: &RawOptions,
    config: &mut Config,
    wrong: &mut Vec<ConfigError>,
) {
    config.options = or_default(wrong, text.options(raw, &config.options));
    config.rate_limit = or_default(wrong, text.rate_limit(&raw.rate_limit, None));
    config.runs_as = or_default(wrong, text.default_user(raw, config));
}

/// Reads, checks and opens everything that `source`, standing in `file`, says. `user`: whom the server becomes in the place
/// of whom the file names.
pub(super) fn config(file: &Path, source: &str, user: Option<&Identity>) -> Checked<Config> {
    let mut text = ConfigText::new(file, source)?;
    // An editor that writes in place empties the file first: read at that moment it would be a configuration of defaults,
    // and a reload would close the listeners.
    if source.trim().is_empty() {
        return Err(text.error(0..0, EMPTY));
    }
    let mut misread = Misread::default();
    let mut raw: RawConfig = misread.read(&text, source, 0).unwrap_or_default();
    let wrong = &mut Vec::new();
    let included = or_default(wrong, include::sites(&mut text, &mut raw, &mut misread));
    let all_read = wrong.is_empty() && misread.is_empty();
    let mut config = Config {
        included,
        trusted: or_default(wrong, text.trusted(&raw)),
        socket_group: or_default(wrong, text.socket_group(&raw)),
        identity: or_default(wrong, text.identity(&raw)),
        umask: raw.umask.as_ref().map_or(0o022, |mask| mask.get_ref().0.0),
        log: or_default(wrong, text.log(&raw)),
        pid_file: or_default(wrong, text.pid_file(&raw)),
        cache: or_default(wrong, text.cache(&raw)),
        spool: or_default(wrong, text.spool(&raw)),
        http: or_default(wrong, text.http(&raw)),
        templates: or_default(wrong, text.templates(&raw)),
        admission: or_default(wrong, text.admission(&raw)),
        interpreters: or_default(wrong, text.interpreters(&raw)),
        ..Config::default()
    };
    config.identity = user.cloned().or(config.identity);
    or_default(wrong, text.listen(&raw, &mut config));
    config.socket_mode = raw
        .socket_mode
        .as_ref()
        .map_or(config.socket_mode, |m| m.get_ref().0.0);
    config.min_uid = or_default(wrong, text.lowest_id(&raw.min_uid, config.min_uid));
    config.min_gid = or_default(wrong, text.lowest_id(&raw.min_gid, config.min_gid));
    config.event_loops = or_derived(
        or_default(wrong, text.count(&raw.workers, 0, 0, 1024)),
        config.event_loops,
    );
    config.path = or_default(wrong, text.search_path(&raw, config.path));
    config.dev_errors = DevErrors::of(raw.dev_errors.as_ref().map(Spanned::get_ref));
    config.shutdown_grace = or_default(
        wrong,
        text.time(&raw.shutdown_grace, config.shutdown_grace, 0, 3_600_000),
    );
    if let Some(defaults) = &raw.defaults {
        defaults_of(&text, defaults.get_ref(), &mut config, wrong);
    }
    config.tls = or_default(wrong, text.tls(&raw, &mut config.warnings));
    config.rewrites = or_default(wrong, text.rewrites(&raw));
    config.errors = or_default(wrong, text.errors(&raw.errors));
    config.sites = or_default(wrong, text.sites(&raw, &config));
    or_default(wrong, routes::fill(&text, &raw, all_read, &mut config));
    config.read = text.read();
    ConfigError::all(misread.with(std::mem::take(wrong))).map_or(Ok(config), Err)
}

/// Goes on with what was checked, so that what is wrong elsewhere is said too.
fn or_default<T: Default>(wrong: &mut Vec<ConfigError>, checked: Checked<T>) -> T {
    checked.unwrap_or_else(|e| {
        wrong.push(e);
        T::default()
    })
}

impl ConfigText<'_> {
    fn identity(&self, raw: &RawConfig) -> Checked<Option<Identity>> {
        let Some(user) = &raw.user else {
            return match &raw.group {
                None => Ok(None),
                Some(group) => Err(self.error(group.span(), "needs a `user` beside it")),
            };
        };
        let group = raw.group.as_ref();
        let found = identity(user.get_ref(), group.map(|g| g.get_ref().as_str())).map_err(|e| {
            // The group is at fault only where the user alone is fine.
            let alone = identity(user.get_ref(), None).is_ok();
            let at = group.filter(|_| alone).unwrap_or(user);
            self.error(at.span(), format!("{e}: create it or correct the name"))
        })?;
        if found.uid == 0 {
            return Err(self.error(
                user.span(),
                "galgo does not serve as root: name a user without privileges (www-data)",
            ));
        }
        Ok(Some(found))
    }

    fn search_path(&self, raw: &RawConfig, default: String) -> Checked<String> {
        let Some(path) = &raw.path else {
            return Ok(default);
        };
        // An empty or relative folder would be looked up in the folder of each program.
        if path
            .get_ref()
            .split(':')
            .any(|folder| !folder.starts_with('/'))
        {
            let message = "every folder begins with \"/\": \"/usr/local/bin:/usr/bin:/bin\"";
            return Err(self.error(path.span(), message));
        }
        self.no_nul(path)
    }

    fn pid_file(&self, raw: &RawConfig) -> Checked<Option<std::path::PathBuf>> {
        raw.pid_file
            .as_ref()
            .map(|typed| self.path(typed))
            .transpose()
    }

    /// `None`: "auto".
    fn cache(&self, raw: &RawConfig) -> Checked<Option<std::path::PathBuf>> {
        match &raw.cache {
            Some(typed) if typed.get_ref() != "auto" => self.path(typed).map(Some),
            _ => Ok(None),
        }
    }

    fn spool(&self, raw: &RawConfig) -> Checked<SpoolSettings> {
        let d = SpoolSettings::default();
        let folder = match &raw.spool {
            Some(typed) if typed.get_ref() != "auto" => {
                let path = self.path(typed)?;
                if !path.is_dir() {
                    let message = format!("{} is no folder: create it", path.display());
                    return Err(self.error(typed.span(), message));
                }
                Some(path)
            }
            _ => d.folder,
        };
        Ok(SpoolSettings {
            folder,
            limit: self.size(&raw.spool_limit, d.limit, 0, T)?,
            memory: self.size(&raw.spool_memory, d.memory, 0, T)?,
        })
    }

    fn http(&self, raw: &RawConfig) -> Checked<Http> {
        let d = Http::default();
        let http = Http {
            head_timeout: self.time(&raw.head_timeout, d.head_timeout, 1000, 3_600_000)?,
            keep_alive: self.time(&raw.keep_alive, d.keep_alive, 0, 3_600_000)?,
            rates: Rates {
                least: self.size(&raw.min_rate, d.rates.least, 0, G)?,
                busy: self.size(&raw.busy_rate, d.rates.busy, 0, G)?,
                grace: self.time(&raw.rate_grace, d.rates.grace, 1000, 3_600_000)?,
            },
            max_connections: self.count(&raw.max_connections, d.max_connections, 0, 1_000_000)?,
            max_connections_per_client: self.count(
                &raw.max_connections_per_client,
                d.max_connections_per_client,
                0,
                1_000_000,
            )?,
            max_head: self.size(&raw.max_head, d.max_head, K, M)?,
            max_fields: self.count(&raw.max_fields, d.max_fields, 8, 10_000)?,
            max_target: self.size(&raw.max_target, d.max_target, 256, 64 * K)?,
            encoded_slash: self.one_of(
                &raw.encoded_slash,
                d.encoded_slash,
                &[("refuse", false), ("decode", true)],
                "is neither \"refuse\" nor \"decode\"",
            )?,
        };
        if let Some(at) = raw
            .max_target
            .as_ref()
            .filter(|_| http.max_target > http.max_head)
        {
            return Err(self.error(at.span(), "is larger than `max_head`, which contains it"));
        }
        Ok(http)
    }

    fn templates(&self, raw: &RawConfig) -> Checked<TemplateSettings> {
        const DAY: u64 = 24 * 3_600_000;
        let d = TemplateSettings::default();
        Ok(TemplateSettings {
            count: self.count(&raw.max_templates, d.count, 0, 10_000)?,
            memory: self.size(&raw.templates_memory, d.memory, 0, T)?,
            idle: self.time(&raw.template_idle, d.idle, 1000, 30 * DAY)?,
            wait: d.wait,
        })
    }

    fn admission(&self, raw: &RawConfig) -> Checked<AdmissionSettings> {
        let d = AdmissionSettings::default();
        Ok(AdmissionSettings {
            running: or_derived(self.count(&raw.max_running, 0, 0, 100_000)?, d.running),
            running_per_client: self.count(&raw.max_running_per_client, 0, 0, 100_000)?,
            cpu_share: self.count(&raw.cpu_share, d.cpu_share, 0, 100)?,
            queue: self.count(&raw.queue, d.queue, 0, 1_000_000)?,
            wait: self.time(&raw.queue_wait, d.wait, 0, 3_600_000)?,
        })
    }

    /// `[interpreters]`, the longest ending first, so that `.tar.x` is tried before `.x`.
    fn interpreters(&self, raw: &RawConfig) -> Checked<Interpreters> {
        let mut found = Vec::new();
        for (ending, program) in raw.interpreters.iter().flat_map(|map| map.get_ref()) {
            let name = ending.get_ref();
            if name.len() < 2 || !name.starts_with('.') || name.contains(['/', '\0', '*']) {
                let message = format!("{name:?} is not an ending: write it as in \".php\"");
                return Err(self.bare(ending.span(), message));
            }
            let path = Path::new(program.get_ref());
            let fail = |what| self.error(program.span(), format!("{} {what}", path.display()));
            if !path.is_absolute() {
                return Err(fail(
                    "is not absolute: write the whole path, as /usr/bin/php-cgi",
                ));
            }
            if !path.metadata().is_ok_and(|m| m.is_file()) {
                return Err(fail(
                    "is not a program here: install it or correct the path",
                ));
            }
            if rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_err() {
                return Err(fail("is not executable: chmod +x it or correct the path"));
            }
            found.push((name.clone(), path.to_owned()));
        }
        found.sort_by_key(|(ending, _)| std::cmp::Reverse(ending.len()));
        Ok(Arc::new(found))
    }

    /// The options of programs: what is typed in `raw`, else what `d` says.
    pub(super) fn options(&self, raw: &RawOptions, d: &CgiOptions) -> Checked<CgiOptions> {
        const DAY: u64 = 24 * 3_600_000;
        let max_running = d.max_running.map(|n| Count(n as u64));
        let (sandbox, strict) = self.sandbox(raw, d)?;
        Ok(CgiOptions {
            start: self.one_of(
                &raw.start,
                d.start,
                &[("cold", StartMode::Cold), ("warm", StartMode::Warm)],
                "is no way to start a program: choose \"cold\" or \"warm\"",
            )?,
            pass_authorization: flag(&raw.pass_authorization, d.pass_authorization),
            body: self.one_of(
                &raw.body,
                d.body,
                &[("stream", BodyMode::Stream), ("file", BodyMode::File)],
                "is no way to hand over a body: choose \"stream\" or \"file\"",
            )?,
            run_to_completion: flag(&raw.run_to_completion, d.run_to_completion),
            query_args: flag(&raw.query_args, d.query_args),
            drop_shellshock: flag(&raw.drop_shellshock, d.drop_shellshock),
            first_byte_timeout: self.time(&raw.first_byte_timeout, d.first_byte_timeout, 1, DAY)?,
            idle_timeout: self.time(&raw.idle_timeout, d.idle_timeout, 1, DAY)?,
            total_timeout: self.time(&raw.total_timeout, d.total_timeout, 1, 7 * DAY)?,
            kill_grace: self.time(&raw.kill_grace, d.kill_grace, 0, 60_000)?,
            max_body: self.size(&raw.max_body, d.max_body, 0, T)?,
            max_reply_head: self.size(&raw.max_reply_head, d.max_reply_head, K, M)?,
            max_stderr: self.size(&raw.max_stderr, d.max_stderr, 0, G)?,
            limits: Limits {
                may_stay: flag(&raw.run_to_completion, d.run_to_completion),
                ..self.limits(raw, &d.limits)?
            },
            no_new_privs: flag(&raw.no_new_privs, d.no_new_privs),
            sandbox,
            strict,
            max_running: self
                .optional(&raw.max_running, max_running, Count(1), Count(100_000))?
                .map(|n| usize::try_from(n.0).unwrap_or(usize::MAX)),
        })
    }

    fn limits(&self, raw: &RawOptions, d: &Limits) -> Checked<Limits> {
        let (cpu, cpu_percent) = self.cpu(raw, d)?;
        let size = |typed, default: Option<u64>, low| {
            Ok(self
                .optional(typed, default.map(Size), Size(low), Size(T))?
                .map(|size| size.0))
        };
        let count = |typed, default: Option<u64>, low| {
            let found = self.optional(typed, default.map(Count), Count(low), Count(1 << 20))?;
            Ok(found.map(|count| count.0))
        };
        Ok(Limits {
            cpu,
            cpu_percent,
            memory: size(&raw.memory, d.memory, M)?,
            file_size: size(&raw.file_size, d.file_size, 0)?,
            open_files: count(&raw.open_files, d.open_files, 8)?,
            processes: count(&raw.processes, d.processes, 1)?,
            may_stay: d.may_stay,
            is_worker: d.is_worker,
        })
    }
}

/// Values with a range, and words.
impl ConfigText<'_> {
    pub(super) fn within<U: Copy + PartialOrd + Display>(
        &self,
        span: std::ops::Range<usize>,
        value: U,
        low: U,
        high: U,
    ) -> Checked<U> {
        if low <= value && value <= high {
            return Ok(value);
        }
        Err(self.error(span, format!("{value} is out of range: {low} to {high}")))
    }

    /// A duration between `low` and `high` milliseconds.
    pub(super) fn time(
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
        Ok(self
            .within(typed.span(), value, Time::ms(low), Time::ms(high))?
            .0)
    }

    /// A size between `low` and `high` bytes.
    pub(super) fn size<N: TryFrom<u64>>(
        &self,
        typed: &Typed<Value<Size>>,
        default: N,
        low: u64,
        high: u64,
    ) -> Checked<N> {
        let Some(typed) = typed else {
            return Ok(default);
        };
        let size = self
            .within(typed.span(), typed.get_ref().0, Size(low), Size(high))?
            .0;
        N::try_from(size).map_err(|_| self.error(typed.span(), "is too large for this machine"))
    }

    /// The lowest id of an account that is not the system's own.
    fn lowest_id(&self, typed: &Typed<Value<Count>>, default: u32) -> Checked<u32> {
        let id = self.count(typed, default as usize, 1, 60_000)?;
        Ok(u32::try_from(id).unwrap_or(default))
    }

    pub(super) fn count(
        &self,
        typed: &Typed<Value<Count>>,
        default: usize,
        low: u64,
        high: u64,
    ) -> Checked<usize> {
        let Some(typed) = typed else {
            return Ok(default);
        };
        let count = self
            .within(typed.span(), typed.get_ref().0, Count(low), Count(high))?
            .0;
        usize::try_from(count)
            .map_err(|_| self.error(typed.span(), "is too large for this machine"))
    }

    fn optional<U: Copy + PartialOrd + Display>(
        &self,
        typed: &Typed<Value<OrNone<U>>>,
        default: Option<U>,
        low: U,
        high: U,
    ) -> Checked<Option<U>> {
        let Some(typed) = typed else {
            return Ok(default);
        };
        match typed.get_ref().0.0 {
            None => Ok(None),
            Some(value) => self.within(typed.span(), value, low, high).map(Some),
        }
    }

    /// What one of `words` stands for. `wrong`: what is said of another word.
    pub(super) fn one_of<T: Copy>(
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
        let other = || self.error(typed.span(), format!("{word:?} {wrong}"));
        found.map(|(_, meant)| *meant).ok_or_else(other)
    }

    /// A text that will become part of an environment or a path.
    pub(super) fn no_nul(&self, typed: &raw::Text) -> Checked<String> {
        if typed.get_ref().contains('\0') {
            return Err(self.error(typed.span(), "holds a NUL character: remove it"));
        }
        Ok(typed.get_ref().clone())
    }
}

/// 0 stands for what is derived from the machine.
fn or_derived(typed: usize, derived: usize) -> usize {
    if typed == 0 { derived } else { typed }
}

pub(super) fn flag(typed: &Typed<bool>, default: bool) -> bool {
    typed.as_ref().map_or(default, |typed| *typed.get_ref())
}
