//! Pebble, the test authority of Let's Encrypt, which `scripts/need test` installs, with a DNS server of its own.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicU8, Ordering},
};

use galgo_testkit::{Beside, Done, Site, stream::certificate};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.build/pebble-2.10.1");

/// Where a test's authority is, and the server that it looks at. The ports are those that Pebble has by itself, on an
/// address that no other test has.
pub struct Place {
    pub ip: String,
    folder: PathBuf,
    /// The process in whose network all of it runs.
    pub within: Option<u32>,
}

/// A running authority.
pub struct Pebble {
    _pebble: Beside,
    _dns: Beside,
}

/// What an authority is like.
pub struct Like<'l> {
    /// Its environment: how often it fails.
    pub variables: &'l [(&'l str, &'l str)],
    /// The ports at which it looks for proofs.
    pub ports: (u16, u16),
    /// How long its certificates are valid, in seconds.
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
    /// A place for the authority of a site.
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

    /// What a configuration has for certificates of these hosts.
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

    /// Where it keeps the certificate of a host.
    pub fn stored(&self, host: &str) -> PathBuf {
        let of = format!("state/certificates/{}-14000-dir/{host}.pem", self.ip);
        self.folder.join(of)
    }

    /// A command in the network of the server.
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

    /// Starts it.
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

    /// The certificate by which clients trust what it signs: another one with each start.
    pub fn root(&self) -> PathBuf {
        let file = self.folder.join("root.pem");
        let url = format!("https://{}:15000/roots/0", self.ip);
        let mut curl = self.command("curl");
        let curl = curl.args(["--silent", "--fail", "--insecure", "--output"]);
        assert_eq!(Done::of(curl.arg(&file).arg(url), b"").code, 0);
        file
    }

    /// What a client that trusts the authority gets of a host.
    pub fn curl(&self, host: &str, path: &str) -> Done {
        self.curl_trusting(&self.root(), host, path)
    }

    /// The same, the authority having ended.
    pub fn curl_trusting(&self, root: &Path, host: &str, path: &str) -> Done {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--include", "--cacert"]);
        curl.arg(root);
        curl.arg("--resolve")
            .arg(format!("{host}:{HTTPS}:{}", self.ip));
        Done::of(curl.arg(format!("https://{host}:{HTTPS}{path}")), b"")
    }

    /// The authority wants the certificate of a host to be renewed at once.
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

    /// The state folder.
    pub fn state(&self) -> PathBuf {
        self.folder.join("state")
    }

    /// What Pebble has said so far.
    pub fn says(&self) -> String {
        std::fs::read_to_string(self.folder.join("pebble.out")).unwrap()
    }
}
