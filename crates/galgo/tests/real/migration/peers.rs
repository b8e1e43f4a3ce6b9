//! The servers that are left.

use std::{fs, net::SocketAddr, path::Path, process::Command};

use galgo_testkit::{Beside, free_address, wait_until};

use crate::site::needed;

/// A server that runs as its configuration says.
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
            for name in ["peer.conf", "output", "log"] {
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
    let server = Beside::start(command, || std::net::TcpStream::connect(at).is_ok());
    Peer {
        at,
        _server: server,
        _programs: programs,
        _folder: folder,
    }
}

/// A place for the server's own files.
fn place() -> (SocketAddr, Folder) {
    let folder = tempfile::tempdir().unwrap();
    // Servers become other users.
    galgo_testkit::file::chmod(folder.path(), 0o777);
    (free_address(), Folder(folder))
}

pub(super) fn nginx(block: &str, site: &Path) -> Peer {
    let (at, folder) = place();
    let own = folder.path().display();
    let socket = folder.path().join("fcgiwrap.socket");
    let programs = block.contains("fcgiwrap").then(|| {
        let mut command = Command::new(needed("/usr/sbin/fcgiwrap"));
        command.arg("-s").arg(format!("unix:{}", socket.display()));
        let programs = Beside::at(&mut command, &socket);
        wait_until("fcgiwrap's socket", || socket.exists());
        programs
    });
    let block = block
        .replace("/srv/site", site.to_str().unwrap())
        .replace("/run/fcgiwrap.socket", socket.to_str().unwrap())
        .replace("LISTEN", &at.to_string());
    let temp = ["client_body", "fastcgi", "scgi", "proxy", "uwsgi"]
        .map(|name| format!("{name}_temp_path {own}/{name};"))
        .concat();
    let types = match block.contains("types {") {
        true => "",
        false => "include /etc/nginx/mime.types; default_type application/octet-stream;",
    };
    let server = match block.contains("server {") {
        true => block,
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

pub(super) fn lighttpd(block: &str, site: &Path) -> Peer {
    let (at, folder) = place();
    let own = folder.path().display();
    let block = block.replace("/srv/site", site.to_str().unwrap());
    let usual = |key: &str, line: &'static str| match block.contains(key) {
        true => "",
        false => line,
    };
    let usual = [
        usual("index-file.names", "index-file.names = ( \"index.html\" )\n"),
        usual(
            "mimetype.assign",
            "mimetype.assign = ( \".html\" => \"text/html\", \".txt\" => \"text/plain\", \".png\" => \"image/png\", \
             \"\" => \"application/octet-stream\" )\n",
        ),
    ]
    .concat();
    let config = format!(
        "server.modules = ( \"mod_access\", \"mod_redirect\", \"mod_rewrite\", \"mod_alias\", \"mod_auth\", \"mod_authn_file\", \
         \"mod_setenv\", \"mod_cgi\", \"mod_evhost\" )\n\
         server.bind = \"{}\"\nserver.port = {}\nserver.errorlog = \"{own}/log\"\nserver.upload-dirs = ( \"{own}\" )\n{usual}{block}\n",
        at.ip(),
        at.port()
    );
    let mut command = Command::new(needed("/usr/sbin/lighttpd"));
    command
        .arg("-D")
        .arg("-f")
        .arg(folder.path().join("peer.conf"));
    start(&mut command, &config, (at, folder), None)
}

pub(super) fn apache(block: &str, site: &Path) -> Peer {
    let (at, folder) = place();
    let own = folder.path().display();
    let modules = [
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
    let modules = modules.map(|name| {
        let path = needed(format!("/usr/lib/apache2/modules/mod_{name}.so"));
        format!("LoadModule {name}_module {}\n", path.display())
    });
    let user = match rustix::process::geteuid().is_root() {
        true => "User nobody\nGroup nogroup\n",
        false => "",
    };
    let usual = |key: &str, line: &'static str| match block.contains(key) {
        true => "",
        false => line,
    };
    let block = format!(
        "{}{}Alias /private/ /srv/site/private/\nAlias /intern/ /srv/site/private/\n{block}",
        usual("DocumentRoot", "DocumentRoot /srv/site/public\n"),
        usual("ScriptAlias", "ScriptAlias /cgi-bin/ /srv/site/cgi-bin/\n"),
    );
    let block = block
        .replace("/srv/site", site.to_str().unwrap())
        .replace("*:80", &at.to_string());
    let config = format!(
        "ServerRoot {own}\nServerName localhost\nListen {at}\nPidFile {own}/pid\nErrorLog {own}/log\nDefaultRuntimeDir {own}\n\
         {}{user}TypesConfig /etc/mime.types\n\
         <Directory />\nAllowOverride None\nOptions FollowSymLinks\nRequire all granted\n</Directory>\nScriptSock {own}/cgid\n{block}\n",
        modules.concat()
    );
    let mut command = Command::new(needed("/usr/sbin/apache2"));
    command
        .arg("-DFOREGROUND")
        .arg("-f")
        .arg(folder.path().join("peer.conf"));
    start(&mut command, &config, (at, folder), None)
}
