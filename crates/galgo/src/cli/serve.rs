//! `galgo serve`.

use std::{
    io::{IsTerminal, Write},
    process::ExitCode,
};

use super::{Serve, found, paint::Paint};
use crate::{
    config::{Address, Listen, Speaks},
    serve::{End, Ready},
};

/// Serves until a signal ends it.
pub(super) fn serve(args: &Serve) -> Result<ExitCode, String> {
    let mut config = args.site.load()?;
    if !args.listen.is_empty() {
        config.listen = args.listen.clone();
    }
    if let Some(typed) = &args.user {
        config.identity = Some(super::user(typed)?);
    }
    if config.listen.is_empty() {
        let here = Address::Tcp(([127, 0, 0, 1], 8080).into());
        config.listen.push(Listen {
            address: here,
            speaks: Speaks::Http,
        });
    }
    let ready = Ready::prepare(config)?;
    greet(&ready);
    let end = ready.run().map_err(|e| e.to_string())?;
    Ok(match end {
        End::Drained => ExitCode::SUCCESS,
        End::AtOnce => ExitCode::from(130),
    })
}

/// Prints where it listens, first of all, and then what it found there. Nobody may be reading; the
/// server serves all the same.
fn greet(ready: &Ready) {
    let mut out = std::io::stdout().lock();
    for listener in ready.listeners() {
        let _ = writeln!(out, "listening on {}", listener.url());
    }
    let base = found::base(ready.listeners().iter().map(|l| &l.listen));
    let paint = Paint::on(&out);
    let _ = found::table(&mut out, ready.config(), &base, paint);
    if std::io::stdin().is_terminal() && out.is_terminal() {
        let _ = writeln!(out, "  Ctrl-C ends it\n");
    }
    let _ = out.flush();
    for warning in &ready.config().warnings {
        eprintln!("galgo: warning: {warning}");
    }
    if galgo_spawn::identity::effective_uid() == 0 {
        eprintln!(
            "galgo: warning: running as root, so programs do too; only this machine is served. \
             Name a user to run as: --user www-data"
        );
    }
}
