//! The arguments of `galgo run`.

use std::{ffi::OsString, path::PathBuf};

use clap::ValueEnum;

#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// The program
    pub(super) program: PathBuf,
    /// The method [default: GET, or POST with a body]
    #[arg(short = 'X', long, value_name = "METHOD")]
    pub(super) method: Option<String>,
    /// What stands behind the ? of a URL
    #[arg(short, long, value_name = "QUERY", allow_hyphen_values = true)]
    pub(super) query: Option<String>,
    /// A header field, 'Name: value'; repeatable
    #[arg(short = 'H', long = "header", value_name = "FIELD", value_parser = parse_field)]
    pub(super) headers: Vec<(String, String)>,
    /// The request body; @- is standard input
    #[arg(short, long, value_name = "BODY|@FILE", allow_hyphen_values = true)]
    pub(super) data: Option<OsString>,
    /// PATH_INFO: what follows the name in the URL
    #[arg(long, value_name = "PATH")]
    pub(super) path_info: Option<String>,
    /// Say how long it took and what it used
    #[arg(long)]
    pub(super) time: bool,
    /// What to print: response (the default) or body
    #[arg(short, long, value_name = "WHAT", value_enum, hide_possible_values = true, hide_default_value = true, default_value_t = Show::Response)]
    pub(super) output: Show,
    /// The configuration that has a route for it
    #[arg(long, short, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Show {
    /// Status line, header fields and body
    Response,
    /// The body; status line and fields go to standard error
    Body,
}

/// Reads `Name: value`.
fn parse_field(typed: &str) -> Result<(String, String), String> {
    let Some((name, value)) = typed.split_once(':') else {
        return Err("a header field is written 'Name: value'".into());
    };
    if typed.contains(['\r', '\n']) {
        return Err("a header field is one line".into());
    }
    Ok((name.into(), value.trim().into()))
}
