//! Finds shared libraries that a program needs and the system lacks.

use super::{elf::ElfHeader, finding::Finding, format::read_head};
use crate::words::escape;
use std::{
    ffi::OsStr,
    fs,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::Path,
    process::{Command, Output, Stdio},
};

/// Returns the libraries that the program's dynamic linker reports as missing.
pub(super) fn find_missing(path: &Path) -> Vec<Finding> {
    run_linker(path).map_or_else(Vec::new, |told| {
        parse_complaints(&told.stdout, &told.stderr)
    })
}

/// Returns the linker's output. `None`: the program is no dynamic ELF file, or its linker must not be run.
fn run_linker(path: &Path) -> Option<Output> {
    let head = read_head(path).ok()?;
    let linker = Path::new(OsStr::from_bytes(ElfHeader::parse(&head)?.interpreter?));
    if !is_systems_own(linker) {
        return None;
    }
    let mut list = Command::new(linker);
    list.arg("--list").arg(path).env_clear();
    list.stdin(Stdio::null()).output().ok()
}

/// Returns whether only root could have put this linker there. The name comes from the program, and the program's author must
/// not choose what `galgo check` runs.
fn is_systems_own(linker: &Path) -> bool {
    const PLACES: [&str; 4] = ["/usr/lib", "/lib", "/nix/store", "/gnu/store"];
    let Ok(real) = linker.canonicalize() else {
        return false;
    };
    let text = real.to_string_lossy();
    PLACES.iter().any(|p| text.starts_with(p))
        && real
            .file_name()
            .is_some_and(|n| n.as_bytes().starts_with(b"ld"))
        && fs::metadata(&real).is_ok_and(|m| m.uid() == 0 && m.mode() & 0o022 == 0)
}

/// Reads the messages of glibc's and musl's linkers.
fn parse_complaints(stdout: &[u8], stderr: &[u8]) -> Vec<Finding> {
    let lines = [stdout, stderr].into_iter();
    let lines = lines.flat_map(|told| told.split(|&b| b == b'\n'));
    let mut names: Vec<String> = Vec::new();
    for line in lines {
        let line = escape(line.trim_ascii());
        let glibc = line.strip_suffix("=> not found").map(str::trim);
        // If a library is named by its path, glibc prints: "PROGRAM: error while loading shared libraries: PATH: cannot open …"
        let named = [
            "Error loading shared library ",
            "error while loading shared libraries: ",
        ]
        .iter()
        .find_map(|said| line.split_once(said))
        .and_then(|(_, rest)| rest.split(':').next());
        // "…: version `GLIBC_2.38' not found (required by …)"
        let version = line
            .split("version `")
            .nth(1)
            .and_then(|rest| rest.split('\'').next());
        if let Some(name) = glibc.or(version).or(named)
            && !names.iter().any(|n| n == name)
        {
            names.push(name.to_owned());
        }
    }
    let finding = |name: String| Finding {
        says: format!("the shared library `{name}` is missing"),
        mend: "install the package that holds it".into(),
        fails: true,
    };
    names.into_iter().map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_linkers_are_understood() {
        let glibc = b"\tlinux-vdso.so.1 (0x7)\n\tlibnone.so.3 => not found\n\
                      \tlibc.so.6 => /lib/libc.so.6 (0x7)\n\tlibnone.so.3 => not found\n";
        let version =
            b"/srv/a: /lib/libc.so.6: version `GLIBC_2.99' not found (required by /srv/a)\n";
        let musl =
            b"Error loading shared library libnone.so.3: No such file or directory (needed by a)\n";
        let says = |out: &[u8], err: &[u8]| -> Vec<String> {
            parse_complaints(out, err)
                .into_iter()
                .map(|f| f.says)
                .collect()
        };
        let path =
            b"a: error while loading shared libraries: /o/libnone.so.3: cannot open shared\n";
        assert_eq!(
            says(b"", path),
            ["the shared library `/o/libnone.so.3` is missing"]
        );
        let lib = ["the shared library `libnone.so.3` is missing"];
        assert_eq!(says(glibc, b""), lib);
        assert_eq!(says(b"", musl), lib);
        assert_eq!(
            says(b"", version),
            ["the shared library `GLIBC_2.99` is missing"]
        );
    }

    #[test]
    fn a_linker_of_the_programs_own_is_not_run() {
        let dir = tempfile::tempdir().unwrap();
        let own = dir.path().join("ld.so");
        fs::write(&own, "").unwrap();
        assert!(!is_systems_own(&own));
        assert!(!is_systems_own(Path::new("/usr/bin/env")));
        let exe = read_head(&std::env::current_exe().unwrap()).unwrap();
        let linker = ElfHeader::parse(&exe).and_then(|h| h.interpreter).unwrap();
        assert!(is_systems_own(Path::new(OsStr::from_bytes(linker))));
    }
}
