"""The servers that take part: one adapter each.

An adapter knows how to start its server on a free port of 127.0.0.1 with the configuration
in bench/peers/, and where it answers. To add a server, add a class and put it into ALL.
"""

import grp
import os
import resource
import shutil
import socket
import subprocess
import time
from pathlib import Path

from . import process
from .paths import CARGO, CORES, DOCUMENT_PROCESSES, PEERS, PHP_PROCESSES, TOOLS, WORK, account


TEMPLATES = 2  # of a program that galgo keeps loaded
CONTROL = 3  # the descriptor of a template's socket to galgo


class CannotStart(Exception):
    """A server did not start; the text says why, for the report."""


class Server:
    name = ""  # in raw.json and on the command line
    label = ""  # in tables and charts
    index = "/"  # where the index page is
    pixel = "/pixel.gif"
    serves = {"programs", "files", "pixel"}
    template = None  # file in bench/peers/
    lacks = "its program is missing"  # said when binary() is None
    keeps = False  # programs, ready for requests to come
    ballast = False  # measured with memory that it would not hold by itself, too
    asks = ()  # FastCGI programs that are started beside it: "document", "php"

    def __init__(self, site):
        self.site = site
        self.run = WORK / self.name
        self.port = 0
        self.processes = []
        self.asked = []  # applications, which are not the server's own
        self.warmed = {}  # path -> what was ready when it had been asked for long enough

    # What an adapter says about itself ------------------------------------------------

    def binary(self):
        """The program, as a path; None when it is missing."""
        return shutil.which(self.name)

    def version(self):
        """One line, for the report."""
        return ""

    def commands(self):
        """The command lines to start, in order; the last one listens."""
        raise NotImplementedError

    # What all share -------------------------------------------------------------------

    def program(self, name, rest=""):
        return f"/cgi-bin/{name}.cgi{rest}"

    def url(self, path):
        return f"http://127.0.0.1:{self.port}{path}"

    def start(self, cpus=None, env=None):
        if self.binary() is None:
            raise CannotStart(f"{self.label}: its program is missing")
        self.port = free_port()
        self.prepare()
        log = open(self.run / "output.log", "ab")
        for name, command in self.applications().items():
            options = {"account": account(), "cwd": self.run, "stdout": log, "stderr": log}
            self.asked.append(process.spawn(command, **options))
            # Before the server does: Apache asks nobody for a minute who once did not listen.
            self.wait_until(lambda name=name: connect_to(self.run / f"{name}.sock"))
        for command in self.commands():
            child = process.spawn(
                command,
                account=account(),
                cpus=cpus,
                cwd=self.run,
                env=os.environ | (env or {}),
                stdout=subprocess.PIPE if command is self.announces(command) else log,
                stderr=log,
            )
            self.processes.append(child)
        self.wait_until_it_listens()

    def announces(self, command):
        """Returns the command when its standard output must be read for the port."""
        return None

    def applications(self):
        """The command lines of the FastCGI programs that it asks, by name; those that are missing are left out."""
        known = {
            "document": [WORK / "document", self.run / "document.sock", DOCUMENT_PROCESSES, self.site / "public"],
            "php": [php_fpm(), "-n", "-F", "-y", self.run / "php-fpm.conf"],
        }
        there = {"document": (WORK / "document").exists(), "php": php_fpm() is not None}
        return {name: known[name] for name in self.asks if there[name]}

    def values(self):
        """What stands for @KEY@ in configurations."""
        user = account()
        return {
            "PORT": self.port,
            "RUN": self.run,
            "SITE": self.site,
            "CORES": CORES,
            "NOFILE": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            "USER": user.pw_name,
            "GROUP": grp.getgrgid(user.pw_gid).gr_name,
            "PHP_PROCESSES": PHP_PROCESSES,
        }

    def templates(self):
        return [self.template] * bool(self.template) + ["php-fpm.conf"] * ("php" in self.asks)

    def prepare(self):
        """A fresh folder with the filled-in configurations, owned by the server's user."""
        shutil.rmtree(self.run, ignore_errors=True)
        self.run.mkdir(parents=True)
        for name in self.templates():
            text = (PEERS / name).read_text()
            for key, value in self.values().items():
                text = text.replace(f"@{key}@", str(value))
            (self.run / name).write_text(text)
        if os.geteuid() == 0:
            os.chown(self.run, account().pw_uid, account().pw_gid)

    def wait_until_it_listens(self, seconds=10):
        self.wait_until(lambda: socket.create_connection(("127.0.0.1", self.port), 1).close(), seconds)

    def wait_until(self, listens, seconds=10):
        """Until `listens` raises no OSError."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if any(child.poll() is not None for child in self.everyone()):
                break
            try:
                return listens()
            except OSError:
                time.sleep(0.02)
        self.stop()
        raise CannotStart(f"{self.label} does not listen: {self.last_words()}")

    def last_words(self):
        words = []
        for log in ("output.log", "error.log"):
            path = self.run / log
            if path.exists():
                words += path.read_text(errors="replace").strip().splitlines()[-3:]
        return " / ".join(words) or "it printed nothing"

    def ready(self, target):
        """What it keeps ready for a request, comparable; None while it is still preparing."""
        file = str(self.site) + target.path.partition(".cgi")[0] + ".cgi"
        found = {
            pid
            for pid in self.family()
            if file in process.command(pid) and CONTROL in process.sockets(pid)
        }
        return found if len(found) == TEMPLATES else None

    def running(self):
        return bool(self.processes) and all(p.poll() is None for p in self.everyone())

    def everyone(self):
        return [*self.asked, *self.processes]

    def family(self):
        """Pids of the server itself and of all that it started."""
        return [pid for p in self.processes for pid in (p.pid, *process.descendants(p.pid))]

    def stop(self):
        """Ends the server and its programs; returns how many had to be killed."""
        killed = sum(process.end(child) for child in reversed(self.everyone()))
        self.processes, self.asked, self.warmed = [], [], {}
        return killed


def php_fpm():
    """The newest php-fpm of Debian."""
    found = sorted(Path("/usr/sbin").glob("php-fpm[0-9]*"))
    return found[-1] if found else None


def connect_to(path):
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def first_line(argv):
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=10)
    except OSError:
        return ""
    return (done.stdout + done.stderr).strip().partition("\n")[0]


class Galgo(Server):
    name = label = "galgo"
    template = "galgo.toml"
    serves = Server.serves | {"wasm", "documents", "php"}
    asks = ("document", "php")
    ballast = True
    lacks = "its binary is missing: cargo build --release, or --galgo FILE"
    path = None  # set from the command line

    def binary(self):
        return self.path if self.path and os.access(self.path, os.X_OK) else None

    def version(self):
        return first_line([self.binary(), "version"])

    def commands(self):
        # A copy: the server's user may not be allowed to enter the folder it was built in.
        binary = self.run / "galgo"
        shutil.copy(self.binary(), binary)
        # What runs modules, found beside it.
        host = Path(self.binary()).with_name("galgo-wasm")
        if host.exists():
            shutil.copy(host, self.run)
        return [[binary, "serve", "--config", self.run / self.template]]

    def announces(self, command):
        return command

    def wait_until_it_listens(self, seconds=10):
        """The first line on standard output names the port."""
        line = self.processes[0].stdout.readline().decode(errors="replace").strip()
        if not line.startswith("listening on http://127.0.0.1:"):
            self.stop()
            raise CannotStart(f"galgo's first line was {line!r}: {self.last_words()}")
        self.port = int(line.rpartition(":")[2].rstrip("/"))
        drain(self.processes[0].stdout)
        super().wait_until_it_listens(seconds)


class GalgoWarm(Galgo):
    """galgo with start = "warm", beside galgo as it is without it."""

    name, label = "galgo-warm", "galgo, warm"
    template = "galgo-warm.toml"
    serves = {"warm"}
    keeps = True
    asks = ()
    ballast = False


def drain(pipe):
    """Lets a server print more than a pipe holds without ever blocking it."""
    with open(os.devnull, "wb") as nowhere:
        subprocess.Popen(["cat"], stdin=pipe, stdout=nowhere, start_new_session=True)
    pipe.close()


class Apache(Server):
    name, label, template = "apache", "Apache mod_cgid", "apache.conf"
    serves = Server.serves | {"documents"}
    asks = ("document",)

    def binary(self):
        return shutil.which("apache2", path="/usr/sbin:/usr/bin")

    def version(self):
        return first_line([self.binary(), "-v"]).removeprefix("Server version: ")

    def commands(self):
        return [[self.binary(), "-D", "FOREGROUND", "-f", self.run / self.template]]


class Nginx(Server):
    name, label, template = "nginx", "nginx + fcgiwrap", "nginx.conf"
    serves = Server.serves | {"documents", "php", "gateway"}
    asks = ("document", "php")

    def binary(self):
        found = shutil.which("nginx", path="/usr/sbin:/usr/bin")
        return found if shutil.which("fcgiwrap", path="/usr/sbin:/usr/bin") else None

    def version(self):
        nginx = first_line([self.binary(), "-v"]).removeprefix("nginx version: ")
        return f"{nginx}, fcgiwrap {package_version('fcgiwrap')}"

    def gateway(self):
        """What runs the programs."""
        return ["/usr/sbin/fcgiwrap", "-c", 16, "-s", f"unix:{self.run}/programs.sock"]

    def commands(self):
        nginx = [self.binary(), "-e", self.run / "error.log", "-c", self.run / self.template]
        return [self.gateway(), nginx]


class NginxGalgo(Nginx):
    """nginx with galgo in the place of fcgiwrap, and nothing else changed."""

    name, label = "nginx-galgo", "nginx + galgo"
    serves = {"gateway"}
    asks = ()
    mode = "cold"

    def binary(self):
        return super().binary() if Galgo.path and os.access(Galgo.path, os.X_OK) else None

    def templates(self):
        return [*super().templates(), "galgo-gateway.toml"]

    def values(self):
        return super().values() | {"START": self.mode}

    def gateway(self):
        binary = self.run / "galgo"
        shutil.copy(Galgo.path, binary)
        return [binary, "serve", "--config", self.run / "galgo-gateway.toml"]


class NginxGalgoWarm(NginxGalgo):
    name, label, mode = "nginx-galgo-warm", "nginx + galgo, warm", "warm"
    keeps = True


class Lighttpd(Server):
    name, label, template = "lighttpd", "lighttpd mod_cgi", "lighttpd.conf"
    serves = Server.serves | {"documents"}
    asks = ("document",)

    def binary(self):
        return shutil.which("lighttpd", path="/usr/sbin:/usr/bin")

    def version(self):
        return first_line([self.binary(), "-v"]).partition(" - ")[0]

    def commands(self):
        return [[self.binary(), "-D", "-f", self.run / self.template]]


class GoCgi(Server):
    name, label = "go", "Go net/http/cgi"

    def binary(self):
        return str(TOOLS / "gocgi") if (TOOLS / "gocgi").exists() else None

    def version(self):
        return first_line(["go", "version"]).removeprefix("go version ")

    def commands(self):
        binary = self.run / "gocgi"
        shutil.copy(self.binary(), binary)
        return [[binary, f"127.0.0.1:{self.port}", self.site]]


class Tortuga(Server):
    name, label = "tortuga", "Tortuga"
    index = "/index.html"  # it has no index pages
    serves = Server.serves | {"wasm"}

    def binary(self):
        return str(CARGO / "tortuga") if (CARGO / "tortuga").exists() else None

    def version(self):
        return first_line([self.binary(), "--version"])

    def commands(self):
        binary = self.run / "tortuga"
        shutil.copy(self.binary(), binary)
        where = ["-H", "127.0.0.1", "-P", self.port, "-c", self.site / "cgi-bin", "--wasm-cache"]
        return [[binary, "serve", *where, self.site / "public"]]


class GoPixel(GoCgi):
    name, label = "go-pixel", "tiny Go server"
    serves = {"pixel"}

    def binary(self):
        return str(TOOLS / "gopixel") if (TOOLS / "gopixel").exists() else None

    def commands(self):
        binary = self.run / "gopixel"
        shutil.copy(self.binary(), binary)
        return [[binary, f"127.0.0.1:{self.port}", self.site / "public" / "pixel.gif"]]


class PerlPixel(Server):
    name, label = "perl-pixel", "tiny Perl server"
    serves = {"pixel"}

    def binary(self):
        return shutil.which("perl")

    def version(self):
        return first_line(["perl", "-e", "print qq(perl $^V)"])

    def commands(self):
        script = shutil.copy(PEERS / "pixel.pl", self.run / "pixel.pl")
        gif = self.site / "public" / "pixel.gif"
        return [[self.binary(), script, self.port, gif, CORES]]


def package_version(name):
    return first_line(["dpkg-query", "-W", "-f", "${Version}", name])


ALL = [
    Galgo,
    GalgoWarm,
    Apache,
    Nginx,
    NginxGalgo,
    NginxGalgoWarm,
    Lighttpd,
    GoCgi,
    Tortuga,
    GoPixel,
    PerlPixel,
]
