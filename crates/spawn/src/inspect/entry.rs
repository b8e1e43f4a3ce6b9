//! Checks whether a linked program reaches its `main` through the C library, where it can be stopped. A program that Go itself
//! links, or that brings its own `_start`, would run to its end.

use std::{fs::File, io, os::unix::fs::FileExt, path::Path};

/// Bytes of symbol names that are read. A program with more is a large interpreter, not a program of a site.
const NAMES_MAX: u64 = 16 << 20;
const SEGMENTS_MAX: u64 = 64;

/// The first bytes of glibc's `_start` (crt1.o): an optional mark of a jump's target, then the code. Last, the ELF machine.
#[cfg(target_arch = "x86_64")]
const START: (&[u8], &[u8], u64) = (
    b"\xf3\x0f\x1e\xfa",
    b"\x31\xed\x49\x89\xd1\x5e\x48\x89\xe2\x48\x83\xe4\xf0\x50\x54",
    62,
);
/// The first bytes of glibc's `_start` (crt1.o): an optional mark of a jump's target, then the code. Last, the ELF machine.
#[cfg(target_arch = "aarch64")]
const START: (&[u8], &[u8], u64) = (
    b"\x5f\x24\x03\xd5",
    b"\x1d\x00\x80\xd2\x1e\x00\x80\xd2\xe5\x03\x00\xaa\xe1\x03\x40\xf9\xe2\x23\x00\x91\xe6\x03\x00\x91",
    183,
);

/// Returns whether the ELF file at `path` is built for this machine and enters the C library first. With `imports`, it must
/// also import the function that calls `main`.
///
/// # Errors
/// The file cannot be read; [`io::ErrorKind::UnexpectedEof`]: the file ends before data that its headers refer to.
pub(super) fn is_of_libc(path: &Path, imports: bool) -> io::Result<bool> {
    let elf = Elf(File::open(path)?);
    let (mark, start, machine) = START;
    let wide = elf.read_number(4, 1)? == 2;
    if !wide || elf.read_number(18, 2)? != machine {
        return Ok(false);
    }
    let segments = elf.read_segments()?;
    let entry = elf.read_number(24, 8)?;
    let Some(entry) = segments.iter().find_map(|s| s.file_offset(entry)) else {
        return Ok(false);
    };
    let code = elf.read_bytes(entry, mark.len() + start.len())?;
    if !code.strip_prefix(mark).unwrap_or(&code).starts_with(start) {
        return Ok(false);
    }
    Ok(!imports
        || elf
            .read_symbol_names(&segments)?
            .split(|&b| b == 0)
            .any(|name| name == b"__libc_start_main"))
}

struct Elf(File);

/// A program header.
struct Segment {
    kind: u64,
    offset: u64,
    address: u64,
    size: u64,
}

impl Segment {
    const LOAD: u64 = 1;
    const DYNAMIC: u64 = 2;

    /// Returns the place of an address in the file.
    fn file_offset(&self, address: u64) -> Option<u64> {
        let within = address.checked_sub(self.address)?;
        (self.kind == Self::LOAD && within < self.size).then(|| self.offset.checked_add(within))?
    }
}

impl Elf {
    fn read_bytes(&self, at: u64, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.0.read_exact_at(&mut bytes, at)?;
        Ok(bytes)
    }

    fn read_number(&self, at: u64, length: usize) -> io::Result<u64> {
        Ok(parse_number(&self.read_bytes(at, length)?))
    }

    fn read_segments(&self) -> io::Result<Vec<Segment>> {
        let (table, size, count) = (
            self.read_number(32, 8)?,
            self.read_number(54, 2)?,
            self.read_number(56, 2)?,
        );
        let segment = |n: u64| {
            let at = table
                .checked_add(n * size)
                .ok_or(io::ErrorKind::UnexpectedEof)?;
            let field = |offset: u64, length| self.read_number(at.saturating_add(offset), length);
            Ok(Segment {
                kind: field(0, 4)?,
                offset: field(8, 8)?,
                address: field(16, 8)?,
                size: field(32, 8)?,
            })
        };
        (0..count.min(SEGMENTS_MAX)).map(segment).collect()
    }

    /// Reads the names of all symbols that the program shares with libraries (DT_STRTAB).
    fn read_symbol_names(&self, segments: &[Segment]) -> io::Result<Vec<u8>> {
        const STRTAB: u64 = 5;
        const STRSZ: u64 = 10;
        let (mut address, mut size) = (0, 0);
        let dynamic = segments.iter().find(|s| s.kind == Segment::DYNAMIC);
        if let Some(dynamic) = dynamic {
            let length = usize::try_from(dynamic.size.min(1 << 16)).unwrap_or(0);
            for pair in self.read_bytes(dynamic.offset, length)?.chunks_exact(16) {
                let (tag, value) = pair.split_at(8);
                match parse_number(tag) {
                    STRTAB => address = parse_number(value),
                    STRSZ => size = parse_number(value),
                    _ => {}
                }
            }
        }
        let at = segments
            .iter()
            .find_map(|s| s.file_offset(address))
            .unwrap_or(0);
        self.read_bytes(at, usize::try_from(size.min(NAMES_MAX)).unwrap_or(0))
    }
}

/// Reads a number with the lowest byte first, as both supported machines store it.
fn parse_number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn compiled(source: &str, flags: &[&str]) -> bool {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("p.c"), folder.path().join("p"));
        std::fs::write(&from, source).unwrap();
        let status = Command::new("cc")
            .arg("-o")
            .arg(&to)
            .arg(&from)
            .args(flags)
            .status();
        assert!(status.unwrap().success());
        is_of_libc(&to, true).unwrap()
    }

    #[test]
    fn the_way_to_main_is_known() {
        let main = "int main(void) { return 0; }";
        for flags in [
            &["-pie", "-fPIE"][..],
            &["-no-pie"],
            &["-O2", "-s"],
            &["-pg"],
        ] {
            assert!(compiled(main, flags), "{flags:?}");
        }
        // The first program imports the function but begins elsewhere; the second neither imports it nor begins in libc.
        let own = "int main(void); extern int __libc_start_main(void *, int, char **); \
                   void _start(void) { main(); __libc_start_main((void *)main, 0, 0); } int main(void) { return 0; }";
        assert!(!compiled(own, &["-nostartfiles", "-w"]));
        let none = "#include <stdlib.h>\nvoid begin(void) { exit(0); }";
        assert!(!compiled(none, &["-nostartfiles", "-Wl,-e,begin"]));
        assert!(is_of_libc(&std::env::current_exe().unwrap(), true).unwrap());
    }

    #[test]
    fn no_cut_panics() {
        let folder = tempfile::tempdir().unwrap();
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        for length in (0..4096).step_by(13) {
            let cut = folder.path().join("cut");
            std::fs::write(&cut, &own[..length]).unwrap();
            assert!(!is_of_libc(&cut, true).unwrap_or(false), "{length}");
        }
    }
}
