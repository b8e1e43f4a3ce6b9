"""Servers that are measured in turns by the scripts beside this file."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

CORES = os.cpu_count()


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Server:
    """One that runs. `words` start it and may name {port}, {plain} and {folder}, as its configuration may."""

    def __init__(self, name, folder, words, config, answers, **more):
        self.name, self.folder, self.port, self.plain = name, folder, free_port(), free_port()
        file = folder / f"{name}.conf"
        values = {"port": self.port, "plain": self.plain, "folder": folder, "cores": CORES, "file": file, **more}
        file.write_text(config.format(**values))
        words = [word.format(**values) for word in words]
        environment = os.environ | {"HOME": str(folder), "XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
        self.process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
        deadline = time.monotonic() + 10
        while not self.does(answers):
            if time.monotonic() > deadline or self.process.poll() is not None:
                sys.exit(f"{name} does not start")
            time.sleep(0.05)

    def does(self, answers):
        try:
            return answers(self)
        except OSError:
            return False

    def processes(self):
        """Its own and those of its children."""
        parents = {}
        for entry in Path("/proc").glob("[0-9]*/stat"):
            try:
                parents[int(entry.parent.name)] = int(entry.read_text().rpartition(")")[2].split()[1])
            except OSError:
                pass
        ours, found = {self.process.pid}, set()
        while ours - found:
            found |= ours
            ours |= {pid for pid, parent in parents.items() if parent in ours}
        return found

    def read(self, file):
        """A file of /proc of each of its processes. A program may have ended meanwhile."""
        for pid in self.processes():
            try:
                yield Path(f"/proc/{pid}/{file}").read_text()
            except OSError:
                pass

    def seconds(self):
        """Processor time so far."""
        words = [text.rpartition(")")[2].split() for text in self.read("stat")]
        return sum(int(w[11]) + int(w[12]) for w in words) / os.sysconf("SC_CLK_TCK")

    def memory(self):
        """Private memory, KiB."""
        texts = self.read("smaps_rollup")
        return sum(int(n) for text in texts for n in re.findall(r"^Private_\w+: +(\d+) kB", text, re.M))

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def run(words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    return done.stdout + done.stderr


def wrk(target, at="http://127.0.0.1:{port}", clients=16, fields={}):
    """Requests a second of wrk at a server's port."""

    def measure(server, seconds):
        url = at.format(port=server.port, plain=server.plain) + target
        threads = min(2, clients)
        words = ["wrk", f"-t{threads}", f"-c{clients}", f"-d{max(1, round(seconds))}s", "--timeout", "10s", "--latency"]
        out = run(words + [f"-H{name}: {value}" for name, value in fields.items()] + [url])
        if "Non-2xx" in out or "Requests/sec" not in out:
            raise RuntimeError(out[-300:])
        half = re.search(r"50% +([\d.]+)(us|ms|s)", out)
        scale = {"us": 1e-3, "ms": 1, "s": 1e3}[half[2]]
        return float(re.search(r"Requests/sec: +([\d.]+)", out)[1]), {"p50_us": float(half[1]) * scale * 1e3}

    return measure


def median(values):
    values = sorted(values)
    middle = len(values) // 2
    return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2


def measure(servers, rows, args, only={}):
    """Rates by row and server, the servers in turns, back and forth. `only` names the servers of a row that not all have."""
    rates, more = {}, {}
    for number in range(args.rounds):
        for row, work in rows.items():
            for server in servers if number % 2 == 0 else servers[::-1]:
                if server.name not in only.get(row, [server.name]):
                    continue
                rate, others = work(server, args.seconds)
                rates.setdefault((row, server.name), []).append(rate)
                for name, value in others.items():
                    more.setdefault((row, server.name, name), []).append(value)
            print(f"round {number + 1}: {row}", file=sys.stderr)
    return rates, more


def report(rates, more, base):
    for (row, name), values in rates.items():
        line = f"{row:20} {name:10} {median(values):12,.1f} ({min(values):,.1f} to {max(values):,.1f})"
        other = rates.get((row, base))
        if name != base and other:
            line += f"  {median([a / b for a, b in zip(values, other)]):.2f} of {base}"
        line += "".join(f"  {what} {median(v):,.0f}" for (r, n, what), v in more.items() if (r, n) == (row, name))
        print(line)


def keep(rates, file):
    Path(file).write_text(json.dumps([[*key, values] for key, values in rates.items()], indent=1) + "\n")
