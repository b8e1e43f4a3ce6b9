//! `galgo serve`.

use std::{
    io::{IsTerminal, Write},
    path::Path,
    process::ExitCode,
};

use super::{apart, found, identity, paint::Paint, screen::lines, site::SiteArgs};
use crate::{
    config::{Address, Config, Listen, Speaks},
    serve::{End, Ready},
};

#[derive(Debug, clap::Args)]
pub(super) struct ServeArgs {
    #[command(flatten)]
    site: SiteArgs,
    /// Where; repeatable [default: 127.0.0.1:8080]
    #[arg(long, short, value_name = "ADDR")]
    listen: Vec<Listen>,
    /// Whom to become when started as root
    #[arg(long, short, value_name = "NAME[:GROUP]")]
    user: Option<String>,
}

/// Serves until a signal ends it.
pub(super) fn serve(args: &ServeArgs) -> Result<ExitCode, String> {
    let own = args.site.file();
    let ready = Ready::prepare(configured(args, None)?)?;
    greet(&ready);
    // A file that is gone later is missed: the convention would serve something else.
    Ok(match ready.run(|| configured(args, own.as_deref()))? {
        End::Drained => ExitCode::SUCCESS,
        End::AtOnce => ExitCode::from(130),
    })
}

/// What the file and the command line say now; `own`: the file of the folder, where there must be one.
fn configured(args: &ServeArgs, own: Option<&Path>) -> Result<Config, String> {
    let mut config = match own {
        Some(file) => Config::load(file).map_err(|e| e.to_string())?,
        None => args.site.load()?,
    };
    if !args.listen.is_empty() {
        config.listen = args.listen.clone();
    }
    if let Some(typed) = &args.user {
        config.identity = Some(identity::user(typed)?);
    }
    if config.listen.is_empty() {
        let here = Address::Tcp(([127, 0, 0, 1], 8080).into());
        config.listen.push(Listen {
            address: here,
            speaks: Speaks::Http,
        });
    }
    Ok(config)
}

/// Prints where it listens, first of all, and then what it found there. Nobody may be reading; the
/// server serves all the same.
fn greet(ready: &Ready) {
    let mut out = std::io::stdout().lock();
    for bound in ready.bound() {
        let _ = writeln!(out, "listening on {}", lines(bound.listen.url()));
    }
    let base = found::base(ready.bound().iter().map(|b| &b.listen));
    let paint = Paint::on(&out);
    let _ = found::table(&mut out, ready.config(), &base, paint);
    if std::io::stdin().is_terminal() && out.is_terminal() {
        let _ = writeln!(out, "  Ctrl-C ends it\n");
    }
    let _ = out.flush();
    let gaps = apart::gaps(ready.config());
    for warning in ready.config().warnings.iter().chain(&gaps) {
        eprintln!("galgo: warning: {}", lines(warning));
    }
    if galgo_spawn::identity::effective_uid() == 0 {
        eprintln!(
            "galgo: warning: running as root, so programs do too; only this machine is served. \
             Name a user to run as: --user www-data"
        );
    }
}
