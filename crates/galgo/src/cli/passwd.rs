//! `galgo passwd FILE USER`: a line of an htpasswd file.

use std::{
    fs::{self, File, Permissions},
    io::{self, BufRead, IsTerminal, Write},
    os::unix::fs::{MetadataExt, PermissionsExt, fchown},
    path::{Path, PathBuf},
    process::ExitCode,
};

use galgo_handlers::passwords::hash;
use galgo_spawn::{readable::explain_unreadable, words};
use rustix::fs::{FlockOperation, flock};

use crate::config::Config;

/// The server's group may read a new file; other users may not.
const MODE: u32 = 0o640;

#[derive(Debug, clap::Args)]
pub(super) struct PasswdArgs {
    /// The htpasswd file
    file: PathBuf,
    /// The user's name
    user: String,
    /// Hash by argon2id instead of bcrypt, which other servers read, too
    #[arg(long)]
    argon2: bool,
    /// Remove the user
    #[arg(long, conflicts_with = "argon2")]
    delete: bool,
    /// The configuration that names the file, if it is not galgo.toml here or in a folder above the file
    #[arg(long, short, value_name = "FILE")]
    config: Option<PathBuf>,
}

pub(super) fn passwd(args: &PasswdArgs) -> Result<ExitCode, String> {
    let user = &args.user;
    if user.is_empty()
        || user.starts_with(['#', '@'])
        || user.contains(|c: char| c == ':' || c.is_control())
    {
        return Err(format!(
            "{user:?} is not the name of a user: it holds no \":\" and begins with neither \"#\" nor \"@\""
        ));
    }
    let mut line = None;
    if !args.delete {
        let password = ask_password(user).map_err(|e| format!("no password: {e}"))?;
        let hash = hash::hash_password(password.as_bytes(), args.argon2)?;
        line = Some(format!("{user}:{hash}"));
    }
    let shown = words::escape_path(&args.file);
    let found = change(&args.file, user, line).map_err(|e| format!("{shown}: {e}"))?;
    match (args.delete, found) {
        (true, false) => return Err(format!("{shown} has no user {user:?}")),
        (true, true) => println!("{shown}: removed {user}"),
        (false, true) => println!("{shown}: changed the password of {user}"),
        (false, false) => println!("{shown}: added {user}"),
    }
    if let Some(why) = unreadable_to_server(&args.file, args.config.as_deref()) {
        eprintln!("galgo: warning: {why}");
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns why the `user` of the configuration that names the file cannot read it. `None`: the user can read it, or no
/// configuration was found.
fn unreadable_to_server(file: &Path, config: Option<&Path>) -> Option<String> {
    let real = file.canonicalize().ok()?;
    let above = real
        .ancestors()
        .skip(1)
        .map(|above| above.join("galgo.toml"));
    let configs: Vec<_> = match config {
        Some(config) => vec![config.to_owned()],
        None => [PathBuf::from("galgo.toml")]
            .into_iter()
            .chain(above)
            .collect(),
    };
    let read = configs.iter().filter(|config| config.exists());
    let mut read = read.filter_map(|config| Config::load(config).ok());
    let is_real = |named: &Path| named.canonicalize().is_ok_and(|named| named == real);
    let config = read.find(|config| config.password_files().any(is_real))?;
    explain_unreadable(file, &config.identity?)
}

/// Reads a password: on a terminal twice and without an echo, else the first line.
fn ask_password(user: &str) -> io::Result<String> {
    let mut typed = String::new();
    let mut again = None;
    if io::stdin().is_terminal() {
        typed = rpassword::prompt_password(format!("Password of {user}: "))?;
        again = Some(rpassword::prompt_password("The same again: ")?);
    } else {
        io::stdin().lock().read_line(&mut typed)?;
        let line = typed.strip_suffix('\n').unwrap_or(&typed);
        typed = line.strip_suffix('\r').unwrap_or(line).to_owned();
    }
    if typed.is_empty() {
        return Err(io::Error::other("the password is empty"));
    }
    match again {
        Some(again) if again != typed => Err(io::Error::other("the two passwords differ")),
        _ => Ok(typed),
    }
}

/// Replaces the user's lines by `line`. A server that reads the file meanwhile sees the old or the new file as a whole.
/// Returns whether there was such a user.
fn change(file: &Path, user: &str, mut line: Option<String>) -> io::Result<bool> {
    // If the path is a link, change the file that it leads to.
    let file = file.canonicalize().unwrap_or(file.to_owned());
    let folder = file.parent().filter(|p| !p.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let lock = File::open(folder)?;
    flock(&lock, FlockOperation::LockExclusive)?;
    let (text, old) = match fs::read_to_string(&file) {
        Ok(text) => (text, Some(fs::metadata(&file)?)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => (String::new(), None),
        Err(e) => return Err(e),
    };
    let own = |line: &str| line.split_once(':').is_some_and(|(name, _)| name == user);
    let found = text.lines().any(own);
    if line.is_none() && !found {
        return Ok(false);
    }
    let mut new = Vec::new();
    for before in text.lines() {
        if own(before) {
            new.extend(line.take())
        } else {
            new.push(before.to_owned())
        }
    }
    new.extend(line);
    let mut text = new.join("\n");
    text.push('\n');
    // No route serves a name that begins with a dot.
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let beside = folder.join(format!(".{name}.{}", std::process::id()));
    let written = write(&beside, &text, old.as_ref()).and_then(|()| fs::rename(&beside, &file));
    if written.is_err() {
        let _ = fs::remove_file(&beside);
    }
    written.map(|()| found)
}

fn write(to: &Path, text: &str, old: Option<&fs::Metadata>) -> io::Result<()> {
    let mut options = fs::OpenOptions::new();
    let mode = old.map_or(MODE, |old| old.permissions().mode() & 0o777);
    let options = std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.write(true).create_new(true).open(to)?;
    if let Some(old) = old {
        fchown(&file, Some(old.uid()), Some(old.gid()))?;
    }
    file.set_permissions(Permissions::from_mode(mode))?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}
