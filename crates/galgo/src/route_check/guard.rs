//! Access to a route: `access`, `passwords`.

use std::collections::BTreeMap;

use galgo_handlers::{
    passwords::Passwords,
    steps::access::{Access, Addresses},
};
use galgo_proto::forwarded::Block;

use crate::config_text::{
    config_error::{Checked, ConfigText},
    folder::readable_by_all,
    raw::{self, RawRoute, each_typed, first_place, place},
};

/// Realm that a client sees when it is asked for a password, if the route names none.
const REALM: &str = "restricted";

impl ConfigText<'_> {
    pub(crate) fn check_access(&self, route: &RawRoute) -> Checked<Option<Access>> {
        let Some(typed) = &route.access else {
            return Ok(None);
        };
        let raw = typed.get_ref();
        let words = [("all", false), ("any", true)];
        let wrong = "is neither \"all\" nor \"any\"";
        let any = self.one_of(&raw.satisfy, false, &words, wrong)?;
        if any && (raw.allow.is_none() || route.passwords.is_none()) {
            let message = "\"any\" lets addresses in without a password: it needs `allow`, and `passwords` on the route";
            self.refuse(place(&raw.satisfy), message)?;
        }
        Ok(Some(Access {
            allow: self.check_addresses(&raw.allow)?,
            deny: self.check_addresses(&raw.deny)?,
            methods: self.check_methods(&raw.methods)?,
            any,
        }))
    }

    pub(crate) fn check_methods(&self, typed: &raw::Typed<Vec<raw::Text>>) -> Checked<Vec<String>> {
        let method = |typed: &raw::Text| {
            let text = typed.get_ref();
            let letter = |b: u8| b.is_ascii_uppercase() || b == b'-';
            let good = !text.is_empty() && text.bytes().all(letter);
            let message = format!("{text:?} is no method: write it as in \"GET\"");
            good.then(|| text.clone())
                .ok_or_else(|| self.error_at(typed.span(), message))
        };
        each_typed(typed, method)
    }

    pub(crate) fn check_addresses(&self, typed: &raw::Typed<Vec<raw::Text>>) -> Checked<Addresses> {
        let mut addresses = Addresses::default();
        let Some(typed) = typed else {
            return Ok(addresses);
        };
        if typed.get_ref().is_empty() {
            return Err(self.error_at(typed.span(), "names no address: add one, or delete the key"));
        }
        for typed in typed.get_ref() {
            match typed.get_ref().as_str() {
                "all" => addresses.all = true,
                "unix" => addresses.unix = true,
                text => {
                    let message = format!(
                        "{text:?} is not a block of IP addresses: write \"10.0.0.0/8\", \"::1\", \"unix\" or \"all\""
                    );
                    let block = Block::parse(text);
                    addresses
                        .blocks
                        .push(block.ok_or_else(|| self.error_at(typed.span(), message))?);
                }
            }
        }
        Ok(addresses)
    }

    pub(crate) fn check_passwords(
        &self,
        route: &RawRoute,
        warnings: &mut Vec<String>,
    ) -> Checked<Option<Passwords>> {
        let Some(file) = &route.passwords else {
            let alone = first_place!(route, realm, require, groups);
            self.refuse(alone, "needs `passwords` beside it: name the file")?;
            return Ok(None);
        };
        let realm = match &route.realm {
            Some(typed) => self.check_realm(typed)?,
            None => REALM,
        };
        let path = self.resolve_file(file)?;
        let opened = Passwords::open(&path, realm, self.check_allowed(route)?);
        let passwords = opened.map_err(|e| self.open_error(file, &path, &e))?;
        let shown = path.display();
        let doubts = passwords.doubts();
        warnings.extend(doubts.iter().map(|doubt| format!("{shown}: {doubt}")));
        warnings.extend(readable_by_all(&path));
        Ok(Some(passwords))
    }

    fn check_realm<'r>(&self, typed: &'r raw::Text) -> Checked<&'r str> {
        let text = typed.get_ref();
        let plain = |b: u8| matches!(b, b' '..=b'~') && !matches!(b, b'"' | b'\\');
        if text.is_empty() || !text.bytes().all(plain) {
            let message = "holds visible ASCII without \" and \\: browsers show it";
            return Err(self.error_at(typed.span(), message));
        }
        Ok(text)
    }

    /// Returns the users that may enter, including the members of groups; `None`: every user of the file.
    fn check_allowed(&self, route: &RawRoute) -> Checked<Option<Vec<String>>> {
        let none = BTreeMap::new();
        let groups = route.groups.as_ref().map_or(&none, |map| map.get_ref());
        for (group, members) in groups {
            self.check_user_name(group)?;
            members
                .iter()
                .try_for_each(|name| self.check_user_name(name))?;
        }
        let Some(require) = &route.require else {
            return Ok(None);
        };
        let mut allowed = Vec::new();
        for typed in require.get_ref() {
            let Some(name) = typed.get_ref().strip_prefix('@') else {
                if typed.get_ref() == "valid-user" {
                    let message =
                        "every user of the password file may enter without `require`: delete it";
                    return Err(self.error_at(typed.span(), message));
                }
                self.check_user_name(typed)?;
                allowed.push(typed.get_ref().clone());
                continue;
            };
            let group = groups.iter().find(|(group, _)| group.get_ref() == name);
            let Some((_, members)) = group else {
                let message =
                    format!("group {name:?} is not defined: write groups = {{ {name} = [\"…\"] }}");
                return Err(self.error_at(typed.span(), message));
            };
            allowed.extend(members.iter().map(|name| name.get_ref().clone()));
        }
        Ok(Some(allowed))
    }

    fn check_user_name(&self, typed: &raw::Text) -> Checked<()> {
        let text = typed.get_ref();
        let good = !text.is_empty() && !text.starts_with('@') && !text.contains([':', '\n']);
        if good {
            return Ok(());
        }
        let message = format!(
            "{text:?} is not the name of a user: it holds no \":\" and begins with no \"@\""
        );
        Err(self.error_at(typed.span(), message))
    }
}
