//! The command line. Exit codes: 0 done, 1 the command failed or found errors, 2 the command line is wrong.
//!
//! | module | holds |
//! |---|---|
//! | `serve`, `check`, `passwd` | one command each (`galgo run` is the module `run`) |
//! | `help` | help texts besides the list of options |
//! | `listen` | the addresses to listen on |
//! | `url` | `check --url` |
//! | `exposed` | files that every client may read but hardly should |
//! | `certificates` | the certificates that clients get |

// Text for a person at a terminal is printed here, in `command` and in `run`, and nowhere else.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod asked;
mod certificates;
mod check;
mod exposed;
mod help;
mod listen;
mod passwd;
mod serve;
mod url;

use std::{path::PathBuf, process::ExitCode};

use galgo_spawn::{trusted_path::starter, words};

use clap::{Parser, Subcommand, error::ErrorKind};

use crate::command::site_folder::SiteArgs;

/// A web server for cgi-bin: copy a program into a folder and it is on the web.
#[derive(Debug, Parser)]
#[command(
    name = "galgo",
    version,
    after_help = help::GALGO,
    subcommand_required = true,
    arg_required_else_help = true
)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve a folder of programs and files
    #[command(help_template = help::SERVE_PAGE, after_help = help::SERVE)]
    Serve(serve::ServeArgs),
    /// Run one program as the server would, without a server
    #[command(help_template = help::RUN_PAGE, after_help = help::RUN)]
    Run(crate::run::args::RunArgs),
    /// Say what is wrong with a configuration and its programs
    #[command(help_template = help::CHECK_PAGE, after_help = help::CHECK)]
    Check(Check),
    /// What `serve` starts for itself
    #[command(hide = true)]
    Spawner(serve::ServeArgs),
    /// Set the password of a user in an htpasswd file
    #[command(help_template = help::PASSWD_PAGE, after_help = help::PASSWD)]
    Passwd(passwd::PasswdArgs),
    /// Print the version
    Version,
}

#[derive(Debug, clap::Args)]
struct Check {
    #[command(flatten)]
    site: SiteArgs,
    /// Run all programs, or one, cold and warm
    #[arg(long, value_name = "PROGRAM", num_args = 0..=1)]
    warm: Option<Option<PathBuf>>,
    #[command(flatten)]
    url: asked::UrlArgs,
}

impl Check {
    fn run(mut self) -> Result<ExitCode, String> {
        if let Some(url) = self.url.url.take() {
            return url::check(&self.site, &self.url, &url);
        }
        match self.warm.take() {
            None => check::check_site(&self.site),
            // `--warm site` names the folder.
            Some(Some(dir)) if dir.is_dir() => {
                self.site.dir = dir;
                crate::run::warm::check_programs(&self.site, None)
            }
            Some(program) => crate::run::warm::check_programs(&self.site, program.as_deref()),
        }
    }
}

/// Runs the command that the arguments name.
pub fn main() -> ExitCode {
    // Note the user now, before this process becomes another user.
    starter();
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(e) => return print_usage(&e),
    };
    let done = match args.command {
        Command::Serve(args) => serve::serve_site(&args),
        Command::Spawner(args) => serve::serve_as_spawner(&args),
        Command::Run(args) => crate::run::run_program(&args),
        Command::Check(args) => args.run(),
        Command::Passwd(args) => passwd::passwd(&args),
        Command::Version => {
            println!("galgo {}", env!("CARGO_PKG_VERSION"));
            Ok(ExitCode::SUCCESS)
        }
    };
    done.unwrap_or_else(|message| {
        eprintln!("galgo: {}", crate::command::screen::escape_lines(message));
        ExitCode::FAILURE
    })
}

/// Prints help and version if asked for, else the error in the arguments.
fn print_usage(e: &clap::Error) -> ExitCode {
    let text = e.render().to_string();
    match crate::command::screen::escape_lines(&text) {
        // Standard output may have no reader.
        shown if shown == text => drop(e.print()),
        shown => eprint!("{shown}"),
    }
    if e.kind() == ErrorKind::InvalidSubcommand
        && let Some(first) = std::env::args_os().nth(1).map(PathBuf::from)
    {
        match first.metadata() {
            Ok(m) if m.is_dir() => {
                eprintln!(
                    "\nTo serve it: galgo serve {}",
                    words::shell_argument(&first)
                )
            }
            Ok(_) => eprintln!("\nTo run it: galgo run {}", words::shell_argument(&first)),
            Err(_) => {}
        }
    }
    ExitCode::from(u8::try_from(e.exit_code()).unwrap_or(2))
}
