//! Lines of the access log, one for each request: Combined, or JSON.

use std::{
    fmt::Write as _,
    rc::Rc,
    sync::Arc,
    time::{Duration, SystemTime},
};

use galgo_proto::h1::Head;
use galgo_spawn::{Exit, Status, words::is_hidden};
use tokio::time::Instant;

use super::time;
use crate::{
    id::Id,
    log::{log_settings::LogFormat, route_logs::OwnLog},
};

/// The data of a request for its line in the access log.
#[derive(Debug, Clone)]
pub struct AccessEntry {
    /// The time at which the head was complete.
    pub began: Instant,
    /// The request's id.
    pub id: Id,
    /// The client's address; `unix` for a Unix socket.
    pub remote: Rc<str>,
    /// The user, if the client has proved one.
    pub user: Option<Box<str>>,
    /// The head; `None` if it could not be parsed.
    pub head: Option<Rc<Head>>,
    /// The status that was sent, or would have been sent.
    pub status: u16,
    /// Bytes of body that were sent.
    pub bytes: u64,
    /// A word: `ok`, or the reason of a failure.
    pub outcome: &'static str,
    /// Time spent waiting for a permit to run a program.
    pub queue: Duration,
    /// Time to start the process; without its execve, if the start does not wait for that.
    pub start: Duration,
    /// Time from the head to the first byte of the response.
    pub first_byte: Duration,
    /// Time from the head to the last byte of the response.
    pub total: Duration,
    /// The program's exit.
    pub exit: Option<Exit>,
    /// The log for the line; `None`: the server's access log.
    pub log: Option<Arc<OwnLog>>,
}

impl AccessEntry {
    /// Returns the entry for a head that has come from `remote`.
    pub fn new(id: Id, remote: Rc<str>, head: Option<Rc<Head>>) -> Self {
        Self {
            began: Instant::now(),
            id,
            remote,
            user: None,
            head,
            status: 0,
            bytes: 0,
            outcome: "ok",
            queue: Duration::ZERO,
            start: Duration::ZERO,
            first_byte: Duration::ZERO,
            total: Duration::ZERO,
            exit: None,
            log: None,
        }
    }

    /// Appends the line to `out`.
    pub fn append_line(&self, format: LogFormat, out: &mut Vec<u8>) {
        let line = match format {
            LogFormat::Combined => self.format_combined(),
            LogFormat::HostCombined => self.host_prefix() + &self.format_combined(),
            LogFormat::Json => self.format_json(),
        };
        out.extend_from_slice(line.as_bytes());
    }

    /// Returns the wall-clock time of the head, computed only for requests that are logged.
    fn wall_clock_time(&self) -> SystemTime {
        let now = SystemTime::now();
        now.checked_sub(self.began.elapsed()).unwrap_or(now)
    }

    fn request_line(&self) -> String {
        let Some(head) = &self.head else {
            return "-".into();
        };
        let (method, version) = (head.method.as_str(), head.version.as_str());
        format!("{method} {} {version}", head.target.raw)
    }

    fn field_or_dash<'a>(&'a self, name: &'a str) -> &'a [u8] {
        let head = self.head.as_ref();
        head.and_then(|h| h.fields.first_value(name))
            .unwrap_or(b"-")
    }

    /// Returns the requested host, as a separate field.
    fn host_prefix(&self) -> String {
        let mut line = String::new();
        push_name_field(&mut line, self.head.as_ref().map(|head| &*head.host));
        line.push(' ');
        line
    }

    fn format_combined(&self) -> String {
        let mut line = format!("{} - ", self.remote);
        push_name_field(&mut line, self.user.as_deref());
        let _ = write!(line, " [{}] \"", time::format_clf(self.wall_clock_time()));
        push_quoted(&mut line, self.request_line().as_bytes());
        let _ = match self.bytes {
            // Common Log Format, as Apache writes it (`%b`).
            0 => write!(line, "\" {} - \"", self.status),
            bytes => write!(line, "\" {} {bytes} \"", self.status),
        };
        push_quoted(&mut line, self.field_or_dash("referer"));
        line.push_str("\" \"");
        push_quoted(&mut line, self.field_or_dash("user-agent"));
        line.push_str("\"\n");
        line
    }

    fn format_json(&self) -> String {
        let mut line = format!(
            "{{\"time\":\"{}\",\"id\":\"{}\"",
            time::format_rfc3339(self.wall_clock_time()),
            &*self.id.to_base32()
        );
        let head = self.head.as_deref();
        push_json_string(&mut line, "remote", self.remote.as_bytes());
        if let Some(user) = &self.user {
            push_json_string(&mut line, "user", user.as_bytes());
        }
        let asked = head.map(|h| [&*h.host, h.method.as_str(), &*h.target.raw]);
        let [host, method, target] = asked.unwrap_or_default();
        push_json_string(&mut line, "host", host.as_bytes());
        push_json_string(&mut line, "method", method.as_bytes());
        push_json_string(&mut line, "target", target.as_bytes());
        push_json_string(&mut line, "referer", self.field_or_dash("referer"));
        push_json_string(&mut line, "user_agent", self.field_or_dash("user-agent"));
        push_json_string(&mut line, "outcome", self.outcome.as_bytes());
        let _ = write!(line, ",\"status\":{},\"bytes\":{}", self.status, self.bytes);
        push_json_millis(&mut line, "queue_ms", self.queue);
        push_json_millis(&mut line, "start_ms", self.start);
        push_json_millis(&mut line, "first_byte_ms", self.first_byte);
        push_json_millis(&mut line, "total_ms", self.total);
        if let Some(exit) = &self.exit {
            let _ = match exit.status {
                Status::Code(code) => write!(line, ",\"exit\":{code}"),
                Status::Signal(signal) => write!(line, ",\"signal\":{signal}"),
            };
            push_json_millis(&mut line, "user_ms", exit.user);
            push_json_millis(&mut line, "system_ms", exit.system);
            let _ = write!(line, ",\"max_rss\":{}", exit.max_rss);
        }
        line.push_str("}\n");
        line
    }
}

/// Appends the name of a user or host as a separate field; a space in it is escaped.
fn push_name_field(line: &mut String, name: Option<&str>) {
    let from = line.len();
    let name = name.filter(|name| !name.is_empty()).unwrap_or("-");
    push_quoted(line, name.as_bytes());
    if line[from..].contains(' ') {
        let name = line.split_off(from).replace(' ', "\\x20");
        line.push_str(&name);
    }
}

/// Appends `bytes` so that they cannot end a quoted field or a line.
fn push_quoted(line: &mut String, bytes: &[u8]) {
    for &b in bytes {
        match b {
            b'"' | b'\\' => {
                line.push('\\');
                line.push(char::from(b));
            }
            b' '..=b'~' => line.push(char::from(b)),
            b => {
                let _ = write!(line, "\\x{b:02x}");
            }
        }
    }
}

/// Appends a JSON member: milliseconds.
fn push_json_millis(line: &mut String, name: &str, time: Duration) {
    let _ = write!(line, ",\"{name}\":{:.3}", time.as_secs_f64() * 1e3);
}

/// Appends a JSON string member (RFC 8259, 7). Bytes that are not UTF-8 become U+FFFD.
fn push_json_string(line: &mut String, name: &str, value: &[u8]) {
    let _ = write!(line, ",\"{name}\":\"");
    for c in String::from_utf8_lossy(value).chars() {
        match c {
            '"' | '\\' => line.extend(['\\', c]),
            c if is_hidden(c) => {
                let _ = write!(line, "\\u{:04x}", u32::from(c));
            }
            c => line.push(c),
        }
    }
    line.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_byte_ends_a_field() {
        let mut line = String::new();
        push_quoted(&mut line, b"a\"b\\c\nd\xff");
        assert_eq!(line, "a\\\"b\\\\c\\x0ad\\xff");
        let mut line = String::new();
        push_name_field(&mut line, Some("a b\n"));
        assert_eq!(line, "a\\x20b\\x0a");
        let mut line = String::new();
        push_json_string(&mut line, "k", b"\"\n\xff\\");
        assert_eq!(line, ",\"k\":\"\\\"\\u000a\u{fffd}\\\\\"");
    }
}
