//! The other servers, from which users migrate.

use std::{
    fs,
    net::{SocketAddr, TcpStream},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::Command,
};

use galgo_testkit::{Beside, file::chmod, free_address, stream};

use super::{
    Pair, is_ours,
    scene::{FPM, KEY},
};
use crate::site::needed;

/// A server that runs with its own configuration.
pub(super) struct Peer {
    pub(super) at: SocketAddr,
    _server: Beside,
    _programs: Option<Beside>,
    _folder: Folder,
}

/// The server's own files.
struct Folder(tempfile::TempDir);

impl Folder {
    fn path(&self) -> &Path {
        self.0.path()
    }
}

#[allow(clippy::print_stderr, reason = "what a failed test is understood by")]
impl Drop for Folder {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for name in ["peer.conf", "output", "log", "logs/apache2/suexec.log"] {
                let text = fs::read(self.path().join(name)).unwrap_or_default();
                eprintln!("--- {name}\n{}", String::from_utf8_lossy(&text));
            }
        }
    }
}

/// Writes the configuration, and starts the server with it.
fn start(
    command: &mut Command,
    configuration: &str,
    (at, folder): (SocketAddr, Folder),
    programs: Option<Beside>,
) -> Peer {
    fs::write(folder.path().join("peer.conf"), configuration).unwrap();
    let output = fs::File::create(folder.path().join("output")).unwrap();
    command.stdout(output.try_clone().unwrap()).stderr(output);
    let server = Beside::start(command, || TcpStream::connect(at).is_ok());
    Peer {
        at,
        _server: server,
        _programs: programs,
        _folder: folder,
    }
}

/// Makes a folder for the server's own files, and picks a free address.
fn place() -> (SocketAddr, Folder) {
    let folder = tempfile::tempdir().unwrap();
    // Some servers become other users, which must be able to write here.
    chmod(folder.path(), 0o777);
    let at = free_address();
    // A previous server may have had the same port.
    stream::is_spoken_at(at, None);
    (at, Folder(folder))
}

/// Writes the files that the original includes, after `placed` has adapted their paths.
fn include(pair: &Pair, site: &Path, placed: impl Fn(&str) -> String) {
    for (name, text) in pair.files.iter().filter(|(name, _)| !is_ours(name)) {
        let path = site.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, placed(text)).unwrap();
    }
}

/// Starts fcgiwrap, by the pair's command if there is one.
fn fcgiwrap(pair: &Pair, placed: impl Fn(&str) -> String, place: &Place) -> Beside {
    needed("/usr/sbin/fcgiwrap");
    let command = pair.command.as_deref();
    let command = placed(command.unwrap_or("fcgiwrap -s unix:/run/fcgiwrap.socket"));
    let leaves = command.starts_with("spawn-fcgi") && !command.contains(" -n ");
    let mut shell = if leaves {
        // Processes that the command leaves behind end with this namespace.
        let mut all = Command::new("unshare");
        all.args(["--pid", "--fork", "--kill-child", "/bin/sh", "-c"]);
        let stays = "trap exit TERM; sleep infinity & wait";
        all.arg(format!("{command} >/dev/null && {stays}"));
        all
    } else {
        let mut shell = Command::new("/bin/sh");
        shell.arg("-c").arg(format!("exec {command}"));
        shell
    };
    shell.env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin");
    // fcgiwrap's children do not end with it.
    shell.process_group(0);
    if command.contains("tcp:") {
        Beside::start(&mut shell, || TcpStream::connect(place.programs).is_ok())
    } else {
        Beside::at(&mut shell, &place.socket)
    }
}

/// Addresses of the programs that nginx asks.
struct Place {
    /// Socket of fcgiwrap.
    socket: PathBuf,
    /// TCP address of fcgiwrap.
    programs: SocketAddr,
}

pub(super) fn nginx(pair: &Pair, site: &Path) -> Peer {
    let (at, folder) = place();
    let own = folder.path().display();
    let fpm = site.join("fpm.sock");
    let place = Place {
        socket: folder.path().join("fcgiwrap.socket"),
        programs: free_address(),
    };
    let placed = |text: &str| {
        text.replace("/srv/site", site.to_str().unwrap())
            .replace("/run/fcgiwrap.socket", place.socket.to_str().unwrap())
            .replace("127.0.0.1:9000", &place.programs.to_string())
            .replace(FPM, fpm.to_str().unwrap())
            .replace("LISTEN", &at.to_string())
            .replace("listen 443 ", &format!("listen {at} "))
            .replace("listen 80 ", &format!("listen {at} "))
    };
    include(pair, site, placed);
    let original = &pair.original;
    let programs = pair.command.is_some() || original.contains("fcgiwrap");
    let programs = programs.then(|| fcgiwrap(pair, placed, &place));
    let block = placed(original);
    let temp = ["client_body", "fastcgi", "scgi", "proxy", "uwsgi"]
        .map(|name| format!("{name}_temp_path {own}/{name};"))
        .concat();
    let types = if block.contains("types {") {
        ""
    } else {
        "include /etc/nginx/mime.types; default_type application/octet-stream;"
    };
    let has = |words| block.contains(words);
    let server = match has("server {") || has("sites-enabled") {
        true => block,
        false if has("listen ") => format!("server {{\n{block}\n}}"),
        false => format!("server {{ listen {at};\n{block}\n}}"),
    };
    let config = format!(
        "daemon off; master_process off; pid {own}/pid; error_log {own}/log; worker_processes 1;\n\
         events {{}}\nhttp {{ access_log off; absolute_redirect off; {types} {temp}\n{server}\n}}\n"
    );
    let mut command = Command::new(needed("/usr/sbin/nginx"));
    command.arg("-c").arg(folder.path().join("peer.conf"));
    start(&mut command, &config, (at, folder), programs)
}

/// Returns the modules of lighttpd that only some pairs have, to append to the list of modules.
fn lighttpd_modules(block: &str) -> String {
    let more = [
        ("ssl.", "mod_openssl"),
        ("userdir.", "mod_userdir"),
        ("extforward.", "mod_extforward"),
        ("expire.", "mod_expire"),
        ("fastcgi.", "mod_fastcgi"),
        ("scgi.", "mod_scgi"),
        ("deflate.", "mod_deflate"),
    ];
    let more = more.iter().filter(|(key, _)| block.contains(key));
    let listed = |(_, name): &(_, &str)| {
        // These modules are packages of their own.
        if ["mod_deflate", "mod_openssl"].contains(name) {
            needed(format!("/usr/lib/lighttpd/{name}.so"));
        }
        format!(", \"{name}\"")
    };
    more.map(listed).collect()
}

/// Starts the application that both servers pass requests to, if the pair has one.
fn application(pair: &Pair, site: &Path) -> Option<Beside> {
    let command = pair.command.as_deref()?;
    let command = command.replace("/srv/site", site.to_str().unwrap());
    let mut shell = Command::new("/bin/sh");
    shell.arg("-c").arg(format!("exec {command}"));
    Some(Beside::at(&mut shell, &site.join("app.socket")))
}

pub(super) fn lighttpd(pair: &Pair, site: &Path) -> Peer {
    let (at, folder) = place();
    let own = folder.path().display();
    let placed = |text: &str| {
        text.replace("/srv/site", site.to_str().unwrap())
            .replace("0.0.0.0:443", &at.to_string())
    };
    include(pair, site, placed);
    let block = placed(&pair.original);
    let types = if block.contains("create-mime") {
        "create-mime"
    } else {
        "mimetype.assign"
    };
    let usual = |key: &str, line: &'static str| if block.contains(key) { "" } else { line };
    let usual = [
        usual("index-file.names", "index-file.names = ( \"index.html\" )\n"),
        usual(
            types,
            "mimetype.assign = ( \".html\" => \"text/html\", \".txt\" => \"text/plain\", \".png\" => \"image/png\", \
             \"\" => \"application/octet-stream\" )\n",
        ),
    ]
    .concat();
    let more = lighttpd_modules(&block);
    let programs = application(pair, site);
    let config = format!(
        "server.modules = ( \"mod_access\", \"mod_redirect\", \"mod_rewrite\", \"mod_alias\", \"mod_auth\", \"mod_authn_file\", \
         \"mod_setenv\", \"mod_cgi\", \"mod_evhost\", \"mod_simple_vhost\", \"mod_accesslog\"{more} )\n\
         server.bind = \"{}\"\nserver.port = {}\nserver.errorlog = \"{own}/log\"\nserver.upload-dirs = ( \"{own}\" )\n{usual}{block}\n",
        at.ip(),
        at.port()
    );
    let mut command = Command::new(needed("/usr/sbin/lighttpd"));
    command
        .arg("-D")
        .arg("-f")
        .arg(folder.path().join("peer.conf"));
    start(&mut command, &config, (at, folder), programs)
}

/// Modules of Apache that every pair has.
const MODULES: [&str; 18] = [
    "mpm_event",
    "authz_core",
    "authz_host",
    "authz_user",
    "authz_groupfile",
    "authn_core",
    "authn_file",
    "auth_basic",
    "alias",
    "autoindex",
    "cgid",
    "dir",
    "env",
    "expires",
    "headers",
    "mime",
    "rewrite",
    "setenvif",
];

/// Returns the lines that load modules of Apache.
fn modules(names: &[&str]) -> String {
    let line = |name: &&str| {
        let path = needed(format!("/usr/lib/apache2/modules/mod_{name}.so"));
        format!("LoadModule {name}_module {}\n", path.display())
    };
    names.iter().map(line).collect()
}

/// Modules that only some pairs have, by a word of their configuration.
const MORE_MODULES: [(&str, &[&str]); 7] = [
    ("SSLEngine", &["socache_shmcb", "ssl"]),
    ("Action", &["actions"]),
    ("DEFLATE", &["filter", "deflate"]),
    ("fcgi:", &["proxy", "proxy_fcgi"]),
    ("VirtualDocumentRoot", &["vhost_alias"]),
    ("RemoteIP", &["remoteip"]),
    ("XSendFile", &["xsendfile"]),
];

/// Returns the lines that load the modules which only this pair needs.
fn own_modules(original: &str) -> String {
    let of = MORE_MODULES
        .iter()
        .filter(|(name, _)| original.contains(name));
    of.map(|(_, names)| modules(names)).collect()
}

/// Adapts a piece of configuration to this address and site.
fn here(block: &str, at: SocketAddr, site: &Path) -> String {
    let site = site.to_str().unwrap();
    block
        .replace("/srv/site", site)
        .replace(FPM, &format!("{site}/fpm.sock"))
        .replace("*:80", &at.to_string())
}

pub(super) fn apache(pair: &Pair, site: &Path) -> Peer {
    if pair.original.contains("SuexecUserGroup") {
        return suexec(pair, site);
    }
    let user = if rustix::process::geteuid().is_root() {
        "User nobody\nGroup nogroup\n"
    } else {
        ""
    };
    let usual = |key: &str, line: &'static str| if pair.says(key) { "" } else { line };
    let block = format!(
        "{user}{}{}Alias /private/ /srv/site/private/\nAlias /intern/ /srv/site/private/\n{}",
        usual("DocumentRoot", "DocumentRoot /srv/site/public\n"),
        usual("ScriptAlias", "ScriptAlias /cgi-bin/ /srv/site/cgi-bin/\n"),
        pair.original
    );
    let block = format!("{}{block}", own_modules(&pair.original));
    let (at, folder) = place();
    include(pair, site, |text| here(text, at, site));
    let mut command = Command::new(needed("/usr/sbin/apache2"));
    apache_at((at, folder), &block, site, &mut command)
}

/// Starts Apache with suexec. suexec's configuration and log have fixed paths, so the test mounts its own files there.
pub(super) fn suexec(pair: &Pair, site: &Path) -> Peer {
    needed("/usr/lib/apache2/suexec-custom");
    let (at, folder) = place();
    let own = folder.path();
    let settings = format!("{}\npublic_html/cgi-bin\n", site.display());
    for name in ["suexec", "logs/apache2"] {
        fs::create_dir_all(own.join(name)).unwrap();
    }
    fs::write(own.join("suexec/www-data"), settings).unwrap();
    let usual = if pair.original.contains("DocumentRoot") {
        ""
    } else {
        "DocumentRoot /srv/site/public\n"
    };
    let on = if pair.original.contains("Suexec On") {
        ""
    } else {
        "Suexec On\n"
    };
    let modules = modules(&["suexec", "userdir"]);
    let block = format!(
        "{modules}User www-data\nGroup www-data\n{on}{usual}{}",
        pair.original
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "/bin/sh", "-ec"]).arg(
        "mount --bind \"$0/suexec\" /etc/apache2/suexec\nmount --bind \"$0/logs\" /var/log\nexec /usr/sbin/apache2 \"$@\"",
    );
    command.arg(own);
    apache_at((at, folder), &block, site, &mut command)
}

/// The log format of Debian's apache2.conf.
const COMBINED: &str = "LogFormat \"%h %l %u %t \\\"%r\\\" %>s %O \\\"%{Referer}i\\\" \\\"%{User-Agent}i\\\"\" combined\n";

/// Starts Apache by a command, to which the arguments are added.
fn apache_at(
    (at, folder): (SocketAddr, Folder),
    block: &str,
    site: &Path,
    command: &mut Command,
) -> Peer {
    let own = folder.path().display();
    let block = here(block, at, site);
    let config = format!(
        "ServerRoot {own}\nServerName localhost\nListen {at}\nPidFile {own}/pid\nErrorLog {own}/log\nDefaultRuntimeDir {own}\n\
         {}TypesConfig /etc/mime.types\n\
         <Directory />\nAllowOverride None\nOptions FollowSymLinks\nRequire all granted\n</Directory>\nScriptSock {own}/cgid\n{COMBINED}{block}\n",
        modules(&MODULES)
    );
    command
        .env("SITE_KEY", KEY)
        .arg("-DFOREGROUND")
        .arg("-f")
        .arg(folder.path().join("peer.conf"));
    start(command, &config, (at, folder), None)
}
