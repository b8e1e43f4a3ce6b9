"""The site that every server serves: programs in cgi-bin/, files in public/, data in data/."""

import atexit
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from . import process
from .check import Target
from .paths import EXAMPLES, PROGRAMS, PYTHON, TOOLS, WORK, account
from .servers import php_fpm

SITE = WORK / "site"
BOOK = WORK / "book"  # the guestbook that every measurement begins with
FILE_SIZES = {
    "1 KB": 1_000,
    "10 KB": 10_000,
    "100 KB": 100_000,
    "1 MB": 1_000_000,
    "10 MB": 10_000_000,
    "100 MB": 100_000_000,
}
# Of documents that FastCGI programs send, and of the same as files.
DOCUMENT_SIZES = {
    "500 B": 500,
    "5 KB": 5_000,
    "50 KB": 50_000,
    "100 KB": 100_000,
    "200 KB": 200_000,
    "1 MB": 1_000_000,
    "10 MB": 10_000_000,
    "100 MB": 100_000_000,
}
PHP = {"hello": '<?php echo "hello\n";\n', "page": '<?php echo str_repeat("p", 100000);\n'}
# 1x1, transparent, 43 bytes.
PIXEL = bytes.fromhex(
    "47494638396101000100800000000000ffffff21f90401000000002c000000000100010000020144003b00"
)[:43]
SIGNING = "name=John+Carmack&message=Hello+from+id+software%21"
GREETING = b"Hello from id software!"
ECHO = EXAMPLES / "programs" / "echo.c"
# In the order of the tables. Each is looked for in examples/ when the site is built.
REPOSITORIES = 5  # that gitweb lists
LANGUAGES = ["c", "rust", "go", "python", "perl", "node", "bash"]


class Absent(Exception):
    """A program that cannot be had here; the text says why."""


def build():
    """Makes the site anew. Returns {program: why} of those that are absent."""
    shutil.rmtree(SITE, ignore_errors=True)
    for folder in ("cgi-bin", "php"):
        (SITE / folder).mkdir(parents=True)
    replace_data()
    (SITE / "public").symlink_to(public())
    write_files(SITE / "public")
    compile_c("bare", "-static", "-nostdlib")
    compile_c("line")
    compile_c("bytes", "-static")
    install("debug", PROGRAMS / "debug.pl")
    for tool in ("floor", "drain", "ballast.so"):
        shutil.copy(TOOLS / tool, WORK / tool)
    absent = {}
    for language in LANGUAGES:
        try:
            guestbook(language)
        except Absent as why:
            absent[f"guestbook-{language}"] = str(why)
    others = {
        "flask": flask_site,
        "gitweb": gitweb,
        "echo-native": echo,
        "echo-wasm": echo_wasm,
        "tortuga-echo": tortuga_echo,
        "document": document,
        "php": php,
    }
    for name, make in others.items():
        try:
            make()
        except Absent as why:
            absent[name] = str(why)
    return absent


def echo():
    run_or_absent(["cc", "-O2", "-D_DEFAULT_SOURCE", "-o", cgi("echo"), ECHO])


def echo_wasm():
    """The same source as a module."""
    to = SITE / "cgi-bin" / "echo.wasm"
    run_or_absent(["clang", "--target=wasm32-wasi", "-O2", "-D_DEFAULT_SOURCE", "-o", to, ECHO])


def tortuga_echo():
    """The module that Tortuga's own benchmark runs, out of its crate as cargo unpacked it."""
    home = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo"))
    found = sorted(home.glob("registry/src/*/tortuga-*/examples/echo.wcgi"))
    if not found:
        raise Absent("no source of Tortuga in cargo's registry: cargo fetch it")
    shutil.copy(found[-1], SITE / "cgi-bin" / "tortuga-echo.wcgi")


def flask_site():
    """In a virtual environment, as such sites are; CGI is Python's wsgiref."""
    if not PYTHON.exists():
        raise Absent(f"no {PYTHON}: bench/run makes it")
    text = (PROGRAMS / "site.py").read_text()
    cgi("flask").write_text(text.replace("#!/usr/bin/env python3", f"#!{PYTHON}", 1))
    cgi("flask").chmod(0o755)
    first_page("flask", PATH_INFO="/", SCRIPT_NAME="/cgi-bin/flask.cgi", **HTTP)


GITWEB = Path("/usr/share/gitweb/gitweb.cgi")
HTTP = {"SERVER_NAME": "localhost", "SERVER_PORT": "80", "SERVER_PROTOCOL": "HTTP/1.1"}


def gitweb():
    """As packaged, with the name of its configuration filled in: not every server can be told to
    pass a variable on."""
    if not GITWEB.exists():
        raise Absent(f"no {GITWEB}")
    for number in range(REPOSITORIES):
        repository(SITE / "git" / f"project{number}.git")
    conf = SITE / "gitweb.conf"
    conf.write_text(f"our $projectroot = '{SITE / 'git'}';\n1;\n")
    text = GITWEB.read_text().replace('"gitweb_config.perl"', f'"{conf}"')
    cgi("gitweb").write_text(text)
    cgi("gitweb").chmod(0o755)
    first_page("gitweb", SCRIPT_NAME="/cgi-bin/gitweb.cgi", **HTTP)


def repository(bare):
    """One commit, of the servers' user: git reads no repository of somebody else's."""
    bare.mkdir(parents=True)
    if os.geteuid() == 0:
        os.chown(bare, account().pw_uid, account().pw_gid)
    who = [f"GIT_{role}_{what}" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")]
    env = {"PATH": "/usr/bin:/bin"} | dict.fromkeys(who, "ada@example.org")
    script = "git init -q --bare . && t=$(git write-tree) && c=$(git commit-tree -m first $t) && git update-ref HEAD $c"
    made = process.spawn(["sh", "-c", script], account=account(), env=env, cwd=bare)
    if made.wait() != 0:
        raise Absent("git made no repository")


def document():
    """The FastCGI program that sends documents; not in cgi-bin, where it does not belong."""
    run_or_absent(["cc", "-O2", "-o", WORK / "document", PROGRAMS / "document.c", "-lfcgi"])


def php():
    if php_fpm() is None:
        raise Absent("no php-fpm")
    for name, text in PHP.items():
        (SITE / "php" / f"{name}.php").write_text(text)


def public():
    """The folder of the files: on tmpfs, as memory is what a document handed over is compared with, unless that has
    no room; away when the run is over."""
    memory, here = Path("/dev/shm"), SITE / "files"
    room = 2 * sum((FILE_SIZES | DOCUMENT_SIZES).values())
    if not memory.is_dir() or shutil.disk_usage(memory).free < room:
        here.mkdir()
        return here
    away = Path(tempfile.mkdtemp(prefix="galgo-bench-", dir=memory))
    atexit.register(shutil.rmtree, away, ignore_errors=True)
    away.chmod(0o755)
    # Tortuga runs programs in the folder of the files: what lies beside it must lie beside it there, too.
    (away / "data").symlink_to(SITE / "data")
    (away / "public").mkdir()
    return away / "public"


def write_files(public):
    index = b"<!DOCTYPE html><title>galgo bench</title><p>An index page.\n"
    (public / "index.html").write_bytes(index.ljust(612, b" "))  # as long as nginx's own
    (public / "pixel.gif").write_bytes(PIXEL)
    for name, size in (FILE_SIZES | DOCUMENT_SIZES).items():
        (public / file_name(name)).write_bytes(b"s" * size)


def file_name(size):
    return size.replace(" ", "") + ".bin"


def run_or_absent(argv, **options):
    try:
        done = subprocess.run(
            [str(word) for word in argv], capture_output=True, text=True, **options
        )
    except OSError as error:
        raise Absent(str(error)) from error
    if done.returncode != 0:
        raise Absent((done.stderr or done.stdout).strip().splitlines()[-1][:200])


def compile_c(name, *flags):
    run_or_absent(["cc", "-O2", *flags, "-o", cgi(name), PROGRAMS / f"{name}.c"])


def cgi(name):
    """The program's file. All end in .cgi: Tortuga starts nothing else."""
    return SITE / "cgi-bin" / f"{name}.cgi"


def install(name, source):
    shutil.copy(source, cgi(name))
    cgi(name).chmod(0o755)


def guestbook(language):
    """Puts one guestbook of examples/ into the site, or raises Absent."""
    folder = EXAMPLES / "guestbook"
    source = folder / SOURCES[language]
    if not source.exists():
        raise Absent(f"no {source.relative_to(EXAMPLES.parent)}")
    BUILDERS.get(language, install)(f"guestbook-{language}", source)
    first_page(f"guestbook-{language}")


SOURCES = {
    "c": "guestbook.c",
    "rust": "rust/Cargo.toml",
    "go": "go/go.mod",
    "python": "guestbook.py",
    "perl": "guestbook.pl",
    "node": "node/guestbook.js",
    "bash": "guestbook.sh",
}


def build_c(name, source):
    run_or_absent(["cc", "-O2", "-o", cgi(name), source, "-lsqlite3"])


def build_rust(name, source):
    target = TOOLS / "guestbook-rust"
    argv = ["cargo", "build", "--release", "--manifest-path", source, "--target-dir", target]
    run_or_absent(argv)
    binaries = [f for f in (target / "release").iterdir() if f.is_file() and os.access(f, os.X_OK)]
    if len(binaries) != 1:
        raise Absent(f"cargo built {len(binaries)} programs")
    install(name, binaries[0])


def build_go(name, source):
    run_or_absent(["go", "build", "-o", cgi(name), "."], cwd=source.parent)


def build_node(name, source):
    """Node looks for packages in the folders above the program: node_modules goes there."""
    home = TOOLS / "guestbook-node"
    shutil.copytree(source.parent, home, dirs_exist_ok=True)
    locked = (home / "package-lock.json").exists()
    if not (home / "node_modules").exists():
        run_or_absent(["npm", "ci" if locked else "install", "--no-audit", "--no-fund"], cwd=home)
    if (home / "node_modules").exists():
        shutil.copytree(home / "node_modules", SITE / "node_modules", symlinks=True)
    install(name, source)


BUILDERS = {"c": build_c, "rust": build_rust, "go": build_go, "node": build_node}


def request(name, **variables):
    """One request without a server, as the servers' user. Returns what the program printed."""
    body = variables.pop("body", "")
    env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "QUERY_STRING": ""} | variables
    child = process.spawn(
        [cgi(name)],
        account=account(),
        env=env,
        cwd=SITE / "cgi-bin",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        out, err = child.communicate(body.encode(), timeout=30)
    except subprocess.TimeoutExpired as error:
        child.kill()
        raise Absent("does not answer within 30 s") from error
    if child.returncode != 0 or not out:
        reason = err.decode(errors="replace").strip().splitlines() or ["prints nothing"]
        raise Absent(f"exit status {child.returncode}: {reason[-1][:200]}")
    return out


def first_page(name, **variables):
    """A program that cannot run here is absent, not slow."""
    try:
        request(name, REQUEST_METHOD="GET", **variables)
    except (OSError, Absent) as why:
        cgi(name).unlink()
        raise Absent(f"does not run: {why}") from why


def replace_data(files=()):
    """Another data/ with copies of `files`, at once: a program that somebody who has left is still owed finds
    the old folder or the new one, and none without the book, where it would begin one of its own."""
    folder = Path(tempfile.mkdtemp(prefix="data-", dir=SITE))
    folder.chmod(0o755)
    for file in files:
        shutil.copy(file, folder)
    if os.geteuid() == 0:
        for path in [folder, *folder.iterdir()]:
            os.chown(path, account().pw_uid, account().pw_gid)
    data, next_one = SITE / "data", SITE / "data.next"
    old = data.resolve() if data.is_symlink() else None
    next_one.symlink_to(folder.name)
    next_one.replace(data)
    if old:
        shutil.rmtree(old, ignore_errors=True)


def fresh_guestbook(entries=100):
    """A database with as many entries as a page shows: a page is as long after a million
    signatures as at the start."""
    replace_data()
    programs = [f"guestbook-{name}" for name in LANGUAGES]
    for name in [name for name in programs if cgi(name).exists()][:1]:
        form = {
            "CONTENT_TYPE": "application/x-www-form-urlencoded",
            "CONTENT_LENGTH": str(len(SIGNING)),
        }
        for _ in range(entries):
            request(name, REQUEST_METHOD="POST", body=SIGNING, **form)
    shutil.rmtree(BOOK, ignore_errors=True)
    shutil.copytree(SITE / "data", BOOK)


def same_guestbook():
    """The guestbook as fresh_guestbook() left it: who answers eight times as often as others signs eight
    times as often, and nobody shall find what another left, not even a journal of a process that was
    killed."""
    replace_data(BOOK.iterdir())
    os.sync()  # what one has written, the next does not wait for


# What is asked of a server, and what it must answer -------------------------------------


def bare(server):
    return Target(server.program("bare"), length=34, contains=(b"without libc",))


def line(server):
    return Target(server.program("line"), length=31, contains=(b"with libc",))


def debug(server):
    told = (b"PATH_INFO=/extra/path\n", b"QUERY_STRING=foo+bar+--me%202\n")
    return Target(server.program("debug", "/extra/path?foo+bar+--me%202"), contains=told)


def printed(size):
    return lambda server: Target(
        server.program("bytes", f"?{FILE_SIZES[size]}"), length=FILE_SIZES[size]
    )


def echoed(program):
    """A POST that a program in cgi-bin sends back."""
    return lambda server: Target(
        f"/cgi-bin/{program}", length=len(SIGNING), contains=(SIGNING.encode(),),
        method="POST", body=SIGNING,
    )


def stored(size):
    length = (FILE_SIZES | DOCUMENT_SIZES)[size]
    return lambda server: Target("/" + file_name(size), length=length)


def served(size):
    """By a FastCGI program, from its memory."""
    length = DOCUMENT_SIZES[size]
    return lambda server: Target(f"/document/?{length}", length=length)


def handed(size):
    """Named by a FastCGI program, in place of a body."""
    path = f"/document/?X-Sendfile={file_name(size)}"
    return lambda server: Target(path, length=DOCUMENT_SIZES[size])


def php_page(name, length):
    return lambda server: Target(f"/php/{name}.php", length=length)


def index(server):
    return Target(server.index, length=612, contains=(b"An index page",))


def pixel(server):
    return Target(server.pixel, length=43, contains=(b"GIF89a",))


def flask_page(server):
    return Target(server.program("flask", "/list"), contains=(b"<li>entry 19 of 20",))


def projects(server):
    return Target(server.program("gitweb"), contains=(b"project0.git", b"project4.git"))


def reading(language):
    return lambda server: Target(server.program(f"guestbook-{language}"), contains=(GREETING,))


def signing(language):
    return lambda server: Target(
        server.program(f"guestbook-{language}"), status=303, method="POST", body=SIGNING
    )
