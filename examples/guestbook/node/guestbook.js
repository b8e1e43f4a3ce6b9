#!/usr/bin/env node
// A guestbook: GET lists the newest 100 entries, POST signs.
"use strict";

const fs = require("node:fs");
const { DatabaseSync } = require("@photostructure/sqlite"); // from Node 22.5 on: node:sqlite

const BODY_LIMIT = 16 * 1024; // bytes

const PAGE = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Guestbook</title>
<link rel="stylesheet" href="/style.css">
<h1>Guestbook</h1>
`;
const FORM = `<form method="post">
<label>Name <input name="name" maxlength="64" required></label>
<label>Message <textarea name="message" maxlength="1000" rows="4" required></textarea></label>
<button>Sign</button>
</form>
`;

/** A request that gets an error page: a status line and what is wrong. */
class Refused extends Error {
  constructor(status, sentence) {
    super(sentence);
    this.status = status;
  }
}

function respond() {
  switch (process.env.REQUEST_METHOD) {
    case "GET":
    case "HEAD":
      return list();
    case "POST":
      return sign();
  }
  throw new Refused("405 Method Not Allowed\nAllow: GET, HEAD, POST", "Only GET, HEAD and POST work here.");
}

function list() {
  const entries = database()
    .prepare("SELECT name, signed_at, message FROM entry ORDER BY id DESC LIMIT 100")
    .all()
    .map(
      ({ name, signed_at, message }) => `<article>
<h2>${escape(name)} <time>${signed_at}</time></h2>
<p>${escape(message)}</p>
</article>
`,
    );
  return `Content-Type: text/html; charset=utf-8\n\n${PAGE}${FORM}${entries.join("")}`;
}

function sign() {
  const form = readForm();
  const name = check(form, "name", 64, /\p{Cc}/u);
  const message = check(form, "message", 1000, /(?!\n)\p{Cc}/u);
  database().prepare("INSERT INTO entry (name, message) VALUES (?, ?)").run(name, message);
  return `Status: 303 See Other\nLocation: ${process.env.SCRIPT_NAME}\n\n`;
}

function database() {
  const db = new DatabaseSync(process.env.GUESTBOOK_DB || "../data/guestbook.db");
  db.exec(`
    PRAGMA busy_timeout = 5000;
    CREATE TABLE IF NOT EXISTS entry (
      id INTEGER PRIMARY KEY,
      signed_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%SZ', 'now')),
      name TEXT NOT NULL,
      message TEXT NOT NULL)`);
  return db;
}

/** The fields of the form. Of a repeated field the first counts. */
function readForm() {
  const mediaType = (process.env.CONTENT_TYPE ?? "").split(";")[0].trim().toLowerCase();
  if (mediaType !== "application/x-www-form-urlencoded") {
    throw new Refused("415 Unsupported Media Type", "This is not the form of this page.");
  }
  const body = readBody();
  const form = new Map();
  try {
    const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(body);
    for (const pair of text.replaceAll("+", " ").split("&")) {
      const [key, ...value] = pair.split("=").map(decodeURIComponent);
      if (!form.has(key)) form.set(key, value.join("="));
    }
  } catch {
    throw new Refused("400 Bad Request", "The form is not percent-encoded UTF-8.");
  }
  return form;
}

/** The request body. Without CONTENT_LENGTH it lasts until the end of the input. */
function readBody() {
  const announced = process.env.CONTENT_LENGTH ? Number(process.env.CONTENT_LENGTH) : undefined;
  const body = Buffer.alloc(Math.min(announced ?? Infinity, BODY_LIMIT + 1));
  let received = 0;
  for (let n = 1; n > 0 && received < body.length; received += n) {
    n = fs.readSync(0, body, received, body.length - received, null);
  }
  if (received > BODY_LIMIT) {
    throw new Refused("413 Content Too Large", "The form is larger than 16 KiB.");
  }
  if (announced !== undefined && received < announced) {
    throw new Refused("400 Bad Request", "The form arrived incomplete.");
  }
  return body.subarray(0, received);
}

/** A field without the blanks around it, its line ends as LF. */
function check(form, name, limit, unwanted) {
  const text = (form.get(name) ?? "").replace(/\r\n?/g, "\n").replace(/^[ \n]+|[ \n]+$/g, "");
  const refuse = (sentence) => {
    throw new Refused("400 Bad Request", `The ${name} ${sentence}`);
  };
  if (text === "") refuse("is empty.");
  if ([...text].length > limit) refuse(`is longer than ${limit} characters.`);
  if (unwanted.test(text)) refuse("contains control characters.");
  return text;
}

function escape(text) {
  const entities = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;" };
  return text.replace(/[&<>"']/g, (character) => entities[character]);
}

let response;
try {
  response = respond();
} catch (error) {
  if (!(error instanceof Refused)) throw error;
  response = `Status: ${error.status}\nContent-Type: text/html; charset=utf-8\n\n${PAGE}\
<p role="alert">${error.message}</p>\n<p><a href="">Back to the guestbook</a></p>\n`;
}
fs.writeFileSync(1, response);
