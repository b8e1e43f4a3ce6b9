//! The environment of a program.

use std::{ffi::c_char, fmt, ptr};

/// The longest single string that `execve` takes, its NUL included: MAX_ARG_STRLEN with pages of 4 KiB.
pub const STRING_MAX: usize = 128 * 1024;

/// The environment of a process in the layout that `execve` takes: one `NAME=value\0` after another.
///
/// Names are unique: a later [`set_variable`](Self::set_variable) replaces an earlier value, as setenv(3) does. Therefore no two readers of an
/// environment can disagree about a value. Cloning copies two flat buffers.
#[derive(Clone, Default)]
pub struct EnvBlock {
    bytes: Vec<u8>,
    vars: Vec<Var>,
}

/// The place of a variable in the block.
#[derive(Debug, Clone, Copy)]
struct Var {
    start: usize,
    name: usize,
    /// Length with `=` and NUL.
    len: usize,
}

impl EnvBlock {
    /// Appends a variable, or replaces the variable of that name.
    ///
    /// An environment cannot express a name that is empty or holds `=` or NUL, or a value that holds NUL. Such a variable is
    /// left out whole, never cut.
    pub fn set_variable(&mut self, name: &[u8], value: &[u8]) {
        if name.is_empty() || name.contains(&b'=') || name.contains(&0) || value.contains(&0) {
            return;
        }
        if let Some(at) = self.find_variable(name) {
            self.remove(at);
        }
        let start = self.bytes.len();
        let len = name.len() + value.len() + 2;
        self.bytes.reserve(len);
        self.bytes.extend_from_slice(name);
        self.bytes.push(b'=');
        self.bytes.extend_from_slice(value);
        self.bytes.push(0);
        self.vars.push(Var {
            start,
            name: name.len(),
            len,
        });
    }

    /// Returns the block itself: one `NAME=value\0` after another.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the variables as (name, value), in the order of their first byte in the block.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.vars.iter().map(|v| self.name_and_value(v))
    }

    /// Returns the value of a variable.
    pub fn get_value(&self, name: &[u8]) -> Option<&[u8]> {
        self.find_variable(name)
            .map(|at| self.name_and_value(&self.vars[at]).1)
    }

    /// Returns the bytes of all variables, including `=`, NUL and a pointer for each. The kernel counts them so against its
    /// limit for `execve`: a quarter of RLIMIT_STACK, at most 6 MiB, at least 128 KiB.
    pub fn exec_size(&self) -> usize {
        self.bytes.len() + self.vars.len() * size_of::<*const c_char>()
    }

    /// Checks that no variable is longer than `execve` takes ([`STRING_MAX`]). The error names the first longer variable and
    /// its length.
    pub(crate) fn check_size(&self) -> Result<(), String> {
        let Some(long) = self.vars.iter().find(|v| v.len > STRING_MAX) else {
            return Ok(());
        };
        let (name, len) = (
            String::from_utf8_lossy(self.name_and_value(long).0),
            long.len,
        );
        Err(format!(
            "the variable {name} has {len} bytes; the limit is {STRING_MAX}"
        ))
    }

    /// Returns the array that `execve` takes; valid until the block changes.
    pub(crate) fn pointers(&self) -> Vec<*const c_char> {
        let base = self.bytes.as_ptr();
        self.vars
            .iter()
            .map(|v| base.wrapping_add(v.start).cast())
            .chain([ptr::null()])
            .collect()
    }

    fn name_and_value(&self, v: &Var) -> (&[u8], &[u8]) {
        let name = v.start..v.start + v.name;
        let value = name.end + 1..v.start + v.len - 1;
        (&self.bytes[name], &self.bytes[value])
    }

    fn find_variable(&self, name: &[u8]) -> Option<usize> {
        self.vars
            .iter()
            .position(|v| v.name == name.len() && self.bytes[v.start..].starts_with(name))
    }

    fn remove(&mut self, at: usize) {
        let gone = self.vars.remove(at);
        self.bytes.drain(gone.start..gone.start + gone.len);
        for v in &mut self.vars[at..] {
            v.start -= gone.len;
        }
    }
}

/// Shows names only: values may be secrets, and `{:?}` ends up in logs.
impl fmt::Debug for EnvBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set()
            .entries(self.iter().map(|(name, _)| String::from_utf8_lossy(name)))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(env: &EnvBlock) -> Vec<(&[u8], &[u8])> {
        env.iter().collect()
    }

    #[test]
    fn what_an_environment_cannot_say_is_left_out_whole() {
        let bad: [(&[u8], &[u8]); 5] = [
            (b"", b"x"),
            (b"A=B", b"x"),
            (b"A\0", b"x"),
            (b"A", b"x\0y"),
            (b"=", b""),
        ];
        for (name, value) in bad {
            let mut env = EnvBlock::default();
            env.set_variable(b"KEPT", b"1");
            env.set_variable(name, value);
            assert_eq!(all(&env), [(&b"KEPT"[..], &b"1"[..])], "{name:?}={value:?}");
        }
    }

    #[test]
    fn a_later_value_replaces_an_earlier_one() {
        let mut env = EnvBlock::default();
        for (n, v) in [
            ("A", "1"),
            ("AB", "2"),
            ("B", "=x="),
            ("A", "longer"),
            ("AB", ""),
        ] {
            env.set_variable(n.as_bytes(), v.as_bytes());
        }
        assert_eq!(
            all(&env),
            [
                (&b"B"[..], &b"=x="[..]),
                (&b"A"[..], &b"longer"[..]),
                (&b"AB"[..], &b""[..])
            ]
        );
        assert_eq!(env.get_value(b"A"), Some(&b"longer"[..]));
        assert_eq!(env.get_value(b"C"), None);
        assert_eq!(env.bytes, b"B==x=\0A=longer\0AB=\0");
        assert_eq!(env.exec_size(), 19 + 3 * 8);
    }

    #[test]
    fn the_kernels_limit_for_one_string_is_known_to_the_byte() {
        let mut env = EnvBlock::default();
        env.set_variable(b"HTTP_COOKIE", &vec![b'x'; STRING_MAX - 13]);
        assert_eq!(env.check_size(), Ok(()));
        env.set_variable(b"HTTP_COOKIE", &vec![b'x'; STRING_MAX - 12]);
        let why = "the variable HTTP_COOKIE has 131073 bytes; the limit is 131072";
        assert_eq!(env.check_size(), Err(why.to_owned()));
    }

    #[test]
    fn debug_shows_no_value() {
        let mut env = EnvBlock::default();
        env.set_variable(b"HTTP_AUTHORIZATION", b"Basic c2VjcmV0");
        assert_eq!(format!("{env:?}"), r#"{"HTTP_AUTHORIZATION"}"#);
    }
}
