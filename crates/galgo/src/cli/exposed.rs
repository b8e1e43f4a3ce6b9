//! Files that every client may read but hardly should. `galgo check` names them, and asks the server's own request steps which
//! files they are.

use std::{
    ffi::OsStr,
    os::unix::{ffi::OsStrExt, fs::PermissionsExt},
    path::{Path, PathBuf},
};

use regex::Regex;

use super::{
    asked::{UrlArgs, request},
    url::UrlTracer,
};
use crate::{
    config::{CgiRoot, Files, Handler, Route},
    programs::{self, Severity},
    trace::Trace,
};

/// Depth below its folder to which a route's files are examined.
const DEPTH: usize = 8;
/// Limit of the files that one finding names; it counts the rest.
const NAMED: usize = 3;

/// A finding about a file.
pub(super) struct ExposedFile {
    pub(super) path: PathBuf,
    pub(super) severity: Severity,
    pub(super) says: String,
}

/// Returns the findings of a route; `host`: the host whose folder of `sites` the route is in.
pub(super) fn find_exposed_files(
    tracer: &UrlTracer,
    route: &Route,
    host: Option<&str>,
) -> Vec<ExposedFile> {
    let (folder, files) = match &route.handler {
        Handler::Files(files) => (&files.path, Some(files)),
        Handler::Cgi(cgi) => match &cgi.root {
            CgiRoot::Folder { path, .. } => (path, None),
            CgiRoot::Program { .. } => return Vec::new(),
        },
        Handler::Upstream(up) => match &up.scripts {
            Some(CgiRoot::Folder { path, .. }) => (path, None),
            _ => return Vec::new(),
        },
        Handler::Respond(_) => return Vec::new(),
    };
    let mut all = Vec::new();
    programs::collect_files(folder, DEPTH, &mut all);
    all.sort();
    let own = || route.host.as_ref().map(|hosts| hosts.example());
    let host = host.map(str::to_owned).or_else(own);
    let host = host.unwrap_or_else(|| "localhost".into());
    // Has a client from anywhere, without a password, ask for a file of the route.
    let ask = |path: &Path, is: fn(&Trace) -> bool| {
        let below = path.strip_prefix(folder).unwrap_or(path);
        let path = [route.path.as_bytes(), below.as_os_str().as_bytes()].concat();
        // Ask over TLS: then no client is redirected to https first.
        let url = format!("https://{host}{}", programs::percent_encode(&path));
        let asked = request(tracer.config(), &UrlArgs::anybody(), &url);
        asked.is_ok_and(|(head, link)| is(&tracer.trace_request(head, &link)))
    };
    // A program that was denied there must not start here either.
    let is_public = |path: &Path| ask(path, |trace| trace.is_public());
    let mut found = Vec::new();
    for path in &all {
        let below = path.strip_prefix(folder).unwrap_or(path);
        let mut add = |severity, says| {
            let path = path.clone();
            found.push(ExposedFile {
                path,
                severity,
                says,
            });
        };
        if path.file_name() == Some(OsStr::new(".htaccess")) {
            let (severity, says) = htaccess(path, &all, is_public);
            add(severity, says);
        } else if let Some(what) = files.and_then(|files| unusual(files, path, below))
            && ask(path, |trace| trace.is_sent())
        {
            let says = format!("is {what}, and anybody can read it (try: move it away)");
            add(Severity::Warns, says);
        }
    }
    found
}

/// Returns a description of a file that is rarely meant for the public.
fn unusual(files: &Files, path: &Path, below: &Path) -> Option<&'static str> {
    let is_script = || {
        let is_executable = |meta: std::fs::Metadata| meta.permissions().mode() & 0o111 != 0;
        path.metadata().is_ok_and(is_executable) && programs::begins(path, b"#!")
    };
    let is_database = || below.extension().is_none() && programs::begins(path, b"SQLi");
    doubtful(files, below)
        .or_else(|| is_script().then_some("an executable script"))
        .or_else(|| is_database().then_some("a SQLite database"))
}

/// Describes which files an .htaccess file denied to clients of Apache, and whether every client may read them here.
fn htaccess(path: &Path, all: &[PathBuf], is_public: impl Fn(&Path) -> bool) -> (Severity, String) {
    let Ok(text) = std::fs::read_to_string(path) else {
        let says =
            "galgo ignores .htaccess files, and cannot read this one: check which files it denied";
        return (Severity::Warns, says.into());
    };
    let denials = denials(&text);
    if denials.is_empty() {
        let says = "galgo ignores .htaccess files; this one denies nothing";
        return (Severity::Note, says.into());
    }
    let folder = path.parent().unwrap_or(path);
    let denied = |file: &&PathBuf| {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let is_denied = denials.iter().any(|denial| denial.matches_name(&name));
        file.starts_with(folder) && is_denied && is_public(file)
    };
    let mut public: Vec<_> = all.iter().filter(denied).collect();
    // A file that is no source may hold a secret. Files of the application itself lie above those of its libraries.
    public.sort_by_key(|file| (is_source(file), file.components().count()));
    let what: Vec<_> = denials.iter().map(|denial| denial.words.as_str()).collect();
    let what = what.join(", ");
    if public.is_empty() {
        let says = format!(
            "galgo ignores .htaccess files; this one denied {what}, and galgo does not serve that either"
        );
        return (Severity::Note, says);
    }
    let shown = public.iter().take(NAMED);
    let shown: Vec<_> = shown
        .map(|file| galgo_spawn::words::escape_path(file.strip_prefix(folder).unwrap_or(file)))
        .collect();
    let more = match public.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let says = format!(
        "galgo ignores .htaccess files; this one denied {what}, but galgo serves {}{more} (try: move them away, or add a route for each \
         with access = {{ deny = [\"all\"] }})",
        shown.join(", ")
    );
    (Severity::Warns, says)
}

/// A denial in an .htaccess file.
struct Denial {
    words: String,
    /// Names of the files that are denied; `None`: all names.
    names: Option<Regex>,
}

impl Denial {
    fn matches_name(&self, name: &str) -> bool {
        self.names.as_ref().is_none_or(|names| names.is_match(name))
    }
}

/// Returns the denials in the text of an .htaccess file that concern every client. A pattern that cannot be read stands for
/// all names.
fn denials(text: &str) -> Vec<Denial> {
    let mut all: Vec<Denial> = Vec::new();
    let mut section: Option<(String, Option<Regex>)> = None;
    for line in text.lines() {
        let line = line.trim();
        let lower = line.to_ascii_lowercase();
        let argument = || {
            let rest = line
                .split_once(char::is_whitespace)
                .map_or("", |(_, rest)| rest);
            rest.trim_end_matches('>')
                .trim()
                .trim_matches('"')
                .to_owned()
        };
        if lower.starts_with("</files") {
            section = None;
        } else if lower.starts_with("<filesmatch") {
            section = Some((argument(), Regex::new(&argument()).ok()));
        } else if lower.starts_with("<files") {
            let argument = argument();
            let pattern = match argument.strip_prefix('~') {
                Some(pattern) => pattern.trim().trim_matches('"').to_owned(),
                None => format!(
                    "^{}$",
                    regex::escape(&argument)
                        .replace(r"\*", ".*")
                        .replace(r"\?", ".")
                ),
            };
            section = Some((argument, Regex::new(&pattern).ok()));
        } else if is_denial(&lower) {
            let (words, names) = section.clone().unwrap_or(("everything".into(), None));
            if !all.iter().any(|denial| denial.words == words) {
                all.push(Denial { words, names });
            }
        }
    }
    all
}

fn is_denial(line: &str) -> bool {
    let words: Vec<_> = line.split_whitespace().collect();
    words == ["require", "all", "denied"] || words == ["deny", "from", "all"]
}

/// Extensions of programs.
const SOURCES: [&str; 9] = ["php", "cgi", "pl", "py", "rb", "sh", "tcl", "lua", "phtml"];

/// Returns whether a file is a program or a part of one, by its name.
fn is_source(file: &Path) -> bool {
    let extension = file.extension().and_then(OsStr::to_str);
    extension.is_some_and(|extension| SOURCES.contains(&extension) || extension == "pm")
}

/// Describes a file that is rarely meant for the public, by its name below the folder of files.
fn doubtful(files: &Files, path: &Path) -> Option<&'static str> {
    const ENDINGS: [(&[&str], &str); 3] = [
        (&SOURCES, "the source of a program"),
        (
            &[
                "pem", "key", "p12", "pfx", "kdbx", "env", "htpasswd", "pgpass",
            ],
            "named like a secret",
        ),
        (
            &[
                "sqlite", "sqlite3", "db", "sql", "bak", "orig", "swp", "old",
            ],
            "named like a database or a backup",
        ),
    ];
    let name = path.file_name()?.to_str()?;
    // galgo refuses dotfiles, and files that an interpreter runs by their extension.
    let is_dotfile = |part: &OsStr| part.as_bytes().starts_with(b".");
    if path.iter().any(is_dotfile) || files.is_source(name.as_bytes()) {
        return None;
    }
    if name == "galgo.toml" {
        return Some("the configuration");
    }
    if name.starts_with("id_") && !name.contains('.') {
        return Some("named like a private key");
    }
    if name.ends_with('~') {
        return Some("named like a database or a backup");
    }
    let ending = path.extension()?.to_str()?.to_ascii_lowercase();
    let mut all = ENDINGS.iter();
    let (_, what) = all.find(|(endings, _)| endings.contains(&ending.as_str()))?;
    Some(what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_rarely_public() {
        let files = Files::open(Path::new("/")).unwrap();
        let table = [
            ("index.html", None),
            ("app.js", None),
            ("key.html", None),
            ("galgo.toml", Some("the configuration")),
            ("index.php", Some("the source of a program")),
            ("tls/server.KEY", Some("named like a secret")),
            ("id_ed25519", Some("named like a private key")),
            ("id_ed25519.pub", None),
            ("book.sqlite3", Some("named like a database or a backup")),
            ("config.php~", Some("named like a database or a backup")),
            (".git/a.sh", None),
        ];
        for (path, want) in table {
            assert_eq!(doubtful(&files, Path::new(path)), want, "{path}");
        }
    }

    #[test]
    fn what_an_htaccess_file_denies() {
        let text = "# a comment\n<FilesMatch (\\.pm|localconfig.*)$>\n  <IfModule mod_authz_core.c>\n    Require all denied\n  \
                    </IfModule>\n  Deny from all\n</FilesMatch>\n<Files \"*.t?t\">\ndeny  from all\n</Files>\nRequire all granted\n";
        let all = denials(text);
        let words: Vec<_> = all.iter().map(|denial| &*denial.words).collect();
        assert_eq!(words, ["(\\.pm|localconfig.*)$", "*.t?t"]);
        for (name, want) in [
            ("localconfig", [true, false]),
            ("Util.pm", [true, false]),
            ("a.txt", [false, true]),
            ("a.html", [false, false]),
        ] {
            let fits: Vec<_> = all.iter().map(|denial| denial.matches_name(name)).collect();
            assert_eq!(fits, want, "{name}");
        }
        assert!(denials("Require all denied")[0].matches_name("any"));
        assert!(denials("Options -Indexes").is_empty());
    }
}
