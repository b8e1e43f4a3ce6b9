//! Defines which programs can be templates, for how many requests, and how each language is told to stop.

use crate::env::EnvBlock;

/// The kind of a template, which determines the place where the program stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TemplateKind {
    /// Dynamically linked on glibc: before `main`.
    Elf,
    /// Perl: compiled, before its first statement.
    Perl,
    /// Python: compiled, before its first statement.
    Python,
    /// Ruby: before its source is read.
    Ruby,
    /// Node: before its source is read.
    Node,
    /// PHP by php-cgi: its extensions started, before it reads a request, which names the script.
    Php,
}

/// The number of requests that a template is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Uses {
    /// Any number of requests: each gets a fork of the template.
    Many,
    /// A single request, which the template takes itself: it is parked, and need not be fit to be forked.
    Once,
}

/// The reason why a program is started cold: it "is linked statically: …".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unfit {
    /// The reason in words.
    pub why: String,
    /// The program could not be examined this time; another time it may be fit.
    pub passes: bool,
}

impl TemplateKind {
    pub(crate) const ALL: [Self; 6] = [
        Self::Elf,
        Self::Perl,
        Self::Python,
        Self::Ruby,
        Self::Node,
        Self::Php,
    ];

    /// Returns the name that the shim uses.
    pub fn shim_name(self) -> &'static str {
        match self {
            Self::Elf => "elf",
            Self::Perl => "perl",
            Self::Python => "python",
            Self::Ruby => "ruby",
            Self::Node => "node",
            Self::Php => "php",
        }
    }

    /// Returns the shim itself (`build.rs`).
    pub(crate) fn library(self) -> &'static [u8] {
        match self {
            Self::Elf => include_bytes!(concat!(env!("OUT_DIR"), "/elf.so")),
            Self::Perl => include_bytes!(concat!(env!("OUT_DIR"), "/perl.so")),
            Self::Python => include_bytes!(concat!(env!("OUT_DIR"), "/python.so")),
            Self::Ruby => include_bytes!(concat!(env!("OUT_DIR"), "/ruby.so")),
            Self::Node => include_bytes!(concat!(env!("OUT_DIR"), "/node.so")),
            Self::Php => include_bytes!(concat!(env!("OUT_DIR"), "/php.so")),
        }
    }

    /// Returns the language's part of the shim that is not C.
    pub(crate) fn source(self) -> Option<&'static [u8]> {
        match self {
            Self::Perl => Some(include_bytes!("../shim/perl.pl")),
            Self::Python => Some(include_bytes!(concat!(env!("OUT_DIR"), "/python.py"))),
            Self::Ruby => Some(include_bytes!("../shim/ruby.rb")),
            Self::Node => Some(include_bytes!("../shim/node.cjs")),
            _ => None,
        }
    }

    /// Returns whether a program that cannot be forked can be parked ([`Uses::Once`]): only if none of its code runs before it
    /// stops.
    pub fn can_park(self) -> bool {
        self == Self::Node
    }

    /// Returns whether children of the template can report which modules they loaded; for PHP: which scripts they ran.
    pub(crate) fn can_teach(self) -> bool {
        self != Self::Elf
    }

    /// Adds the variables of a template to a program's environment.
    pub(crate) fn add_env(self, uses: Uses, env: &mut EnvBlock) {
        let ours: &[u8] = b"/proc/self/fd/4";
        let preload = match env.get_value(b"LD_PRELOAD") {
            Some(theirs) => [ours, b":", theirs].concat(),
            None => ours.to_vec(),
        };
        env.set_variable(b"LD_PRELOAD", &preload);
        // Functions of libraries are looked up once, not by each child.
        env.set_variable(b"LD_BIND_NOW", b"1");
        if self == Self::Perl {
            // Perl pastes the text after -M into a `use`: here, of a version that every perl has.
            let ours: &[u8] = b"-M5.006;BEGIN{require(q(/proc/self/fd/5))}";
            let theirs = env.get_value(b"PERL5OPT").unwrap_or_default();
            env.set_variable(b"PERL5OPT", &[ours, b" ", theirs].concat());
        }
        env.set_variable(b"GALGO_TEMPLATE", self.shim_name().as_bytes());
        if uses == Uses::Once {
            env.set_variable(b"GALGO_PARKED", b"1");
        }
        if self == Self::Node {
            // Rings would be shared with children. Besides, node.c needs some bytes of the environment.
            env.set_variable(b"UV_USE_IO_URING", b"0");
            env.set_variable(b"GALGO_ROOM", &[b' '; 256]);
        }
    }
}
