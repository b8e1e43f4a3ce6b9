//! The header of an ELF file, as far as `execve` depends on it (elf(5)).

use super::{
    access,
    finding::{Finding, Subject},
    format::has_other_formats,
};
use std::{ffi::OsStr, os::unix::ffi::OsStrExt, path::Path};

pub(super) const MAGIC: &[u8] = b"\x7fELF";

/// Machines whose programs run here: this machine's own, and its 32-bit sister, which most kernels still run.
#[cfg(target_arch = "x86_64")]
const MACHINES: [u16; 2] = [62, 3];
/// Machines whose programs run here: this machine's own, and its 32-bit sister, which most kernels still run.
#[cfg(target_arch = "aarch64")]
const MACHINES: [u16; 2] = [183, 40];

/// Part of an ELF header.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ElfHeader<'a> {
    little_endian: bool,
    /// e_type: 2 is a program, 3 a program at any address (or a library).
    kind: u16,
    machine: u16,
    /// PT_INTERP, the dynamic linker.
    pub(super) interpreter: Option<&'a [u8]>,
}

impl<'a> ElfHeader<'a> {
    /// Parses the header. `None`: the file, or the part of it in `head`, ends before data that its header refers to.
    pub(super) fn parse(head: &'a [u8]) -> Option<Self> {
        let wide = *head.get(4)? == 2;
        let little_endian = *head.get(5)? == 1;
        let at = |offset: usize, len: usize| parse_number(head, offset, len, little_endian);
        let (kind, machine) = (at(16, 2)? as u16, at(18, 2)? as u16);
        // Offsets of the fields, and the length of an address.
        let ([table, entry, count], [begin, length], word) = if wide {
            ([32, 54, 56], [8, 32], 8)
        } else {
            ([28, 42, 44], [4, 16], 4)
        };
        let (table, entry, count) = (at(table, word)?, at(entry, 2)?, at(count, 2)?);
        let mut interpreter = None;
        for n in 0..count {
            let start = usize::try_from(table.checked_add(n.checked_mul(entry)?)?).ok()?;
            const PT_INTERP: u64 = 3;
            if at(start, 4)? != PT_INTERP {
                continue;
            }
            let field = |offset| usize::try_from(at(start.checked_add(offset)?, word)?).ok();
            let (offset, len) = (field(begin)?, field(length)?);
            let bytes = head.get(offset..offset.checked_add(len)?)?;
            interpreter = bytes.split(|&b| b == 0).next();
        }
        Some(Self {
            little_endian,
            kind,
            machine,
            interpreter,
        })
    }

    fn is_ours(&self) -> bool {
        self.little_endian == cfg!(target_endian = "little") && MACHINES.contains(&self.machine)
    }
}

fn parse_number(bytes: &[u8], offset: usize, len: usize, little_endian: bool) -> Option<u64> {
    let bytes = bytes.get(offset..offset.checked_add(len)?)?;
    let push = |n: u64, b: &u8| n << 8 | u64::from(*b);
    Some(if little_endian {
        bytes.iter().rev().fold(0, push)
    } else {
        bytes.iter().fold(0, push)
    })
}

/// Returns the problem of the ELF file at `path` that begins with `head`.
pub(super) fn check_elf(subject: Subject<'_>, path: &Path, head: &[u8]) -> Option<Finding> {
    let Some(header) = ElfHeader::parse(head) else {
        // Headers beyond the bytes that were read are legal, but no linker makes such files.
        let whole = std::fs::metadata(path).is_ok_and(|m| m.len() <= head.len() as u64);
        return whole.then(|| {
            subject.failure(
                "is truncated: its header describes a longer file",
                "copy it again",
            )
        });
    };
    if !header.is_ours() {
        let (has, here) = (machine_name(header.machine), std::env::consts::ARCH);
        let says = format!("is built for {has}, and this machine is {here}");
        let finding = subject.failure(says, "build it here");
        return Some(Finding {
            fails: !has_other_formats(),
            ..finding
        });
    }
    if header.kind != 2 && header.kind != 3 {
        return Some(subject.failure("is an ELF file, but not a linked program", ""));
    }
    let name = header.interpreter?;
    let linker = Path::new(OsStr::from_bytes(name));
    let interpreter = Subject::Interpreter(name);
    let lacks = access::check_executable(interpreter, linker).err()?;
    let says = format!(
        "{}: {subject} was built for a system with another libc",
        lacks.says
    );
    Some(Finding {
        says,
        mend: "build it here, or link it statically".into(),
        fails: true,
    })
}

fn machine_name(number: u16) -> String {
    let name = match number {
        3 => "x86",
        8 => "MIPS",
        20 => "PowerPC",
        21 => "PowerPC 64",
        22 => "S/390",
        40 => "32-bit Arm",
        62 => "x86_64",
        183 => "aarch64",
        243 => "RISC-V",
        258 => "LoongArch",
        _ => return format!("another machine (ELF number {number})"),
    };
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::escape;

    /// This test binary itself, which is dynamically linked on every system that the tests run on.
    fn own() -> Vec<u8> {
        super::super::read_head(&std::env::current_exe().unwrap()).unwrap()
    }

    #[test]
    fn a_real_program_is_read_right() {
        let head = own();
        let header = ElfHeader::parse(&head).unwrap();
        assert!(header.is_ours() && header.kind == 3, "{header:?}");
        let interpreter = header.interpreter.unwrap();
        assert!(interpreter.starts_with(b"/lib"), "{}", escape(interpreter));
    }

    #[test]
    fn no_cut_and_no_flipped_byte_panics() {
        let head = own();
        for len in 0..head.len() {
            ElfHeader::parse(&head[..len]);
        }
        for at in 0..head.len().min(1024) {
            for byte in [0, 0x7f, 0xff] {
                let mut head = head.clone();
                head[at] = byte;
                ElfHeader::parse(&head);
            }
        }
    }
}
