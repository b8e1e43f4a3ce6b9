"""Requests with an expected answer: a server that answers wrongly must not look fast."""

import http.client
from dataclasses import dataclass


class Wrong(Exception):
    """An answer that differs from what was asked for; the text says in what."""


@dataclass(frozen=True)
class Target:
    """One request and what its answer must be."""

    path: str
    status: int = 200
    length: int | None = None  # of the body, in bytes; None: it may vary
    contains: tuple[bytes, ...] = ()
    method: str = "GET"
    body: str | None = None

    @property
    def headers(self):
        return {"Content-Type": "application/x-www-form-urlencoded"} if self.body else {}


def fetch(server, target, timeout=30):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=timeout)
    try:
        connection.request(target.method, target.path, target.body, target.headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def check(server, target):
    """One request whose answer is looked at in full. Raises Wrong."""
    try:
        status, body = fetch(server, target)
    except (OSError, http.client.HTTPException) as error:
        raise Wrong(f"{type(error).__name__}: {error}".removesuffix(": ")) from error
    if status != target.status:
        raise Wrong(f"status {status}, expected {target.status}")
    if target.length is not None and len(body) != target.length:
        raise Wrong(f"{len(body)} bytes, expected {target.length}")
    for needle in target.contains:
        if needle not in body:
            raise Wrong(f"no {needle.decode()!r} in the body")


def check_bytes(target, result, connections):
    """The load generator's byte count must fit the number of answers.

    Between the body alone and the body with 2 KB of head and 2 % of chunk framing; answers
    that were under way at the end are counted in bytes but not in answers.
    """
    if target.length is None or not result["requests"]:
        return
    least = result["requests"] * target.length
    most = (result["requests"] + connections) * (target.length * 1.02 + 2048)
    if not least <= result["bytes"] <= most:
        each = result["bytes"] / result["requests"]
        raise Wrong(f"{each:.0f} bytes an answer under load, expected {target.length}")
