"""Where things are. Everything that is built or written while measuring lies below .build."""

import os
import pwd
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BENCH = ROOT / "bench"
PEERS = BENCH / "peers"
PROGRAMS = BENCH / "programs"
EXAMPLES = Path(os.environ.get("GALGO_EXAMPLES", ROOT / "examples"))  # another checkout's
BUILD = ROOT / ".build"
WORK = BUILD / "bench"  # run-time files of the servers: emptied at every start
TOOLS = BUILD / "bench-tools"  # floor, drain, the ballast, the Go peers
CARGO = BUILD / "cargo" / "bin"  # tortuga, oha
PYTHON = BUILD / "bench-site" / "bin" / "python"  # with the packages of programs
RUNS = BENCH / "runs"

CORES = len(os.sched_getaffinity(0))
# Processes of FastCGI programs: each serves one connection at a time, and servers keep 16 a core.
DOCUMENT_PROCESSES = 16 * CORES + 32
PHP_PROCESSES = 16 * CORES


def account():
    """The user that servers run as: www-data when we are root, else whoever we are."""
    if os.geteuid() == 0:
        return pwd.getpwnam("www-data")
    return pwd.getpwuid(os.geteuid())


def redact(text):
    """Takes this machine's paths out of a text that will be published."""
    return str(text).replace(str(ROOT), "").replace(str(Path.home()), "~")
