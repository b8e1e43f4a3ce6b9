//! `include`: files that hold a site each, or a few.
//!
//! Keys at the top of such a file are defaults for its routes and rewrite rules.
//!
//! galgo reads these files as if they followed the main file. The spans of each file begin where the spans of the previous
//! file end. Errors and relative paths therefore find their file by their span.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs, io,
    path::{Path, PathBuf},
};

use galgo_spawn::{glob::Glob, hanging::look_at, trusted_path::resolve};
use serde::Deserialize;
use toml::Spanned;

use crate::config_text::{
    config_error::{Checked, ConfigError, ConfigText},
    folder,
    host_names::RawHosts,
    raw::{
        Groups, Map, RawAccess, RawCertificate, RawChanges, RawConfig, RawCors, RawHeaderRule,
        RawRateLimit, RawRewrite, RawRoute, RawTls, RawTo, Text, Typed,
    },
    read::Misread,
    units::{Size, Time, Value},
};

const NO_FILE: &str =
    "no file matches this pattern, so galgo has no routes: create a file, or correct the pattern";
const EMPTY: &str = "the file is empty: add routes to it, or remove it";

/// The keys at the top of an included file: the file's own keys, and keys of a `[[route]]` that hold for all of its routes.
macro_rules! site {
    ($($field:ident: $type:ty,)*) => {
        #[derive(Debug, Default, Clone, Deserialize)]
        #[serde(deny_unknown_fields)]
        struct RawSite {
            route: Typed<Vec<Spanned<RawRoute>>>,
            rewrite: Typed<Vec<Spanned<RawRewrite>>>,
            tls: Typed<RawCertificate>,
            $($field: Typed<$type>,)*
        }

        impl RawSite {
            /// Sets the keys that the route itself does not set.
            fn pass_on(&self, route: &mut RawRoute) {
                $(if route.$field.is_none() {
                    route.$field.clone_from(&self.$field);
                })*
            }
        }
    };
}

site! {
    host: RawHosts,
    access_log: String,
    log_format: String,
    authorizer: RawTo,
    passwords: String,
    realm: String,
    require: Vec<Text>,
    groups: Groups,
    access: RawAccess,
    rate_limit: RawRateLimit,
    headers: Map,
    header_rules: Vec<Spanned<RawHeaderRule>>,
    request_headers: RawChanges,
    security_headers: bool,
    expires: BTreeMap<Text, Value<Time>>,
    cors: RawCors,
    errors: Map,
    compress: bool,
    compress_types: Vec<Text>,
    compress_min: Value<Size>,
}

/// Reads the files that `include` names, except those in `left_out`, in the order of their names. Adds their contents to
/// `raw`; returns their paths.
pub(crate) fn read_included(
    text: &mut ConfigText<'_>,
    raw: &mut RawConfig,
    left_out: &[&Path],
    misread: &mut Misread,
) -> Checked<Vec<PathBuf>> {
    let Some(typed) = raw.include.clone() else {
        return Ok(Vec::new());
    };
    let mut files = text.find_named_files(&typed)?;
    if files.is_empty() && raw.route.is_none() && raw.userdir.is_none() && raw.sites.is_none() {
        return Err(text.error_at(typed.span(), NO_FILE));
    }
    files.retain(|file| {
        text.note_read_file(file.clone());
        if left_out.contains(&&**file) {
            return false;
        }
        let site = read_site(text, file, &typed, misread);
        match text.or_warn(site) {
            // The file cannot be read, and another account is to blame.
            Ok(None) => return false,
            Ok(Some(site)) => site.into_iter().for_each(|site| site.become_part_of(raw)),
            Err(e) => misread.errors.push(e),
        }
        true
    });
    Ok(files)
}

impl ConfigText<'_> {
    /// Returns the files that match a path, sorted. Each name in the path may have `*`; without any `*`, the path names one
    /// file that must exist.
    fn find_named_files(&self, typed: &Text) -> Checked<Vec<PathBuf>> {
        if typed.get_ref().is_empty() {
            return Err(self.error_at(typed.span(), "is empty: name files: \"sites/*.toml\""));
        }
        let path = folder::make_absolute(self.source_folder(&typed.span()), &self.no_nul(typed)?);
        let star = |part: &OsStr| part.as_encoded_bytes().contains(&b'*');
        let first = path.iter().position(star).unwrap_or(usize::MAX);
        self.note_read_file(path.iter().take(first.saturating_add(1)).collect());
        let mut found = vec![PathBuf::new()];
        for part in path.iter() {
            let pattern = part.to_str().filter(|part| part.contains('*'));
            let Some(pattern) = pattern.and_then(Glob::parse) else {
                found.iter_mut().for_each(|path| path.push(part));
                continue;
            };
            let mut below = Vec::new();
            for folder in &found {
                let names = list_matching(folder, &pattern);
                let names = names.map_err(|e| self.open_error(typed, folder, &e));
                below.extend(self.or_warn(names)?.into_iter().flatten());
            }
            found = below;
        }
        // With `*/site.toml`, a folder without that file is fine.
        if path.iter().any(star) {
            found.retain(|path| path.symlink_metadata().is_ok());
        }
        found.sort();
        Ok(found)
    }
}

/// Returns the entries of a folder that fit a pattern, without hidden names. Returns none if `folder` is not a folder.
fn list_matching(folder: &Path, pattern: &Glob) -> io::Result<Vec<PathBuf>> {
    let entries =
        match resolve(folder).and_then(|found| look_at(folder, || fs::read_dir(found.path))) {
            Err(e) if e.kind() == io::ErrorKind::NotADirectory => return Ok(Vec::new()),
            entries => entries?,
        };
    let mut found = Vec::new();
    for entry in entries {
        let name = entry?.file_name();
        let bytes = name.as_encoded_bytes();
        if !bytes.starts_with(b".") && pattern.matches_name(bytes) {
            found.push(folder.join(name));
        }
    }
    Ok(found)
}

/// Reads one file; `None` if nothing of it can be used.
fn read_site(
    text: &mut ConfigText<'_>,
    file: &Path,
    typed: &Text,
    misread: &mut Misread,
) -> Checked<Option<RawSite>> {
    let unread =
        |e: ConfigError| text.mark_owner(text.error_at(typed.span(), e.message()), file, 403);
    let source = folder::read_text(file).map_err(unread)?;
    let from = text.add_included(file, source.clone())?;
    if source.trim().is_empty() {
        return Err(text.keyless_error(from..from, EMPTY));
    }
    Ok(misread.parse_source(text, &source, from))
}

impl RawSite {
    fn become_part_of(mut self, raw: &mut RawConfig) {
        let routes = self.route.take();
        for mut route in routes.into_iter().flat_map(Spanned::into_inner) {
            self.for_route(route.get_ref()).pass_on(route.get_mut());
            list_to_extend(&mut raw.route).push(route);
        }
        let rules = self.rewrite.take();
        for mut rule in rules.into_iter().flat_map(Spanned::into_inner) {
            if rule.get_ref().host.is_none() {
                rule.get_mut().host.clone_from(&self.host);
            }
            list_to_extend(&mut raw.rewrite).push(rule);
        }
        if let Some(tls) = self.tls {
            let empty = || Spanned::new(tls.span(), RawTls::default());
            let all = raw.tls.get_or_insert_with(empty).get_mut();
            list_to_extend(&mut all.certificates).push(tls.into_inner());
        }
    }

    /// Returns the keys that hold for a route. If the route sets a key, the keys that depend on it (`realm` on `passwords`)
    /// come from the route too.
    fn for_route(&self, route: &RawRoute) -> Self {
        let mut site = self.clone();
        if route.passwords.is_some() {
            (site.realm, site.require, site.groups) = (None, None, None);
        }
        if route.compress.is_some() {
            (site.compress_types, site.compress_min) = (None, None);
        }
        if route.access_log.is_some() {
            site.log_format = None;
        }
        site
    }
}

/// Returns a typed list to add to; makes an empty one if none was typed.
fn list_to_extend<T>(typed: &mut Typed<Vec<T>>) -> &mut Vec<T> {
    typed
        .get_or_insert_with(|| Spanned::new(0..0, Vec::new()))
        .get_mut()
}
