//! Pebble, the test authority of Let's Encrypt, with a DNS server of its own. `scripts/need test` installs it.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicU8, Ordering},
};

use galgo_testkit::{Beside, Done, Site, stream::certificate};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.build/pebble-2.10.1");

/// Addresses and files of a test's authority and of the server that it checks. The ports are Pebble's defaults, on an
/// address that no other test uses.
pub struct Place {
    pub ip: String,
    folder: PathBuf,
    /// A process in whose network the authority and the server run.
    pub within: Option<u32>,
}

/// A running authority.
pub struct Pebble {
    _pebble: Beside,
    _dns: Beside,
}

/// Settings of an authority.
pub struct Like<'l> {
    /// Environment of the authority: how often it fails.
    pub variables: &'l [(&'l str, &'l str)],
    /// The ports at which the authority looks for proofs.
    pub ports: (u16, u16),
    /// Lifetime of its certificates, in seconds.
    pub valid: u32,
}

/// The ports of the server: without TLS, and with TLS.
pub const HTTP: u16 = 5002;
pub const HTTPS: u16 = 5001;

impl Default for Like<'_> {
    fn default() -> Self {
        Self {
            variables: &[],
            ports: (HTTP, HTTPS),
            valid: 90 * 24 * 3600,
        }
    }
}

impl Place {
    /// Makes a place for the authority of a site.
    pub fn new(site: &Site) -> Self {
        static NEXT: AtomicU8 = AtomicU8::new(0);
        let [.., a, b] = std::process::id().to_be_bytes();
        let ip = format!(
            "127.{}.{a}.{b}",
            128 + NEXT.fetch_add(1, Ordering::Relaxed) % 127
        );
        let (pem, key) = certificate(&[&ip]);
        site.write("authority.pem", pem);
        site.write("authority.key", key);
        let folder = site.folder().to_owned();
        Self {
            ip,
            folder,
            within: None,
        }
    }

    /// Returns the configuration for certificates of these hosts.
    pub fn tls(&self, hosts: &[&str]) -> String {
        let Self { ip, folder, .. } = self;
        let folder = folder.display();
        format!(
            "listen = [\"{ip}:{HTTP}\", \"https://{ip}:{HTTPS}\"]\n\
             [tls]\nautomatic = {{ hosts = {hosts:?}, contact = \"mailto:me@example.org\", \
             authority = \"https://{ip}:14000/dir\", authority_ca = \"{folder}/authority.pem\", \
             state = \"{folder}/state\" }}\n"
        )
    }

    /// Returns the path at which the server keeps the certificate of a host.
    pub fn stored(&self, host: &str) -> PathBuf {
        let of = format!("state/certificates/{}-14000-dir/{host}.pem", self.ip);
        self.folder.join(of)
    }

    /// Returns a command that runs in the network of the server.
    pub fn command(&self, program: &str) -> Command {
        let Some(pid) = self.within else {
            return Command::new(program);
        };
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--net=/proc/{pid}/ns/net"))
            .arg(program);
        command
    }

    /// Starts the authority and its DNS server.
    pub fn start(&self, like: &Like<'_>) -> Pebble {
        let Self { ip, folder, .. } = self;
        let config = serde_json::json!({ "pebble": {
            "listenAddress": format!("{ip}:14000"),
            "managementListenAddress": format!("{ip}:15000"),
            "certificate": folder.join("authority.pem"),
            "privateKey": folder.join("authority.key"),
            "httpPort": like.ports.0,
            "tlsPort": like.ports.1,
            "domainBlocklist": ["refused.example"],
            "retryAfter": { "authz": 1, "order": 1 },
            "keyAlgorithm": "ecdsa",
            "profiles": { "default": { "description": "usual", "validityPeriod": like.valid } },
        } });
        let file = folder.join("pebble.json");
        std::fs::write(&file, config.to_string()).unwrap();
        let mut dns = self.command(&format!("{FOLDER}/pebble-challtestsrv"));
        dns.args(["-http01", "", "-https01", "", "-tlsalpn01", "", "-doh", ""]);
        dns.args(["-defaultIPv4", ip, "-defaultIPv6", ""]);
        dns.args(["-dnsserver", &format!("{ip}:8053")]);
        dns.args(["-management", &format!("{ip}:8055")]);
        let mut pebble = self.command(&format!("{FOLDER}/pebble"));
        pebble.args(["-strict", "-dnsserver", &format!("{ip}:8053"), "-config"]);
        pebble.arg(file).env("PEBBLE_VA_NOSLEEP", "1");
        pebble.envs(like.variables.iter().copied());
        let said = |name| std::fs::File::create(folder.join(name)).unwrap();
        let dns = dns.stdout(said("dns.out")).stderr(Stdio::null());
        let pebble = pebble.stdout(said("pebble.out")).stderr(Stdio::null());
        let at = |url: &str| {
            let mut curl = self.command("curl");
            Done::of(curl.args(["--silent", "--insecure", url]), b"").code == 0
        };
        let urls = [
            format!("http://{ip}:8055/"),
            format!("https://{ip}:15000/roots/0"),
            format!("https://{ip}:14000/dir"),
        ];
        Pebble {
            _dns: Beside::start(dns, || at(&urls[0])),
            _pebble: Beside::start(pebble, || at(&urls[1]) && at(&urls[2])),
        }
    }

    /// Fetches the root certificate by which clients trust the authority. Each start of the authority makes a new one.
    pub fn root(&self) -> PathBuf {
        let file = self.folder.join("root.pem");
        let url = format!("https://{}:15000/roots/0", self.ip);
        let mut curl = self.command("curl");
        let curl = curl.args(["--silent", "--fail", "--insecure", "--output"]);
        assert_eq!(Done::of(curl.arg(&file).arg(url), b"").code, 0);
        file
    }

    /// Asks a host for `path` with curl, which trusts the authority.
    pub fn curl(&self, host: &str, path: &str) -> Done {
        self.curl_trusting(&self.root(), host, path)
    }

    /// Does the same with a root certificate fetched before: the authority may have ended.
    pub fn curl_trusting(&self, root: &Path, host: &str, path: &str) -> Done {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--include", "--cacert"]);
        curl.arg(root);
        curl.arg("--resolve")
            .arg(format!("{host}:{HTTPS}:{}", self.ip));
        Done::of(curl.arg(format!("https://{host}:{HTTPS}{path}")), b"")
    }

    /// Makes the authority ask for the renewal of a host's certificate at once.
    pub fn wants_renewed(&self, host: &str) {
        let pem = std::fs::read_to_string(self.stored(host)).unwrap();
        let begin = pem.find("-----BEGIN CERTIFICATE").unwrap();
        let window =
            r#"{"suggestedWindow":{"start":"2020-01-01T00:00:00Z","end":"2020-01-02T00:00:00Z"}}"#;
        let says = serde_json::json!({ "Certificate": &pem[begin..], "ARIResponse": window });
        let mut curl = Command::new("curl");
        curl.args([
            "--silent",
            "--fail",
            "--insecure",
            "--data",
            &says.to_string(),
        ]);
        curl.arg(format!("https://{}:15000/set-renewal-info/", self.ip));
        assert_eq!(Done::of(&mut curl, b"").code, 0);
    }

    /// Returns the state folder.
    pub fn state(&self) -> PathBuf {
        self.folder.join("state")
    }

    /// Returns the output of Pebble so far.
    pub fn says(&self) -> String {
        std::fs::read_to_string(self.folder.join("pebble.out")).unwrap()
    }
}
