//! The command line. Exit codes: 0 done, 1 something is wrong with what was asked for, 2 usage.

// What a person reads on a terminal is printed here and nowhere else.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod found;
mod serve;

use std::{path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand};

use crate::config::{Config, ConfigError, Listen};

/// Serves programs: copy one into cgi-bin/ and it is on the web, a process for each request.
#[derive(Debug, Parser)]
#[command(
    name = "galgo",
    version,
    disable_help_subcommand = true,
    max_term_width = 100
)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve a folder: DIR/cgi-bin/ at /cgi-bin/, DIR/public/ at /, or what DIR/galgo.toml says
    Serve(Serve),
    /// Print the version
    Version,
}

#[derive(Debug, clap::Args)]
struct Site {
    /// The folder to serve
    #[arg(default_value = ".")]
    dir: PathBuf,
    /// The configuration file [default: DIR/galgo.toml where there is one]
    #[arg(long, short, value_name = "FILE")]
    config: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
struct Serve {
    #[command(flatten)]
    site: Site,
    /// Where to listen, in place of the configuration: 127.0.0.1:8080, [::]:80, unix:/path; port 0 takes a free
    /// one; proxy+… demands the PROXY protocol [default: 127.0.0.1:8080]
    #[arg(long, short, value_name = "ADDR")]
    listen: Vec<Listen>,
    /// The user to become, when started as root: NAME or NAME:GROUP
    #[arg(long, short, value_name = "USER")]
    user: Option<String>,
}

impl Site {
    fn load(&self) -> Result<Config, ConfigError> {
        Config::for_dir(&self.dir, self.config.as_deref())
    }
}

/// Runs the command that the arguments name.
pub fn main() -> ExitCode {
    let done = match Args::parse().command {
        Command::Serve(args) => serve::serve(&args),
        Command::Version => {
            println!("galgo {}", env!("CARGO_PKG_VERSION"));
            Ok(ExitCode::SUCCESS)
        }
    };
    done.unwrap_or_else(|message| {
        eprintln!("galgo: {message}");
        ExitCode::FAILURE
    })
}
