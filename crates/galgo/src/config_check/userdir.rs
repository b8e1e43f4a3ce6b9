//! `[userdir]` becomes ordinary routes: `/~user/` and `/~user/cgi-bin/`.

use std::{
    io,
    path::{Component, Path, PathBuf},
    sync::Arc,
};

use galgo_handlers::root;
use galgo_spawn::{
    hanging::look_at,
    identity::{IdentityError, home_of},
};
use toml::Spanned;

use crate::{
    config::{Config, Handler, Placed, Route, UserDir},
    config_check::host,
    config_text::{
        config_error::{Checked, ConfigText},
        folder::describe_unopened,
        raw::{self, RawUserDir, each_typed, where_typed},
    },
};

/// Looks up the users and adds a route for each folder that exists. If a folder is missing, or a link leads out of the home,
/// only warns: one user must not keep the server from starting.
pub(crate) fn add_home_routes(
    text: &ConfigText<'_>,
    raw: &Spanned<RawUserDir>,
    config: &mut Config,
    routes: &mut Vec<Placed>,
) -> Checked<UserDir> {
    let userdir = text.check_userdir(raw, config)?;
    for (user, home) in &userdir.users {
        for (name, kind) in [
            (&userdir.files, HomeRouteKind::Files),
            (&userdir.cgi, HomeRouteKind::Cgi),
        ] {
            let Some(name) = name else { continue };
            match open_home_route(user, home, name, kind, &userdir, config) {
                Ok(mut route) => {
                    let files = &mut route.among_files;
                    let programs = match &mut route.handler {
                        Handler::Cgi(cgi) => Some(cgi),
                        _ => files.as_mut(),
                    };
                    if let Some(cgi) = programs {
                        let remit =
                            text.build_remit(&raw.get_ref().user, &None, cgi, config, false)?;
                        if let Some(cgi) = Arc::get_mut(cgi) {
                            cgi.set_remit(remit, false);
                        }
                    }
                    routes.push((route, raw.span()));
                }
                Err(e) => config.warnings.push(format!(
                    "~{user}: {}",
                    describe_unopened(&home.join(name), &e)
                )),
            }
        }
    }
    Ok(userdir)
}

#[derive(Clone, Copy)]
pub(crate) enum HomeRouteKind {
    Files,
    Cgi,
}

pub(crate) fn open_home_route(
    user: &str,
    home: &Path,
    name: &Path,
    kind: HomeRouteKind,
    userdir: &UserDir,
    config: &Config,
) -> io::Result<Route> {
    // A user owns everything below the home and nothing else, whatever links the user makes there.
    let path = home.join(name);
    let home_folder = root::open_folder(home)?;
    let fd = look_at(&path, || root::open_below(&home_folder, name))?;
    Ok(match kind {
        HomeRouteKind::Files => {
            let url = format!("/~{user}/");
            host::build_files_route(url, (path, fd), &userdir.cgi_names, None, config)
        }
        HomeRouteKind::Cgi => {
            let document_root = home.join(userdir.files.as_deref().unwrap_or(name));
            let url = format!("/~{user}/cgi-bin/");
            host::build_programs_route(url, (path, fd), document_root, None, config)
        }
    })
}

impl ConfigText<'_> {
    fn check_userdir(&self, raw: &Spanned<RawUserDir>, config: &Config) -> Checked<UserDir> {
        let (at, raw) = (raw.span(), raw.get_ref());
        let files = where_typed(&raw.files, |typed| self.check_below_home(typed))?;
        let cgi = where_typed(&raw.cgi, |typed| self.check_below_home(typed))?;
        if files.is_none() && cgi.is_none() {
            return Err(self.keyless_error(at, "userdir: name at least one of `files` and `cgi`"));
        }
        let cgi_names = self.check_cgi_names(&raw.cgi_names)?;
        if let (Some(typed), None) = (&raw.cgi_names, &files) {
            let message = "needs `files` beside it: a folder with programs among its files";
            return Err(self.error_at(typed.span(), message));
        }
        let users = each_typed(&raw.users, |user| self.check_user(user))?;
        let named = raw
            .users
            .as_ref()
            .is_some_and(|users| !users.get_ref().is_empty());
        let users: Vec<_> = users.into_iter().flatten().collect();
        if !named {
            let message = "userdir: list the users to publish: users = [\"alice\"]";
            return Err(self.keyless_error(at, message));
        }
        Ok(UserDir {
            runs_as: self.helped(&raw.user, &None, &config.options, config)?,
            files,
            cgi_names,
            cgi,
            users,
        })
    }

    fn check_below_home(&self, typed: &raw::Text) -> Checked<PathBuf> {
        let path = PathBuf::from(self.no_nul(typed)?);
        let plain = |part| matches!(part, Component::Normal(_));
        if path.as_os_str().is_empty() || !path.components().all(plain) {
            let message = "is a folder below the home: write it as in \"public_html\"";
            return Err(self.error_at(typed.span(), message));
        }
        Ok(path)
    }

    /// Returns a user with the user's home. `None`: the account is gone, which is no reason to refuse to serve others.
    fn check_user(&self, typed: &raw::Text) -> Checked<Option<(String, PathBuf)>> {
        let user = typed.get_ref();
        let message = match user.as_str() {
            "*" => "this would publish every account, system accounts too: list the users".into(),
            "root" => "the home of root is not published: delete it".into(),
            user => match find_home(user) {
                Ok(home) if home.is_absolute() && home != Path::new("/") => {
                    return Ok(Some((user.to_owned(), home)));
                }
                Ok(home) => format!("{user} has no home (\"{}\")", home.display()),
                Err(e @ IdentityError::NoUser(_)) => {
                    let message =
                        format!("{e}, so /~{user}/ answers 404: delete it or correct the name");
                    self.add_warning(&self.error_at(typed.span(), message));
                    return Ok(None);
                }
                Err(e) => e.to_string(),
            },
        };
        Err(self.error_at(typed.span(), message))
    }
}

/// Returns the home of a user.
fn find_home(user: &str) -> Result<PathBuf, IdentityError> {
    home_of(user)?.ok_or_else(|| IdentityError::NoUser(user.to_owned()))
}
