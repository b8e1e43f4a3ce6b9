//! `galgo serve`.

use std::{
    io::{IsTerminal, Write},
    path::Path,
    process::ExitCode,
    sync::Arc,
};

use galgo_spawn::{hanging::set_hanging, identity::is_root, trusted_path, words};

use rustix::process::{Signal, getpid, kill_process};

use super::listen::{self, ListenArgument};
use crate::{
    command::{found, identity, paint::Paint, screen::escape_lines, site_folder::SiteArgs},
    config::Config,
    isolation,
    reading::look_first,
    serve::{End, Inherited, Invocation, OWN, Passed, ReadyServer},
};

#[derive(Debug, Clone, clap::Args)]
pub(super) struct ServeArgs {
    #[command(flatten)]
    site: SiteArgs,
    /// Where; repeatable [default: 127.0.0.1:8080]
    #[arg(long, short, value_name = "ADDR")]
    listen: Vec<ListenArgument>,
    /// Whom to become when started as root
    #[arg(long, short, value_name = "NAME[:GROUP]")]
    user: Option<String>,
}

/// Serves until a signal ends it.
pub(super) fn serve_site(args: &ServeArgs) -> Result<ExitCode, String> {
    let program = Invocation::of_this_process();
    let inherited = Inherited::from_environment()?;
    let predecessor = inherited.predecessor.clone();
    let served = serve_with(args, inherited, program);
    if let (Err(words), Some(predecessor)) = (&served, predecessor) {
        predecessor.report_failure(words);
    }
    served
}

fn serve_with(
    args: &ServeArgs,
    inherited: Inherited,
    program: Invocation,
) -> Result<ExitCode, String> {
    let (own, passed) = (args.site.config_file(), inherited.passed.clone());
    let first = args.clone();
    let must_look_again = look_first(Arc::new(move || read_config(&first, None)), &OWN);
    let config = configured(args, None, &passed)?;
    let ready = ReadyServer::prepare(config, inherited, program)?;
    print_greeting(&ready);
    // From now on threads look at these paths.
    set_hanging([]);
    if must_look_again {
        // As if SIGHUP had come from outside.
        let _ = kill_process(getpid(), Signal::HUP);
    }
    let args = args.clone();
    // If the file is gone at a reload, that is an error, because the convention would serve something else.
    let load = move || configured(&args, own.as_deref(), &passed);
    Ok(match ready.run_until_signal(Arc::new(load))? {
        End::Drained => ExitCode::SUCCESS,
        End::AtOnce => ExitCode::from(130),
    })
}

/// Runs the process that starts programs as other users, for the server that was started with the same arguments.
pub(super) fn serve_as_spawner(args: &ServeArgs) -> Result<ExitCode, String> {
    let (own, args) = (args.site.config_file(), args.clone());
    let load = move || {
        own.as_deref().map_or(Ok(()), check_root_owned)?;
        let config = read_config(&args, own.as_deref())?;
        let mut included = config.included.iter();
        included.try_for_each(|file| check_root_owned(file))?;
        Ok(config)
    };
    crate::serve::owners::run_spawner(Invocation::of_spawner(), Arc::new(load))?;
    Ok(ExitCode::SUCCESS)
}

/// Checks that only root can change a file that decides which users programs run as. Nothing is checked without root's rights.
fn check_root_owned(file: &Path) -> Result<(), String> {
    if !is_root() {
        return Ok(());
    }
    let path = words::escape_path(file);
    match trusted_path::open_roots_file(file) {
        Ok(Some(_)) => Ok(()),
        Ok(None) => Err(format!(
            "users other than root can change {path}, and root starts programs as this file says: root must own the file and each folder above it (chown root), and nobody else may write to them (chmod go-w)"
        )),
        Err(e) => Err(format!("{path}: {e}")),
    }
}

/// Reads the current configuration and applies the command line; `own`: the configuration file of the folder, which must exist
/// then.
fn configured(args: &ServeArgs, own: Option<&Path>, passed: &Passed) -> Result<Config, String> {
    let mut config = read_config(args, own)?;
    passed.resolve(&mut config)?;
    Ok(config)
}

/// Reads the same configuration, without the sockets that were passed.
fn read_config(args: &ServeArgs, own: Option<&Path>) -> Result<Config, String> {
    let user = args
        .user
        .as_deref()
        .map(identity::resolve_user)
        .transpose()?;
    let user = user.as_ref();
    let mut config = match own {
        Some(file) => Config::load_as(file, user).map_err(|e| e.to_string())?,
        None => args.site.load_config_as(user)?,
    };
    if !args.listen.is_empty() {
        listen::apply_arguments(&args.listen, &mut config)?;
    }
    Ok(config)
}

/// Prints first the addresses that the server listens on, then the routes and programs that it serves. If standard output has no
/// reader, the server still serves.
fn print_greeting(ready: &ReadyServer) {
    let mut out = std::io::stdout().lock();
    for bound in ready.bound_addresses() {
        let _ = writeln!(
            out,
            "listening on {}",
            escape_lines(bound.listen.browser_url())
        );
    }
    let listeners = || ready.bound_addresses().iter().map(|b| &b.listen);
    let public = listen::public_url(ready.config(), listeners());
    let base = public.unwrap_or_else(|| found::base_url(listeners()));
    let paint = Paint::for_stream(&out);
    let _ = found::print_route_table(&mut out, ready.config(), &base, paint);
    if std::io::stdin().is_terminal() && out.is_terminal() {
        let _ = writeln!(out, "  Ctrl-C stops the server\n");
    }
    let _ = out.flush();
    let gaps = isolation::find_gaps(ready.config());
    let closed = ready.config().unreadable_passwords();
    let warnings = ready.config().warnings.iter();
    for warning in warnings.chain(&closed).chain(&gaps).chain(ready.left_out()) {
        eprintln!("galgo: warning: {}", escape_lines(warning));
    }
    if is_root() {
        eprintln!(
            "galgo: warning: running as root, so programs do too; only this machine is served. \
             Name a user to run as: --user www-data"
        );
    }
}
