//! Compiles the shim that is preloaded into templates; the library holds its bytes.

use std::{env, error::Error, path::PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=shim");
    let out = PathBuf::from(env::var("OUT_DIR")?).join("shim.so");
    let mut sources: Vec<PathBuf> = std::fs::read_dir("shim")?
        .map(|entry| entry.map(|e| e.path()))
        .collect::<Result<_, _>>()?;
    sources.retain(|path| path.extension().is_some_and(|e| e == "c"));
    sources.sort();
    let compiler = cc::Build::new()
        .opt_level(2)
        .pic(true)
        .debug(false)
        .try_get_compiler()?;
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
        .arg(&out)
        .args(&sources)
        .arg("-ldl")
        .status()?;
    if !status.success() {
        return Err("the shim for templates (crates/spawn/shim) did not compile".into());
    }
    Ok(())
}
