//! Compiles the shims that are preloaded into templates, one for each kind; the library holds their bytes.

use std::{env, error::Error, fs, path::Path};

/// A kind's name (`template::Kind`) and its sources beside what all have: a preloaded name stands before the program's own, so a program
/// has none that its kind does not need.
const SHIMS: [(&str, &[&str]); 6] = [
    ("elf", &[]),
    ("perl", &["heap", "pages", "perl"]),
    ("python", &["heap", "pages", "python", "python_command"]),
    ("ruby", &["ruby"]),
    ("php", &["heap", "libraries", "pages", "php", "php_compile"]),
    ("node", &["node", "node_end", "node_loop", "node_threads"]),
];
const SHARED: [&str; 3] = ["early", "fork", "template"];
/// The parts of the Python shim that are not C, one behind the other in one namespace.
const PYTHON: [&str; 3] = ["python", "python_imports", "python_child"];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=shim");
    let out = env::var("OUT_DIR")?;
    let parts = PYTHON.map(|name| fs::read_to_string(format!("shim/{name}.py")));
    let parts = parts.into_iter().collect::<Result<Vec<_>, _>>()?;
    fs::write(Path::new(&out).join("python.py"), parts.join("\n\n"))?;
    let compiler = cc::Build::new()
        .opt_level(2)
        .pic(true)
        .debug(false)
        .try_get_compiler()?;
    for (kind, own) in SHIMS {
        let sources = SHARED.iter().chain(own);
        let status = compiler
            .to_command()
            .args([
                "-shared",
                "-fvisibility=hidden",
                "-std=gnu11",
                "-Wall",
                "-Wextra",
                "-Werror",
            ])
            // Nothing of the shim is bound lazily in a child, and nothing of it can be written to.
            .args([
                "-Wl,-z,now",
                "-Wl,-z,relro",
                "-Wl,-soname,galgo-shim.so",
                "-s",
                "-o",
            ])
            .arg(Path::new(&out).join(format!("{kind}.so")))
            .args(sources.map(|name| format!("shim/{name}.c")))
            .arg("-ldl")
            .status()?;
        if !status.success() {
            return Err(format!(
                "the shim for templates of {kind} (crates/spawn/shim) did not compile"
            )
            .into());
        }
    }
    Ok(())
}
