//! Encoding of remits, from the process that has read the configuration to the spawner. Both processes are root's, and run the
//! same binary.

use super::{
    Layout, Remit, RunsAs,
    remit::{ModuleTerms, Terms},
};
use crate::{
    Limits, Sandbox,
    glob::Glob,
    identity::{Identity, User},
    sandbox::{Confinement, Network},
};
use rustix::fs::{MemfdFlags, memfd_create};
use std::{
    ffi::{CString, OsString},
    fs::File,
    io::{self, Read, Seek, Write},
    os::{
        fd::OwnedFd,
        unix::ffi::{OsStrExt, OsStringExt},
    },
    path::PathBuf,
    sync::Arc,
};

/// A value that can be written and read back.
trait WireField: Sized {
    fn put(&self, to: &mut Vec<u8>);
    fn take(from: &mut &[u8]) -> Option<Self>;
}

/// Writes the remits to a file without a name.
///
/// # Errors
/// There is no memory for the file.
pub(crate) fn write_file(remits: &[Arc<Remit>]) -> io::Result<OwnedFd> {
    let mut bytes = Vec::new();
    remits.len().put(&mut bytes);
    remits.iter().for_each(|remit| remit.terms.put(&mut bytes));
    let mut file = File::from(memfd_create("galgo-remits", MemfdFlags::CLOEXEC)?);
    file.write_all(&bytes)?;
    Ok(file.into())
}

/// Reads the remits back.
///
/// # Errors
/// The file holds something else.
pub(crate) fn read(file: OwnedFd) -> io::Result<Vec<Arc<Remit>>> {
    let mut file = File::from(file);
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    let mut from = &bytes[..];
    let terms = Vec::<Terms>::take(&mut from).filter(|_| from.is_empty());
    let terms = terms.ok_or(io::ErrorKind::InvalidData)?;
    let remits = terms.into_iter().map(|terms| Arc::new(Remit::new(terms)));
    Ok(remits.collect())
}

macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl WireField for $number {
            fn put(&self, to: &mut Vec<u8>) {
                to.extend(self.to_ne_bytes());
            }
            fn take(from: &mut &[u8]) -> Option<Self> {
                let (bytes, rest) = from.split_first_chunk()?;
                *from = rest;
                Some(Self::from_ne_bytes(*bytes))
            }
        }
    )*};
}
numbers!(u8 u32 u64 usize);

/// Implements [`WireField`] for a type by converting it to another type.
macro_rules! told_as {
    ($($kind:ty as $told_kind:ty: $this:ident => $told:expr, $back:ident => $made:expr;)*) => {$(
        impl WireField for $kind {
            fn put(&self, to: &mut Vec<u8>) {
                let $this = self;
                $told.put(to);
            }
            fn take(from: &mut &[u8]) -> Option<Self> {
                let $back = <$told_kind>::take(from)?;
                $made
            }
        }
    )*};
}
told_as! {
    bool as u8: this => u8::from(*this), told => (told <= 1).then_some(told == 1);
    String as Vec<u8>: this => this.as_bytes().to_vec(), told => String::from_utf8(told).ok();
    Glob as String: this => this.as_str().to_owned(), told => Self::parse(&told);
    CString as Vec<u8>: this => this.as_bytes().to_vec(), told => CString::new(told).ok();
    PathBuf as Vec<u8>: this => this.as_os_str().as_bytes().to_vec(), told => Some(OsString::from_vec(told).into());
    Sandbox as usize: this => index_of(SANDBOXES, this), told => SANDBOXES.get(told).copied();
    Layout as usize: this => index_of(LAYOUTS, this), told => LAYOUTS.get(told).copied();
    Network as usize: this => index_of(&Network::NAMES.map(|(_, one)| one), this),
        told => Network::NAMES.get(told).map(|(_, one)| *one);
}

const SANDBOXES: &[Sandbox] = &[Sandbox::Off, Sandbox::Standard];
const LAYOUTS: &[Layout] = &[Layout::Named, Layout::Hosts, Layout::Host];

fn index_of<T: PartialEq>(all: &[T], one: &T) -> usize {
    let at = all.iter().position(|other| other == one);
    at.unwrap_or(usize::MAX)
}

impl<T: WireField> WireField for Option<T> {
    fn put(&self, to: &mut Vec<u8>) {
        self.is_some().put(to);
        self.iter().for_each(|one| one.put(to));
    }
    fn take(from: &mut &[u8]) -> Option<Self> {
        Some(if bool::take(from)? {
            Some(T::take(from)?)
        } else {
            None
        })
    }
}

impl<T: WireField> WireField for Vec<T> {
    fn put(&self, to: &mut Vec<u8>) {
        self.len().put(to);
        self.iter().for_each(|one| one.put(to));
    }
    fn take(from: &mut &[u8]) -> Option<Self> {
        let len = usize::take(from)?;
        // Each element takes at least one byte.
        let mut all = Self::with_capacity(len.min(from.len()));
        for _ in 0..len {
            all.push(T::take(from)?);
        }
        Some(all)
    }
}

impl<T: WireField> WireField for Arc<T> {
    fn put(&self, to: &mut Vec<u8>) {
        (**self).put(to);
    }
    fn take(from: &mut &[u8]) -> Option<Self> {
        T::take(from).map(Self::new)
    }
}

impl<A: WireField, B: WireField> WireField for (A, B) {
    fn put(&self, to: &mut Vec<u8>) {
        self.0.put(to);
        self.1.put(to);
    }
    fn take(from: &mut &[u8]) -> Option<Self> {
        Some((A::take(from)?, B::take(from)?))
    }
}

macro_rules! structs {
    ($($kind:ident { $($field:ident)* })*) => {$(
        impl WireField for $kind {
            fn put(&self, to: &mut Vec<u8>) {
                $(self.$field.put(to);)*
            }
            fn take(from: &mut &[u8]) -> Option<Self> {
                Some(Self { $($field: WireField::take(from)?),* })
            }
        }
    )*};
}
structs! {
    Terms {
        path layout names interpreters variables constants query_args worker warm modules limits umask no_new_privs sandbox
        strict runs_as groups
    }
    Limits { cpu cpu_percent memory file_size open_files processes may_stay is_worker }
    ModuleTerms { build setup read write }
    Confinement { read write exec network }
    User { name uid gid home }
    Identity { uid gid groups home }
}

impl WireField for RunsAs {
    fn put(&self, to: &mut Vec<u8>) {
        match self {
            Self::User(user) => {
                0u8.put(to);
                user.put(to);
            }
            Self::Server(user) => {
                1u8.put(to);
                user.put(to);
            }
            Self::Owner {
                min_uid,
                min_gid,
                server,
            } => {
                2u8.put(to);
                (*min_uid, *min_gid).put(to);
                server.put(to);
            }
        }
    }
    fn take(from: &mut &[u8]) -> Option<Self> {
        Some(match u8::take(from)? {
            0 => Self::User(WireField::take(from)?),
            1 => Self::Server(WireField::take(from)?),
            2 => {
                let (min_uid, min_gid) = WireField::take(from)?;
                Self::Owner {
                    min_uid,
                    min_gid,
                    server: WireField::take(from)?,
                }
            }
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::spawner::tests::remit;

    fn all() -> Vec<Arc<Remit>> {
        let plain = remit("/srv/cgi-bin").terms;
        let user = User {
            name: c"alice".to_owned(),
            uid: 1001,
            gid: 1002,
            home: "/home/alice".into(),
        };
        let full = Terms {
            interpreters: Arc::new(vec![(".php".into(), "/usr/bin/php-cgi".into())]),
            variables: vec!["A".into()],
            constants: vec![("B".into(), "c=ä".into())],
            worker: Some(vec!["-x".into()]),
            warm: Some(vec![]),
            modules: Some(ModuleTerms {
                build: "1".into(),
                setup: vec![0, 255],
                read: vec!["/r".into()],
                write: vec![],
            }),
            limits: Limits {
                cpu: Some(1),
                cpu_percent: Some(50),
                memory: Some(u64::MAX),
                is_worker: true,
                ..Limits::default()
            },
            umask: 0o27,
            strict: Some(Arc::new(Confinement {
                exec: vec!["/opt".into()],
                network: Network::Out,
                ..Confinement::default()
            })),
            layout: Layout::Host,
            runs_as: RunsAs::User(user),
            ..plain.clone()
        };
        let server = Terms {
            sandbox: Sandbox::Off,
            runs_as: RunsAs::Server(crate::identity::current()),
            ..plain.clone()
        };
        let all = [plain, full, server].map(|terms| Arc::new(Remit::new(terms)));
        all.to_vec()
    }

    #[test]
    fn what_may_be_started_is_read_back() {
        let all = all();
        let back = read(write_file(&all).unwrap()).unwrap();
        assert_eq!(back, all);
        let digests = |all: &[Arc<Remit>]| all.iter().map(|r| r.digest()).collect::<Vec<_>>();
        assert_eq!(digests(&back), digests(&all));
        let mut bytes = Vec::new();
        all[1].terms.put(&mut bytes);
        for end in 0..bytes.len() {
            assert!(Terms::take(&mut &bytes[..end]).is_none(), "{end}");
        }
    }
}
