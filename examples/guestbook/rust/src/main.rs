//! A guestbook: GET lists the newest 100 entries, POST signs.

use std::collections::HashMap;
use std::env;
use std::error::Error;
use std::fmt::Write as _;
use std::io::{self, Read, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use rusqlite::Connection;

const BODY_LIMIT: u64 = 16 * 1024; // bytes

const PAGE: &str = r#"<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Guestbook</title>
<link rel="stylesheet" href="/style.css">
<h1>Guestbook</h1>
"#;

const FORM: &str = r#"<form method="post">
<label>Name <input name="name" maxlength="64" required></label>
<label>Message <textarea name="message" maxlength="1000" rows="4" required></textarea></label>
<button>Sign</button>
</form>
"#;

const SCHEMA: &str = "CREATE TABLE IF NOT EXISTS entry (
    id INTEGER PRIMARY KEY,
    signed_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%SZ', 'now')),
    name TEXT NOT NULL,
    message TEXT NOT NULL)";

enum Failure {
    /// The request is wrong: a status line and a sentence for its error page.
    Refused(&'static str, String),
    /// Something here is wrong: for the server's log.
    Broken(Box<dyn Error>),
}

impl<E: Into<Box<dyn Error>>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Broken(error.into())
    }
}

fn bad_request(sentence: impl Into<String>) -> Failure {
    Failure::Refused("400 Bad Request", sentence.into())
}

fn main() -> ExitCode {
    let response = respond().or_else(|failure| match failure {
        Failure::Refused(status, sentence) => Ok(format!(
            "Status: {status}\nContent-Type: text/html; charset=utf-8\n\n{PAGE}\
             <p role=\"alert\">{sentence}</p>\n<p><a href=\"\">Back to the guestbook</a></p>\n"
        )),
        Failure::Broken(error) => Err(error),
    });
    match response.and_then(|text| Ok(io::stdout().write_all(text.as_bytes())?)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("guestbook: {error}");
            ExitCode::FAILURE
        }
    }
}

fn respond() -> Result<String, Failure> {
    match variable("REQUEST_METHOD").as_str() {
        "GET" | "HEAD" => list(),
        "POST" => sign(),
        _ => Err(Failure::Refused(
            "405 Method Not Allowed\nAllow: GET, HEAD, POST",
            "Only GET, HEAD and POST work here.".into(),
        )),
    }
}

fn list() -> Result<String, Failure> {
    let db = database()?;
    let mut query =
        db.prepare("SELECT name, signed_at, message FROM entry ORDER BY id DESC LIMIT 100")?;
    let mut rows = query.query([])?;
    let mut page = format!("Content-Type: text/html; charset=utf-8\n\n{PAGE}{FORM}");
    while let Some(row) = rows.next()? {
        let name = escape(row.get_ref(0)?.as_str()?);
        let signed_at = row.get_ref(1)?.as_str()?;
        let message = escape(row.get_ref(2)?.as_str()?);
        writeln!(
            page,
            "<article>\n<h2>{name} <time>{signed_at}</time></h2>\n<p>{message}</p>\n</article>"
        )?;
    }
    Ok(page)
}

fn sign() -> Result<String, Failure> {
    let mut form = read_form()?;
    let name = check(&mut form, "name", 64, char::is_control)?;
    let message = check(&mut form, "message", 1000, |c| c != '\n' && c.is_control())?;
    database()?.execute(
        "INSERT INTO entry (name, message) VALUES (?, ?)",
        (name, message),
    )?;
    Ok(format!(
        "Status: 303 See Other\nLocation: {}\n\n",
        variable("SCRIPT_NAME")
    ))
}

fn database() -> rusqlite::Result<Connection> {
    let path = Some(variable("GUESTBOOK_DB")).filter(|path| !path.is_empty());
    let db = Connection::open(path.unwrap_or("../data/guestbook.db".into()))?;
    db.busy_timeout(Duration::from_secs(5))?;
    db.execute_batch(SCHEMA)?;
    Ok(db)
}

/// The fields of the form. Of a repeated field the first counts.
fn read_form() -> Result<HashMap<String, String>, Failure> {
    let content_type = variable("CONTENT_TYPE");
    let media_type = content_type.split(';').next().unwrap_or_default().trim();
    if !media_type.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
        return Err(Failure::Refused(
            "415 Unsupported Media Type",
            "This is not the form of this page.".into(),
        ));
    }
    let mut form = HashMap::new();
    for pair in read_body()?.split(|&byte| byte == b'&') {
        let mut halves = pair.splitn(2, |&byte| byte == b'=').map(decode);
        let key = halves.next().flatten();
        let value = halves.next().unwrap_or(Some(String::new()));
        let (Some(key), Some(value)) = (key, value) else {
            return Err(bad_request("The form is not percent-encoded UTF-8."));
        };
        form.entry(key).or_insert(value);
    }
    Ok(form)
}

/// The request body. Without CONTENT_LENGTH it lasts until the end of the input.
fn read_body() -> Result<Vec<u8>, Failure> {
    let announced = variable("CONTENT_LENGTH").parse::<u64>().ok();
    let wanted = announced.unwrap_or(u64::MAX).min(BODY_LIMIT + 1);
    let mut body = Vec::new();
    let received = io::stdin().take(wanted).read_to_end(&mut body)? as u64;
    if received > BODY_LIMIT {
        let sentence = "The form is larger than 16 KiB.".into();
        return Err(Failure::Refused("413 Content Too Large", sentence));
    }
    if announced.is_some_and(|announced| received < announced) {
        return Err(bad_request("The form arrived incomplete."));
    }
    Ok(body)
}

/// Undoes the percent-encoding; `None` where that does not give UTF-8.
fn decode(text: &[u8]) -> Option<String> {
    let mut bytes = text.iter();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(&byte) = bytes.next() {
        decoded.push(match byte {
            b'+' => b' ',
            b'%' => {
                let mut digit = || char::from(*bytes.next()?).to_digit(16);
                (digit()? << 4 | digit()?) as u8
            }
            other => other,
        });
    }
    String::from_utf8(decoded).ok()
}

/// A field without the blanks around it, its line ends as LF.
fn check(
    form: &mut HashMap<String, String>,
    name: &str,
    limit: usize,
    unwanted: fn(char) -> bool,
) -> Result<String, Failure> {
    let text = form
        .remove(name)
        .unwrap_or_default()
        .replace("\r\n", "\n")
        .replace('\r', "\n");
    let text = text.trim_matches([' ', '\n']);
    if text.is_empty() {
        return Err(bad_request(format!("The {name} is empty.")));
    }
    if text.chars().count() > limit {
        return Err(bad_request(format!(
            "The {name} is longer than {limit} characters."
        )));
    }
    if text.contains(unwanted) {
        return Err(bad_request(format!(
            "The {name} contains control characters."
        )));
    }
    Ok(text.to_owned())
}

fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#x27;"),
            other => escaped.push(other),
        }
    }
    escaped
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_default()
}
