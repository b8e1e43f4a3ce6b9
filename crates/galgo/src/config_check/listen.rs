//! Entries of `listen`.

use std::{fmt, str::FromStr};

use galgo_io::address::check_socket_path;

use crate::{
    config::{Address, Config, Listen, PassedName, Speaks},
    config_text::{
        config_error::{Checked, ConfigText},
        raw::RawConfig,
    },
};

/// An address, or the name of a socket that a service manager passes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub(crate) enum ListenAt {
    Address(Listen),
    Passed(PassedName),
}

impl FromStr for ListenAt {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (speaks, rest) = Speaks::split_protocol(text);
        let Some(name) = rest.strip_prefix(PassedName::PREFIX) else {
            return text.parse().map(Self::Address);
        };
        // The characters that sd_listen_fds(3) allows in a name.
        let fits = |c: char| c.is_ascii_graphic() && c != ':' || c == ' ';
        if name.is_empty() || name.len() > 255 || !name.chars().all(fits) {
            return Err(format!(
                "{text:?} names no socket: write \"fd:NAME\", with the FileDescriptorName= of the socket unit"
            ));
        }
        let name = name.to_owned();
        Ok(Self::Passed(PassedName { name, speaks }))
    }
}

impl ConfigText<'_> {
    /// Checks `listen`.
    pub(crate) fn check_listen(&self, raw: &RawConfig, config: &mut Config) -> Checked<()> {
        let Some(typed) = &raw.listen else {
            return Ok(());
        };
        if typed.get_ref().is_empty() {
            return Err(self.error_at(
                typed.span(),
                "names no address: add one, or delete the line",
            ));
        }
        config.listen_nowhere();
        for text in typed.get_ref() {
            let fail = |message| self.error_at(text.span(), message);
            let mut one = text.get_ref().parse().map_err(fail)?;
            if let ListenAt::Address(Listen {
                address: Address::Unix(path),
                ..
            }) = &mut one
            {
                *path = self.source_folder(&(0..0)).join(&path);
                check_socket_path(path).map_err(fail)?;
            }
            config.listen_at(one).map_err(fail)?;
        }
        Ok(())
    }
}

impl Config {
    /// Removes all addresses and sockets, the default address too.
    pub(crate) fn listen_nowhere(&mut self) {
        self.listen.clear();
        self.listen_passed.clear();
        self.listens_by_default = false;
    }

    /// Adds an address or a passed socket.
    ///
    /// # Errors
    /// A sentence: the server listens there already.
    pub(crate) fn listen_at(&mut self, one: ListenAt) -> Result<(), String> {
        let twice = |one: &dyn fmt::Display| Err(format!("{one} is named twice: delete one"));
        match one {
            ListenAt::Address(one) => {
                // Each listener at port 0 gets a port of its own, so two of them are a repetition only if they speak the same
                // protocol.
                let any_port = matches!(&one.address, Address::Tcp(at) if at.port() == 0);
                let same = |other: &Listen| {
                    if any_port {
                        *other == one
                    } else {
                        other.address == one.address
                    }
                };
                if self.listen.iter().any(same) {
                    return twice(&one);
                }
                self.listen.push(one);
            }
            ListenAt::Passed(one) => {
                let same = |other: &PassedName| other.name == one.name;
                if self.listen_passed.iter().any(same) {
                    return twice(&one);
                }
                self.listen_passed.push(one);
            }
        }
        Ok(())
    }
}
