//! Destinations of logs: the server's logs, and the access logs of routes.

use std::sync::Arc;

use galgo_service::log::route_logs::OwnLog;

use crate::{
    config::{Config, LogFormat, LogSettings, LogTo, Placed},
    config_text::{
        config_error::{Checked, ConfigText},
        folder,
        raw::{self, RawConfig, RawRoute, Typed, place},
    },
};

/// Returns the access logs that routes have of their own, each once.
pub(crate) fn collect_own_logs(routes: &[Placed]) -> Vec<LogTo> {
    let logs = routes.iter().filter_map(|(route, _)| route.log.as_ref());
    let mut own: Vec<LogTo> = Vec::new();
    for to in logs.filter_map(|log| log.log_target()) {
        if !own.contains(to) {
            own.push(to.clone());
        }
    }
    own
}

impl ConfigText<'_> {
    pub(crate) fn check_logs(&self, raw: &RawConfig) -> Checked<LogSettings> {
        let default = LogSettings::default();
        let access = match &raw.access_log {
            None => default.access,
            Some(to) => self.check_log_to(to)?,
        };
        let format = self.check_log_format(&raw.log_format)?;
        let error = match &raw.error_log {
            None => default.error,
            Some(to) => self.check_log_to(to)?.ok_or_else(|| {
                let message = "is never off: write \"stderr\", \"-\" (standard output) or a file";
                self.error_at(to.span(), message)
            })?,
        };
        Ok(LogSettings {
            access,
            format: format.unwrap_or(default.format),
            error,
            own: default.own,
        })
    }

    /// Returns the access log of a route; `None` if it has none of its own.
    pub(crate) fn check_own_log(
        &self,
        route: &RawRoute,
        config: &Config,
    ) -> Checked<Option<Arc<OwnLog>>> {
        let format = self.check_log_format(&route.log_format)?;
        let Some(to) = &route.access_log else {
            self.refuse(place(&route.log_format), "needs an `access_log` beside it")?;
            return Ok(None);
        };
        let format = format.unwrap_or(config.log.format);
        Ok(Some(Arc::new(OwnLog::new(self.check_log_to(to)?, format))))
    }

    fn check_log_format(&self, typed: &Typed<String>) -> Checked<Option<LogFormat>> {
        let words = [
            ("combined", Some(LogFormat::Combined)),
            ("host_combined", Some(LogFormat::HostCombined)),
            ("json", Some(LogFormat::Json)),
        ];
        let wrong = "is not a log format: choose \"combined\", \"host_combined\" or \"json\"";
        self.one_of(typed, None, &words, wrong)
    }

    /// Returns the destination of a log; `None` for "off".
    fn check_log_to(&self, to: &raw::Text) -> Checked<Option<LogTo>> {
        Ok(Some(match to.get_ref().as_str() {
            "off" => return Ok(None),
            // Use the open descriptors. The server's user may not be allowed to open these files again. Under systemd each is
            // a socket, which no process can open by its path.
            "-" | "/dev/stdout" => LogTo::Stdout,
            "stderr" | "/dev/stderr" => LogTo::Stderr,
            "" => {
                return Err(self.error_at(to.span(), "is empty: write \"-\", \"stderr\" or a file"));
            }
            file => LogTo::File(folder::make_absolute(self.source_folder(&to.span()), file)),
        }))
    }
}
