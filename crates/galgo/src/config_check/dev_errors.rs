//! `dev_errors`: which clients see why a program failed. Such a client is a developer on the same machine.

use std::io::IsTerminal;

use galgo_service::link::is_loopback;

use crate::{
    config::{Address, Config, DevErrors, Speaks},
    config_text::units::Switch,
};

impl DevErrors {
    pub(crate) fn from_typed(typed: Option<&Switch>) -> Self {
        match typed {
            Some(Switch::Is(on)) => Self::Is(*on),
            Some(Switch::Auto) | None => Self::Auto {
                terminal: std::io::stdout().is_terminal(),
            },
        }
    }
}

impl Config {
    /// Returns whether developers see why a program failed.
    pub fn shows_causes(&self) -> bool {
        match self.dev_errors {
            DevErrors::Is(on) => on,
            DevErrors::Auto { terminal } => terminal && self.is_desk(),
        }
    }

    /// Returns whether nothing suggests that others are served here: no address that others can reach, no server in front,
    /// no user to become.
    fn is_desk(&self) -> bool {
        let near = |address: &Address| match address {
            Address::Tcp(at) => is_loopback(at.ip()),
            Address::Unix(_) => false,
        };
        let mut listeners = self.listen.iter();
        self.identity.is_none()
            && listeners
                .all(|l| matches!(l.speaks, Speaks::Http | Speaks::Https) && near(&l.address))
    }
}

#[cfg(test)]
mod tests {
    use crate::config_check::dev_errors::*;

    #[test]
    fn auto_is_for_terminals() {
        let shows = |listen: &[&str], dev_errors, user: bool| {
            let listen = listen.iter().map(|text| text.parse().unwrap()).collect();
            let identity =
                user.then(|| galgo_spawn::identity::resolve_identity("nobody", None).unwrap());
            let config = Config {
                listen,
                identity,
                dev_errors,
                ..Config::default()
            };
            config.shows_causes()
        };
        let auto = |terminal| DevErrors::Auto { terminal };
        for (listen, shown) in [
            (&["127.0.0.1:0"][..], true),
            (&["127.0.0.1:0", "[::1]:0", "127.9.9.9:1"], true),
            (&["127.0.0.1:0", "0.0.0.0:80"], false),
            (&["[::]:80"], false),
            (&["192.0.2.1:80"], false),
            (&["127.0.0.1:0", "unix:/s"], false),
            (&["proxy+127.0.0.1:0"], false),
            (&["127.0.0.1:0", "scgi+127.0.0.1:0"], false),
        ] {
            assert_eq!(shows(listen, auto(true), false), shown, "{listen:?}");
            assert!(!shows(listen, auto(true), true), "{listen:?}");
            assert!(!shows(listen, auto(false), false), "{listen:?}");
            assert!(shows(listen, DevErrors::Is(true), true), "{listen:?}");
            assert!(!shows(listen, DevErrors::Is(false), false), "{listen:?}");
        }
    }
}
