//! Tests of the configuration.

mod bad;
mod example;
mod good;
mod include;
mod tls;

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use crate::{config::*, config_text::config_error::ConfigError};

/// Makes a folder with `cgi-bin/hello`, `cgi-bin/a.wasm`, `public/index.html`, `pixel.gif` and `run`, an executable.
fn site() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    fs::create_dir_all(path.join("public/programs")).unwrap();
    fs::create_dir(path.join("cgi-bin")).unwrap();
    fs::write(path.join("public/index.html"), "hello").unwrap();
    fs::write(path.join("pixel.gif"), "GIF89a").unwrap();
    fs::write(path.join("cgi-bin/a.wasm"), "").unwrap();
    for program in ["cgi-bin/hello", "run"] {
        fs::write(path.join(program), "#!/bin/sh\n").unwrap();
        fs::set_permissions(path.join(program), fs::Permissions::from_mode(0o755)).unwrap();
    }
    dir
}

fn parse(dir: &Path, source: &str) -> Result<Config, ConfigError> {
    Config::parse(source, &dir.join("galgo.toml"))
}
