//! Servers in front of galgo: proxies that are trusted, the group of sockets, and files that programs hand over.

use galgo_proto::forwarded::{Block, ForwardedField, Trusted};

use crate::{
    config::{Config, Files, Sendfile},
    config_text::{
        config_error::{Checked, ConfigText},
        raw::{self, RawConfig, RawRoute, each_typed, where_typed},
    },
};

impl ConfigText<'_> {
    pub(crate) fn check_trusted(&self, raw: &RawConfig) -> Checked<Trusted> {
        let mut trusted = Config::default().trusted;
        for typed in raw.trusted_proxies.iter().flat_map(|list| list.get_ref()) {
            let text = typed.get_ref().as_str();
            if text == "unix" {
                trusted.unix = true;
                continue;
            }
            let block = Block::parse(text).ok_or_else(|| {
                let message = format!(
                    "{text:?} is not a block of IP addresses: write \"10.0.0.0/8\", \"::1\" or \"unix\""
                );
                self.error_at(typed.span(), message)
            })?;
            trusted.blocks.push(block);
        }
        let Some(fields) = &raw.forwarded else {
            return Ok(trusted);
        };
        trusted.fields.clear();
        for typed in fields.get_ref() {
            let field = self.check_forwarded_field(typed)?;
            let alone = field == ForwardedField::Forwarded
                || trusted.fields.contains(&ForwardedField::Forwarded);
            if alone && !trusted.fields.is_empty() {
                let message =
                    "Forwarded and the X-Forwarded fields carry the same data: name only one kind";
                return Err(self.error_at(typed.span(), message));
            }
            trusted.fields.push(field);
        }
        Ok(trusted)
    }

    fn check_forwarded_field(&self, typed: &raw::Text) -> Checked<ForwardedField> {
        let text = typed.get_ref();
        let named = |f: &ForwardedField| f.field_name().eq_ignore_ascii_case(text);
        ForwardedField::ALL.into_iter().find(named).ok_or_else(|| {
            let names = ForwardedField::ALL
                .map(ForwardedField::field_name)
                .join(", ");
            let message = format!("{text:?} is none of {names}");
            self.error_at(typed.span(), message)
        })
    }

    pub(crate) fn check_socket_group(&self, raw: &RawConfig) -> Checked<Option<u32>> {
        where_typed(&raw.socket_group, |typed| {
            let gid = galgo_spawn::identity::resolve_group(typed.get_ref());
            gid.map_err(|e| {
                self.error_at(typed.span(), format!("{e}: create it or correct the name"))
            })
        })
    }

    /// Opens the folders of `sendfile` and `accel_redirect` now. Files that programs name are looked up beneath these folders
    /// later.
    pub(crate) fn check_sendfile(&self, route: &RawRoute, config: &Config) -> Checked<Sendfile> {
        let mut sendfile = Sendfile {
            folders: each_typed(&route.sendfile, |typed| {
                self.open_files_folder(typed, config)
            })?,
            ..Sendfile::default()
        };
        for (prefix, typed) in route.accel_redirect.iter().flat_map(|map| map.get_ref()) {
            let text = prefix.get_ref();
            if !text.starts_with('/') || !text.ends_with('/') || text.contains("//") {
                let message = format!(
                    "accel_redirect: {text:?} is not the path of a folder: write it as in \"/protected/\""
                );
                return Err(self.keyless_error(prefix.span(), message));
            }
            let files = self.open_files_folder(typed, config)?;
            sendfile.paths.push((text.clone(), files));
        }
        sendfile
            .paths
            .sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
        Ok(sendfile)
    }

    /// Opens a folder of files.
    pub(crate) fn open_files_folder(&self, typed: &raw::Text, config: &Config) -> Checked<Files> {
        let mut files = self.open_typed(typed, Files::open)?;
        files.interpreters = config.interpreters.clone();
        Ok(files)
    }
}
