//! `include`: files that hold a site each, or a few.
//!
//! What stands at the top of such a file holds for those of its routes and rules that do not say otherwise.
//!
//! galgo reads these files as if they stood behind the main file: the spans of a file begin where those of the file before end, so
//! each error and each relative path finds its file by its span.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs, io,
    path::{Path, PathBuf},
};

use galgo_proto::glob::Glob;
use galgo_spawn::trusted_path::resolve;
use serde::Deserialize;
use toml::Spanned;

use super::{
    error::{Checked, ConfigError, ConfigText},
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
    "no file has such a name, so there is no route: write one, or correct the pattern";
const EMPTY: &str = "the file is empty. Where it is not just being written, remove it";

/// The keys at the top of an included file: its own, and those of a `[[route]]` that hold for all of its routes.
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
            /// Gives a route what it does not say itself.
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

/// Reads the files that `include` names, but those that are `left_out`, in the order of their names. Adds what they hold to `raw`;
/// returns their paths.
pub(super) fn sites(
    text: &mut ConfigText<'_>,
    raw: &mut RawConfig,
    left_out: &[&Path],
    misread: &mut Misread,
) -> Checked<Vec<PathBuf>> {
    let Some(typed) = raw.include.clone() else {
        return Ok(Vec::new());
    };
    let mut files = text.named(&typed)?;
    if files.is_empty() && raw.route.is_none() && raw.userdir.is_none() && raw.sites.is_none() {
        return Err(text.error(typed.span(), NO_FILE));
    }
    files.retain(|file| {
        text.reads(file.clone());
        if left_out.contains(&&**file) {
            return false;
        }
        let site = read(text, file, &typed, misread);
        match text.or_warn(site) {
            // It cannot be read, and may be another account's.
            Ok(None) => return false,
            Ok(Some(site)) => site.into_iter().for_each(|site| site.become_part_of(raw)),
            Err(e) => misread.errors.push(e),
        }
        true
    });
    Ok(files)
}

impl ConfigText<'_> {
    /// The files that are there under a path whose names may have `*`, sorted. Without one it is a file that must be there.
    fn named(&self, typed: &Text) -> Checked<Vec<PathBuf>> {
        if typed.get_ref().is_empty() {
            return Err(self.error(typed.span(), "is empty: name files: \"sites/*.toml\""));
        }
        let path = folder::absolute(self.folder(&typed.span()), &self.no_nul(typed)?);
        let star = |part: &OsStr| part.as_encoded_bytes().contains(&b'*');
        let first = path.iter().position(star).unwrap_or(usize::MAX);
        self.reads(path.iter().take(first.saturating_add(1)).collect());
        let mut found = vec![PathBuf::new()];
        for part in path.iter() {
            let pattern = part.to_str().filter(|part| part.contains('*'));
            let Some(pattern) = pattern.and_then(Glob::parse) else {
                found.iter_mut().for_each(|path| path.push(part));
                continue;
            };
            let mut below = Vec::new();
            for folder in &found {
                let names = names(folder, &pattern);
                let names = names.map_err(|e| self.unopened(typed, folder, &e));
                below.extend(self.or_warn(names)?.into_iter().flatten());
            }
            found = below;
        }
        // `*/site.toml` is meant for the folders that have one.
        if path.iter().any(star) {
            found.retain(|path| path.symlink_metadata().is_ok());
        }
        found.sort();
        Ok(found)
    }
}

/// What in a folder fits a pattern, without hidden names. What is no folder has nothing in it.
fn names(folder: &Path, pattern: &Glob) -> io::Result<Vec<PathBuf>> {
    let entries = match resolve(folder).and_then(|found| fs::read_dir(found.path)) {
        Err(e) if e.kind() == io::ErrorKind::NotADirectory => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let name = entry?.file_name();
        let bytes = name.as_encoded_bytes();
        if !bytes.starts_with(b".") && pattern.fits(bytes) {
            found.push(folder.join(name));
        }
    }
    Ok(found)
}

/// Reads one file; `None`: nothing of it can be used.
fn read(
    text: &mut ConfigText<'_>,
    file: &Path,
    typed: &Text,
    misread: &mut Misread,
) -> Checked<Option<RawSite>> {
    let unread = |e: ConfigError| text.owners(text.error(typed.span(), e.message()), file, 403);
    let source = folder::text(file).map_err(unread)?;
    let from = text.include(file, source.clone())?;
    if source.trim().is_empty() {
        return Err(text.bare(from..from, EMPTY));
    }
    Ok(misread.read(text, &source, from))
}

impl RawSite {
    fn become_part_of(mut self, raw: &mut RawConfig) {
        let routes = self.route.take();
        for mut route in routes.into_iter().flat_map(Spanned::into_inner) {
            self.of(route.get_ref()).pass_on(route.get_mut());
            list(&mut raw.route).push(route);
        }
        let rules = self.rewrite.take();
        for mut rule in rules.into_iter().flat_map(Spanned::into_inner) {
            if rule.get_ref().host.is_none() {
                rule.get_mut().host.clone_from(&self.host);
            }
            list(&mut raw.rewrite).push(rule);
        }
        if let Some(tls) = self.tls {
            let empty = || Spanned::new(tls.span(), RawTls::default());
            let all = raw.tls.get_or_insert_with(empty).get_mut();
            list(&mut all.certificates).push(tls.into_inner());
        }
    }

    /// What holds for a route: what goes with a key is taken from where the key is.
    fn of(&self, route: &RawRoute) -> Self {
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

/// A list that may not have been typed.
fn list<T>(typed: &mut Typed<Vec<T>>) -> &mut Vec<T> {
    typed
        .get_or_insert_with(|| Spanned::new(0..0, Vec::new()))
        .get_mut()
}
