//! nginx with a pool of php-fpm, for the same pages.

use std::{
    fs,
    net::{SocketAddr, TcpStream},
    path::Path,
    process::{Command, Stdio},
};

use galgo_testkit::{Beside, free_address};

use crate::site::needed;

/// nginx, and the process that it asks.
pub(crate) struct Pool {
    _nginx: Beside,
    _fpm: Beside,
    at: SocketAddr,
    _folder: tempfile::TempDir,
}

impl Pool {
    /// Serves the scripts of `pages` beneath `/cold/`, with these settings and variables.
    pub(crate) fn start(pages: &Path, ini: &Path, env: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().display();
        let socket = folder.path().join("fpm.sock");
        let pool = format!(
            "[global]\nerror_log = {own}/fpm.log\n[pages]\nlisten = {}\nlisten.mode = 0666\n\
             pm = static\npm.max_children = 1\nclear_env = no\n",
            socket.display()
        );
        fs::write(folder.path().join("pool.conf"), pool).unwrap();
        let mut fpm = Command::new(needed("/usr/sbin/php-fpm8.2"));
        // A pool of root's, where this is root: as whom galgo runs the others.
        fpm.args(["-F", "-R", "-y"])
            .arg(folder.path().join("pool.conf"))
            .arg("-c")
            .arg(ini);
        fpm.envs(env.iter().copied()).stderr(Stdio::null());
        let fpm = Beside::at(&mut fpm, &socket);
        let at = free_address();
        let temp = ["client_body", "fastcgi", "scgi", "proxy", "uwsgi"]
            .map(|name| format!("{name}_temp_path {own}/{name};"))
            .concat();
        let config = format!(
            "daemon off; master_process off; pid {own}/pid; error_log {own}/log; worker_processes 1;\n\
             events {{}}\nhttp {{ access_log off; {temp}\nserver {{ listen {at}; location /cold/ {{\n\
             alias {}/;\nfastcgi_split_path_info ^(/cold/.+\\.php)(/.*)?$;\ninclude /etc/nginx/fastcgi_params;\n\
             if ($fastcgi_script_name ~ ^/cold/(.*)$) {{ set $script $1; }}\n\
             fastcgi_param SCRIPT_FILENAME {}/$script;\nfastcgi_param PATH_INFO $fastcgi_path_info;\n\
             fastcgi_pass unix:{};\n}} }} }}\n",
            pages.display(),
            pages.display(),
            socket.display()
        );
        let file = folder.path().join("nginx.conf");
        fs::write(&file, config).unwrap();
        let mut nginx = Command::new(needed("/usr/sbin/nginx"));
        nginx.arg("-c").arg(&file).stderr(Stdio::null());
        let nginx = Beside::start(&mut nginx, || TcpStream::connect(at).is_ok());
        Self {
            _nginx: nginx,
            _fpm: fpm,
            at,
            _folder: folder,
        }
    }

    /// Where a page is.
    pub(crate) fn url(&self, page: &str) -> String {
        format!("http://{}/cold/{page}", self.at)
    }
}
