//! Variables that a route gives its programs: `env`, `pass_env`, `env_file`, `load_env`.

use std::{
    env::VarError,
    io::{self, Read},
    os::unix::fs::PermissionsExt,
    path::Path,
};

use galgo_spawn::{
    hanging::look_at,
    identity::{effective_uid, user_name_of},
    trusted_path,
    words::shell_argument,
};

use crate::config_text::{
    config_error::{Checked, ConfigText},
    raw::{self, RawRoute, Typed, first_place},
};

impl ConfigText<'_> {
    /// Returns the variables of a route, sorted by name: from `env`, from `pass_env` and from `env_file`. A name that occurs
    /// twice is an error.
    pub(crate) fn check_env(&self, route: &RawRoute) -> Checked<Vec<(String, String)>> {
        let mut env = self.check_variables("env", &route.env, computed)?;
        for typed in route.pass_env.iter().flat_map(|list| list.get_ref()) {
            let name = typed.get_ref();
            if let Some(wrong) = wrong_name(name, computed) {
                return Err(self.error_at(typed.span(), wrong));
            }
            match std::env::var(name) {
                Ok(value) => env.push((name.clone(), value)),
                Err(VarError::NotPresent) => continue,
                Err(VarError::NotUnicode(_)) => {
                    let message =
                        format!("{name} is not UTF-8 in the server's environment: set it by `env`");
                    return Err(self.error_at(typed.span(), message));
                }
            }
        }
        if let Some(typed) = &route.env_file {
            let path = self.resolve_file(typed)?;
            let read = self.read_env_file(typed, &path);
            env.extend(read.map_err(|e| self.mark_owner(e, &path, 403))?);
        }
        env.sort_by(|(a, _), (b, _)| a.cmp(b));
        for ((name, _), (next, _)) in env.iter().zip(env.iter().skip(1)) {
            if name == next {
                let at = first_place!(route, env_file, pass_env).unwrap_or(0..0);
                let message = format!("{name} is set twice on this route: delete one");
                let error = self.error_at(at, message);
                return Err(match &route.env_file {
                    Some(typed) => self.mark_owner(error, &self.resolve_path(typed)?, 403),
                    None => error,
                });
            }
        }
        Ok(env)
    }

    /// Reads a file with secrets of programs: one NAME=value a line.
    fn read_env_file(&self, typed: &raw::Text, path: &Path) -> Checked<Vec<(String, String)>> {
        /// Largest such file, bytes: an environment has hardly more room.
        const MOST: u64 = 64 << 10;
        let fail = |e: io::Error| self.open_error(typed, path, &e);
        let file = trusted_path::read(path).map_err(|e| match e.kind() {
            // Suggest chown, not chgrp: the check below refuses a file that its group can read.
            io::ErrorKind::PermissionDenied if path.metadata().is_ok() => {
                let (user, argument) = (user_name_of(effective_uid()), shell_argument(path));
                let message = format!(
                    "user {user} cannot read {}: chown {user} {argument}",
                    path.display()
                );
                self.error_at(typed.span(), message)
            }
            _ => fail(e),
        })?;
        let read = look_at(path, || file.metadata());
        let mode = read.map_err(fail)?.permissions().mode();
        if mode & 0o077 != 0 {
            let argument = shell_argument(path);
            let message = format!(
                "users other than its owner can read or change {}: chmod 600 {argument}",
                path.display()
            );
            return Err(self.error_at(typed.span(), message));
        }
        let mut text = String::new();
        let read = look_at(path, || file.take(MOST + 1).read_to_string(&mut text));
        read.map_err(fail)?;
        if text.len() as u64 > MOST {
            return Err(self.error_at(
                typed.span(),
                "is larger than 64K, the limit of a variables file",
            ));
        }
        let mut env = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim_start();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            // Quote nothing of the line: it may be the secret.
            let wrong = |what: &str| {
                let message = format!("line {} of {} {what}", number + 1, path.display());
                Err(self.error_at(typed.span(), message))
            };
            let Some((name, value)) = line.split_once('=') else {
                return wrong("is not NAME=value");
            };
            if !is_variable_name(name) || value.contains('\0') {
                return wrong("has no variable name before \"=\": write letters, digits and \"_\"");
            }
            if let Some(why) = computed(name) {
                return wrong(why);
            }
            env.push((name.to_owned(), value.to_owned()));
        }
        Ok(env)
    }

    /// Checks `load_env`, which may only set variables of a request. A template is loaded before there is a request and lacks
    /// these. It may read every other variable, because those are the same for all requests.
    pub(crate) fn check_load_env(&self, route: &RawRoute) -> Checked<Vec<(String, String)>> {
        self.check_variables("load_env", &route.load_env, |name| {
            (!galgo_proto::vars::is_of_request(name))
                .then_some("is the same for all requests: set it in `env`")
        })
    }

    pub(crate) fn check_variables(
        &self,
        key: &str,
        map: &Typed<raw::Map>,
        refused: impl Fn(&str) -> Option<&'static str>,
    ) -> Checked<Vec<(String, String)>> {
        let mut env = Vec::new();
        for (name, value) in map.iter().flat_map(|map| map.get_ref()) {
            let text = name.get_ref();
            if let Some(wrong) = wrong_name(text, &refused) {
                return Err(self.keyless_error(name.span(), format!("{key}: {wrong}")));
            }
            env.push((text.clone(), self.no_nul(value)?));
        }
        Ok(env)
    }
}

/// Returns why a configuration may not set a variable; `None` if it may.
pub(crate) fn computed(name: &str) -> Option<&'static str> {
    galgo_proto::vars::is_computed(name)
        .then_some("is computed for each request and cannot be set: delete it")
}

/// Returns an objection to the name of a variable, if there is one.
fn wrong_name(name: &str, refused: impl Fn(&str) -> Option<&'static str>) -> Option<String> {
    if !is_variable_name(name) {
        let message = format!("{name:?} is not the name of a variable: letters, digits and \"_\"");
        return Some(message);
    }
    refused(name).map(|why| format!("{name} {why}"))
}

fn is_variable_name(name: &str) -> bool {
    let letter = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let digit_first = name.bytes().next().is_none_or(|b| b.is_ascii_digit());
    !digit_first && name.bytes().all(letter)
}
