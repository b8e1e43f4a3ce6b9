//! Turns bytes of others into words for people: escaped for a terminal and a log, quoted for a shell.

use std::{os::unix::ffi::OsStrExt, path::Path};

use crate::exit::Status;

/// Returns whether a character is escaped: control characters, line separators, and characters that change the direction of
/// text, which can make a name look like another (Unicode Standard Annex 9, 2).
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{61c}'
                | '\u{200e}'
                | '\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2066}'..='\u{2069}'
        )
}

/// Makes `bytes` safe for a terminal and a log: characters that [`is_hidden`] names become `\u{1b}` or `\n`, bytes that are not
/// UTF-8 become `\xNN`. Tabs stay.
pub fn escape(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\t' => out.push(c),
                c if is_hidden(c) => out.extend(c.escape_default()),
                c => out.push(c),
            }
        }
        for b in chunk.invalid() {
            out.push_str(&format!("\\x{b:02x}"));
        }
    }
    out
}

/// Returns a file's name for a person.
pub fn escape_path(path: &Path) -> String {
    escape(path.as_os_str().as_bytes())
}

/// Returns a file's name as an argument of a shell's command: unchanged if it is plain, else in single quotes. If [`escape`]
/// would change it, `$'…'` holds its bytes (POSIX.1-2024, 2.2.4; bash, zsh, ksh and BusyBox know it).
pub fn shell_argument(path: &Path) -> String {
    let bytes = path.as_os_str().as_bytes();
    let plain = |b: &u8| b.is_ascii_alphanumeric() || b"/._-+,:@%".contains(b);
    // Without `./` a command would take the file `-x` for an option.
    let here = if bytes.starts_with(b"-") { "./" } else { "" };
    if !bytes.is_empty() && bytes.iter().all(plain) {
        return format!("{here}{}", escape(bytes));
    }
    let shown = escape(bytes);
    if shown.as_bytes() == bytes && !bytes.contains(&b'\t') {
        return format!("'{here}{}'", shown.replace('\'', r"'\''"));
    }
    let mut out = format!("$'{here}");
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\'' | '\\' => out.extend(['\\', c]),
                c if is_hidden(c) => push_octal(&mut out, c.encode_utf8(&mut [0; 4]).as_bytes()),
                c => out.push(c),
            }
        }
        push_octal(&mut out, chunk.invalid());
    }
    out.push('\'');
    out
}

fn push_octal(out: &mut String, bytes: &[u8]) {
    for b in bytes {
        out.push_str(&format!("\\{b:03o}"));
    }
}

/// Describes how a process ended, in words: "with status 3", "by signal 11 (SIGSEGV)".
pub fn describe_status(status: Status) -> String {
    match status {
        Status::Code(code) => format!("with status {code}"),
        Status::Signal(n) => format!("by signal {n}{}", signal_name(n)),
    }
}

/// Returns the names of the signals that programs usually die of (signal(7)).
fn signal_name(n: i32) -> &'static str {
    match n {
        4 => " (SIGILL)",
        6 => " (SIGABRT)",
        7 => " (SIGBUS)",
        8 => " (SIGFPE)",
        9 => " (SIGKILL: a limit, or the system ran out of memory)",
        11 => " (SIGSEGV)",
        15 => " (SIGTERM)",
        24 => " (SIGXCPU: its limit of CPU time)",
        25 => " (SIGXFSZ: its limit of file size)",
        31 => " (SIGSYS: a system call that its sandbox forbids, such as one of a 32-bit program)",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{ffi::OsStr, process::Command};

    #[test]
    fn nothing_that_moves_or_hides_text_passes() {
        for (bytes, want) in [
            (&b"\x1b[31mred\x07\xff"[..], "\\u{1b}[31mred\\u{7}\\xff"),
            (b"a\tb\nc\r", "a\tb\\nc\\r"),
            ("\u{85}\u{9b}2J".as_bytes(), "\\u{85}\\u{9b}2J"),
            ("ä\u{202e}gpj.exe".as_bytes(), "ä\\u{202e}gpj.exe"),
        ] {
            assert_eq!(escape(bytes), want);
        }
        let bidi = "\u{61c}\u{200e}\u{200f}\u{202a}\u{202b}\u{202c}\u{202d}\u{202e}\u{2066}\u{2067}\u{2068}\u{2069}";
        assert!(escape(bidi.as_bytes()).is_ascii());
    }

    /// A shell turns the argument into the same name again, and nothing else happens.
    #[test]
    fn a_shell_reads_the_name_back() {
        let names: [&[u8]; 12] = [
            b"/srv/cgi-bin/a.py",
            b"a b",
            b"it's",
            b"$(touch pwned)`id`;rm -rf \"x\"",
            b"-rf",
            b"~root",
            b"*",
            b"esc\x1b]0;x\x07'\\033",
            b"line\nline",
            b"\xff\xfe",
            "\u{202e}txt.exe ä".as_bytes(),
            b"tab\there",
        ];
        for name in names {
            let argument = shell_argument(Path::new(OsStr::from_bytes(name)));
            assert_eq!(escape(argument.as_bytes()), argument);
            let told = Command::new("bash")
                .args(["-c", &format!("printf %s {argument}")])
                .output()
                .unwrap();
            let told = told.stdout.strip_prefix(b"./").unwrap_or(&told.stdout);
            assert_eq!(told, name, "{argument}");
        }
    }
}
