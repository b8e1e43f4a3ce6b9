//! nginx with a pool of php-fpm, for the same pages.

use std::{
    fs,
    net::{SocketAddr, TcpStream},
    path::Path,
    process::{Command, Stdio},
};

use galgo_testkit::{Beside, free_address};

use crate::{behind, site::needed};

/// nginx, and the php-fpm process that it asks.
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
        // If the test runs as root, the pool runs as root, and so do galgo's programs.
        fpm.args(["-F", "-R", "-y"])
            .arg(folder.path().join("pool.conf"))
            .arg("-c")
            .arg(ini);
        fpm.envs(env.iter().copied()).stderr(Stdio::null());
        let fpm = Beside::at(&mut fpm, &socket);
        let at = free_address();
        let block = format!(
            "location /cold/ {{\nfastcgi_split_path_info ^(/cold/.+\\.php)(/.*)?$;\n\
             include /etc/nginx/fastcgi_params;\n\
             if ($fastcgi_script_name ~ ^/cold/(.*)$) {{ set $script $1; }}\n\
             fastcgi_param SCRIPT_FILENAME {}/$script;\nfastcgi_param PATH_INFO $fastcgi_path_info;\n\
             fastcgi_pass unix:{};\n}}",
            pages.display(),
            socket.display()
        );
        let (config, mut nginx) = behind::nginx(at, folder.path(), &block);
        fs::write(folder.path().join("front.conf"), config).unwrap();
        nginx.stderr(Stdio::null());
        let nginx = Beside::start(&mut nginx, || TcpStream::connect(at).is_ok());
        Self {
            _nginx: nginx,
            _fpm: fpm,
            at,
            _folder: folder,
        }
    }

    /// Returns the URL of a page.
    pub(crate) fn url(&self, page: &str) -> String {
        format!("http://{}/cold/{page}", self.at)
    }
}
