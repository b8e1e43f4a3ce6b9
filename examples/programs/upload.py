#!/usr/bin/env python3
"""A form that takes files, and tells their sizes and SHA-256 sums."""

import email.policy
import hashlib
import os
import sys
from email.parser import BytesParser
from html import escape

LIMIT = 32 * 1024 * 1024  # bytes: the whole form is held in memory

PAGE = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Upload</title>
<link rel="stylesheet" href="/style.css">
<h1>Upload</h1>
<form method="post" enctype="multipart/form-data">
<label>Files <input type="file" name="file" multiple required></label>
<button>Send</button>
</form>
"""


def reply(page, status="200 OK"):
    head = f"Status: {status}\nContent-Type: text/html; charset=utf-8\n\n"
    sys.stdout.buffer.write((head + PAGE + page).encode("utf-8", "replace"))
    sys.exit()


def files():
    """The files of a multipart/form-data body: (name, bytes) of each."""
    media_type = os.environ.get("CONTENT_TYPE", "")
    if not media_type.lower().startswith("multipart/form-data;"):
        reply("<p role=alert>This is not the form of this page.</p>\n", "415 Unsupported Media Type")
    body = sys.stdin.buffer.read(LIMIT + 1)
    if len(body) > LIMIT:
        reply("<p role=alert>That is more than 32 MiB.</p>\n", "413 Content Too Large")
    head = f"Content-Type: {media_type}\r\n\r\n".encode("latin-1", "replace")
    form = BytesParser(policy=email.policy.HTTP).parsebytes(head + body)
    for part in form.iter_parts():
        if part.get_filename():
            yield part.get_filename(), part.get_payload(decode=True) or b""


if os.environ.get("REQUEST_METHOD") != "POST":
    reply("")
rows = "".join(
    f"<tr><td>{escape(name)}<td>{len(data):,}<td><code>{hashlib.sha256(data).hexdigest()}</code>\n"
    for name, data in files()
)
reply(f"<table>\n<tr><th>Name<th>Bytes<th>SHA-256\n{rows}</table>\n")
