"""What was measured on and with: no host names, no paths."""

import datetime
import os
import platform
import re

from .paths import CARGO, CORES
from .servers import first_line, package_version


def describe():
    return {
        "cpu": cpu(),
        "cores": CORES,
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30),
        "system": system(),
        "as_root": os.geteuid() == 0,
    }


def cpu():
    with open("/proc/cpuinfo") as info:
        for line in info:
            if line.startswith(("model name", "Model")):
                return line.partition(":")[2].strip()
    return platform.machine()


def system():
    with open("/etc/os-release") as release:
        return dict(re.findall(r'^(\w+)="?(.*?)"?$', release.read(), re.M)).get("PRETTY_NAME", "")


def folder_name(machine):
    """<date>-<cpu>-<cores>c-linux-<kernel>, fit for a path."""
    kernel = ".".join(machine["kernel"].split(".")[:2])
    text = f"{machine['cpu']} {machine['cores']}c linux {kernel}".lower()
    name = re.sub(r"[^a-z0-9.]+", "-", re.sub(r"\((r|tm)\)", "", text)).strip("-")
    return f"{datetime.date.today():%Y-%m-%d}-{name}"


def tools():
    return {
        "wrk": package_version("wrk"),
        "ab": package_version("apache2-utils"),
        "oha": first_line([CARGO / "oha", "--version"]).removeprefix("oha "),
        "cc": first_line(["cc", "--version"]),
        "perl": first_line(["perl", "-e", "print $^V"]),
        "python3": first_line(["/usr/bin/python3", "--version"]),
    }
