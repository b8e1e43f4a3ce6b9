#!/usr/bin/env python3
"""A guestbook: GET lists the newest 100 entries, POST signs."""

import os
import re
import sqlite3
import sys
from html import escape
from urllib.parse import parse_qsl

BODY_LIMIT = 16 * 1024  # bytes

PAGE = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Guestbook</title>
<link rel="stylesheet" href="/style.css">
<h1>Guestbook</h1>
"""
FORM = """\
<form method="post">
<label>Name <input name="name" maxlength="64" required></label>
<label>Message <textarea name="message" maxlength="1000" rows="4" required></textarea></label>
<button>Sign</button>
</form>
"""
ENTRY = """\
<article>
<h2>{} <time>{}</time></h2>
<p>{}</p>
</article>
"""


class Refused(Exception):
    """A request that gets an error page: a status line and what is wrong."""


def database():
    path = os.environ.get("GUESTBOOK_DB") or "../data/guestbook.db"
    db = sqlite3.connect(path, timeout=5, isolation_level=None)
    db.execute(
        """CREATE TABLE IF NOT EXISTS entry (
            id INTEGER PRIMARY KEY,
            signed_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%SZ', 'now')),
            name TEXT NOT NULL,
            message TEXT NOT NULL)"""
    )
    return db


def body():
    """The request body. Without CONTENT_LENGTH it lasts until the end of the input."""
    length = os.environ.get("CONTENT_LENGTH")
    data = sys.stdin.buffer.read(min(int(length or BODY_LIMIT + 1), BODY_LIMIT + 1))
    if len(data) > BODY_LIMIT:
        raise Refused("413 Content Too Large", "The form is larger than 16 KiB.")
    if length and len(data) < int(length):
        raise Refused("400 Bad Request", "The form arrived incomplete.")
    return data


def form():
    media_type = os.environ.get("CONTENT_TYPE", "").partition(";")[0].strip().lower()
    if media_type != "application/x-www-form-urlencoded":
        raise Refused("415 Unsupported Media Type", "This is not the form of this page.")
    data = body()
    try:
        if re.search(rb"%(?![0-9A-Fa-f]{2})", data):
            raise ValueError("stray percent sign")
        pairs = parse_qsl(data.decode(), keep_blank_values=True, errors="strict")
    except ValueError:  # UnicodeDecodeError is one
        raise Refused("400 Bad Request", "The form is not percent-encoded UTF-8.") from None
    return dict(reversed(pairs))  # of a repeated field the first counts


def field(fields, name, limit, allowed=""):
    """A field without the blanks around it, its line ends as LF."""
    text = fields.get(name, "").replace("\r\n", "\n").replace("\r", "\n").strip(" \n")
    if not text:
        raise Refused("400 Bad Request", f"The {name} is empty.")
    if len(text) > limit:
        raise Refused("400 Bad Request", f"The {name} is longer than {limit} characters.")
    if re.search(r"[\x00-\x1f\x7f-\x9f]", text.replace(allowed, "") if allowed else text):
        raise Refused("400 Bad Request", f"The {name} contains control characters.")
    return text


def sign():
    fields = form()
    entry = field(fields, "name", 64), field(fields, "message", 1000, allowed="\n")
    database().execute("INSERT INTO entry (name, message) VALUES (?, ?)", entry)
    return f"Status: 303 See Other\nLocation: {os.environ['SCRIPT_NAME']}\n\n"


def listing():
    rows = database().execute(
        "SELECT name, signed_at, message FROM entry ORDER BY id DESC LIMIT 100"
    )
    entries = (ENTRY.format(*map(escape, row)) for row in rows)
    return "Content-Type: text/html; charset=utf-8\n\n" + PAGE + FORM + "".join(entries)


def respond():
    match os.environ.get("REQUEST_METHOD"):
        case "GET" | "HEAD":
            return listing()
        case "POST":
            return sign()
    raise Refused("405 Method Not Allowed\nAllow: GET, HEAD, POST", "Only GET, HEAD and POST work here.")


try:
    response = respond()
except Refused as refusal:
    status, sentence = refusal.args
    response = (
        f"Status: {status}\nContent-Type: text/html; charset=utf-8\n\n{PAGE}"
        f'<p role="alert">{sentence}</p>\n<p><a href="">Back to the guestbook</a></p>\n'
    )
sys.stdout.buffer.write(response.encode())
