//! Programs that are broken in every way we know, the kernel's errors for them, and our diagnosis.
#![allow(clippy::unwrap_used)]

mod scene;

use galgo_spawn::{
    EnvBlock, StartError, StartStage,
    inspect::{check_program, check_source, diagnose},
};
use scene::Scene;
use std::{
    fs::{self, Permissions},
    io,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
};

const PATH: &str = "/usr/bin:/bin";

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }
    fn file(&self, name: &str, mode: u32, bytes: &[u8]) -> PathBuf {
        let path = self.0.path().join(name);
        fs::write(&path, bytes).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        path
    }
    /// Compiles a program with the system's C compiler.
    fn compiled(&self, name: &str, source: &str, flags: &[&str]) -> PathBuf {
        galgo_testkit::file::compile(self.0.path(), name, source, flags)
    }
}

/// Starts the program, which must fail. Returns the diagnosis.
fn fails(path: &Path) -> String {
    let mut scene = Scene::new();
    scene.env = EnvBlock::default();
    loop {
        let e = scene.start(path, &["x"]).map(|_| ()).unwrap_err();
        if !e.is_busy() {
            return diagnose(path, PATH, &e);
        }
    }
}

fn says(path: &Path) -> Vec<String> {
    check_program(path, PATH)
        .into_iter()
        .map(|f| f.to_string())
        .collect()
}

/// Names, modes and contents of files, with the reason why each is refused.
const REFUSED: [(&str, u32, &[u8], &str); 12] = [
    (
        "plain",
        0o644,
        b"#!/bin/sh\n",
        "the program is not executable (try: chmod +x ",
    ),
    ("empty", 0o755, b"", "the program is an empty file"),
    (
        "text",
        0o755,
        b"echo hello\n",
        "the program has no `#!` line",
    ),
    (
        "binary",
        0o755,
        b"\0\x01\x02\x03",
        "the program is neither a script nor a program for",
    ),
    (
        "module",
        0o755,
        b"\0asm\x01\0\0\0",
        "the program is a WebAssembly module: its name has to end in .wasm (try: mv ",
    ),
    (
        "bare",
        0o755,
        b"#!\n",
        "the program names no interpreter after `#!`",
    ),
    (
        "lost",
        0o755,
        b"#!/no/such\n",
        "interpreter `/no/such` does not exist",
    ),
    (
        "cr",
        0o755,
        b"#!/usr/bin/python3\r\nprint()\r\n",
        "interpreter `/usr/bin/python3\\r` does not exist: the first line ends in a carriage \
             return (try: sed -i 's/\\r$//' ",
    ),
    (
        "bom",
        0o755,
        b"\xef\xbb\xbf#!/bin/sh\n",
        "the program begins with a byte order mark",
    ),
    (
        "folder",
        0o755,
        b"#!/usr\n",
        "interpreter `/usr` is a folder",
    ),
    (
        "data",
        0o755,
        b"#!/etc/passwd\n",
        "interpreter `/etc/passwd` is not executable (try: ",
    ),
    (
        "relative",
        0o755,
        b"#!nowhere\n",
        "interpreter `nowhere` does not exist",
    ),
];

#[test]
fn what_the_kernel_refuses_is_named() {
    let dir = Folder::new();
    let long = format!("#!/{}\n", "x".repeat(300));
    let ok = fs::read("/bin/true").unwrap();
    let mut foreign = ok.clone();
    foreign[18..20].copy_from_slice(&[243, 0]);
    let mut object = ok.clone();
    object[16] = 1;
    let linker = ok
        .windows(6)
        .position(|w| w == b"/lib64" || w == b"/lib/l")
        .unwrap();
    let mut lost = ok;
    lost[linker..linker + 4].copy_from_slice(b"/lob");
    let made: [(&str, u32, &[u8], &str); 4] = [
        (
            "long",
            0o755,
            long.as_bytes(),
            "the program has a `#!` line longer than the 255 bytes",
        ),
        (
            "foreign",
            0o755,
            &foreign,
            "the program is built for RISC-V, and this machine is ",
        ),
        (
            "object",
            0o755,
            &object,
            "the program is an ELF file, but not a linked program",
        ),
        ("linker", 0o755, &lost, "interpreter `/lob"),
    ];
    for (name, mode, bytes, expected) in REFUSED.into_iter().chain(made) {
        let path = dir.file(name, mode, bytes);
        let text = fails(&path);
        assert!(text.starts_with(expected), "{name}: {text}");
        assert_eq!(says(&path), [text], "{name}: `check` agrees");
        assert!(check_program(&path, PATH)[0].fails, "{name}");
    }
    let folder = dir.0.path();
    assert_eq!(fails(folder), "the program is a folder");
    assert_eq!(fails(&folder.join("nothing")), "the program does not exist");
    symlink("/no/such", folder.join("link")).unwrap();
    assert!(fails(&folder.join("link")).starts_with("the program is a symbolic link to /no/such"));
}

#[test]
fn what_fails_after_the_start_is_found_by_check() {
    let dir = Folder::new();
    let table: [(&[u8], &str); 6] = [
        (
            b"#!/usr/bin/env python3\r\n",
            "interpreter `/usr/bin/env` is given the argument `python3\\r`: the first line ends in",
        ),
        (
            b"#!/bin/sh -e\r\n",
            "interpreter `/bin/sh` is given the argument `-e\\r`",
        ),
        (
            b"#!/usr/bin/env no-such-program\n",
            "interpreter `no-such-program` is not in the PATH of programs, /usr/bin:/bin",
        ),
        (
            b"#!/usr/bin/env sh -e\n",
            "interpreter `env` looks for one program named `sh -e` (try: #!/usr/bin/env -S sh -e)",
        ),
        (
            b"#!/usr/bin/env -S A=1 no-such -e\n",
            "interpreter `no-such` is not in the PATH",
        ),
        (
            b"#!/usr/bin/env\n",
            "interpreter `env` is given no program to run",
        ),
    ];
    for (bytes, expected) in table {
        let path = dir.file("script", 0o755, bytes);
        let found = check_program(&path, PATH);
        assert!(found.len() == 1 && found[0].fails, "{found:?}");
        assert!(found[0].to_string().starts_with(expected), "{}", found[0]);
    }
}

#[test]
fn a_good_program_is_left_alone() {
    let dir = Folder::new();
    for bytes in [
        &b"#!/bin/sh\n"[..],
        b"#!/bin/sh",
        b"#! /bin/sh -e \nexit 0",
        b"#!/usr/bin/env sh\n",
        b"#!/usr/bin/env -S sh -e\n",
        b"#!/usr/bin/env -S A=1 sh\n",
        b"#!/usr/bin/env -i sh\n",
    ] {
        assert_eq!(
            says(&dir.file("script", 0o755, bytes)),
            [""; 0],
            "{bytes:?}"
        );
    }
    let chain = dir.file("first", 0o755, b"#!/bin/sh\n");
    let line = format!("#!{}\n", chain.display());
    assert_eq!(says(&dir.file("second", 0o755, line.as_bytes())), [""; 0]);
    assert_eq!(
        says(&dir.compiled("c", "int main(void){return 0;}", &[])),
        [""; 0]
    );
    assert_eq!(says(&std::env::current_exe().unwrap()), [""; 0]);
}

#[test]
fn an_interpreter_of_253_bytes_is_the_longest() {
    let dir = Folder::new();
    let folder = dir.0.path().to_str().unwrap();
    for (len, starts) in [(253, true), (254, false)] {
        let name = format!("{folder}/{}", "x".repeat(len - folder.len() - 1));
        symlink("/bin/true", &name).unwrap();
        let path = dir.file("script", 0o755, format!("#!{name}\n").as_bytes());
        assert_eq!(says(&path).is_empty(), starts, "{len}");
        if starts {
            let started = Scene::new().start(&path, &["x"]);
            assert!(started.is_ok() || started.is_err_and(|e| e.is_busy()));
        } else {
            assert!(fails(&path).contains("longer than"));
        }
    }
}

#[test]
fn a_missing_shared_library_is_found_without_running_the_program() {
    let dir = Folder::new();
    let library = dir.compiled(
        "libgone.so",
        "int gone(void){return 1;}",
        &["-shared", "-fPIC"],
    );
    let source = "#include <stdio.h>\nint gone(void);\n\
                  __attribute__((constructor)) static void early(void){fopen(\"ran\", \"w\");}\n\
                  int main(void){return gone();}";
    let folder = dir.0.path().display();
    let flags = [
        format!("-L{folder}"),
        "-lgone".into(),
        format!("-Wl,-rpath,{folder}"),
    ];
    let path = dir.compiled("needs", source, &flags.each_ref().map(String::as_str));
    assert_eq!(says(&path), [""; 0]);
    fs::remove_file(&library).unwrap();
    let found = says(&path);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].starts_with("the shared library `libgone.so` is missing"),
        "{found:?}"
    );
    assert!(!Path::new("ran").exists());
}

#[test]
fn who_else_may_write_is_a_warning() {
    let dir = Folder::new();
    let path = dir.file("open", 0o757, b"#!/bin/sh\n");
    let found = check_program(&path, PATH);
    assert!(
        found[0].says == "the program is writable by others" && !found[0].fails,
        "{found:?}"
    );
    let path = dir.file("open", 0o755, b"#!/bin/sh\n");
    fs::set_permissions(dir.0.path(), Permissions::from_mode(0o777)).unwrap();
    let found = check_program(&path, PATH);
    let expected = format!(
        "the folder {} is writable by others",
        dir.0.path().display()
    );
    assert!(found.len() == 1 && found[0].says == expected, "{found:?}");
    fs::set_permissions(dir.0.path(), Permissions::from_mode(0o1777)).unwrap();
    assert_eq!(check_program(&path, PATH), [], "sticky");
}

#[test]
fn a_source_file_needs_no_executable_bit() {
    let dir = Folder::new();
    assert_eq!(check_source(&dir.file("page.php", 0o644, b"<?php ?>")), []);
    assert_eq!(
        check_source(&dir.file("page.php", 0o646, b"<?php ?>")).len(),
        1
    );
    assert!(check_source(&dir.0.path().join("none.php"))[0].fails);
}

#[test]
fn other_stages_speak_for_themselves() {
    let error = |stage, errno| StartError {
        stage,
        source: io::Error::from_raw_os_error(errno),
    };
    let path = Path::new("/bin/sh");
    assert!(
        diagnose(path, PATH, &error(StartStage::Clone, libc::EAGAIN))
            .contains("creating a process")
    );
    assert!(
        diagnose(path, PATH, &error(StartStage::Chdir, libc::ENOENT)).contains("working directory")
    );
    assert!(diagnose(path, PATH, &error(StartStage::Exec, libc::ETXTBSY)).contains("rename it"));
    assert!(diagnose(path, PATH, &error(StartStage::Exec, libc::EACCES)).contains("noexec"));
}
