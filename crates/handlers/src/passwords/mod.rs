//! Basic authentication (RFC 7617) by an htpasswd file.
//!
//! Steps:
//!
//! 1. Read the field.
//! 2. Read the file again if it has changed.
//! 3. Ask the memory whether the same password was right before.
//! 4. Wait for the client's turn.
//! 5. Verify the password in a thread of its own.
//! 6. Log a failure, and answer it late.
//!
//! An attacker learns nothing from the time. Whatever the name, a wrong password is verified against a hash of each cost in the
//! file. Failures are answered a second after their turn has come.

pub mod file;
pub mod hash;
mod memory;

use std::{io, ops::BitOr, path::Path, sync::Arc, time::Duration};

use base64::prelude::{BASE64_STANDARD, Engine};
use galgo_io::off_loop::off_loop;
use galgo_proto::{Fields, h1::Head};
use galgo_service::{body::Response, fault::Fault, log::Level, request::Request};
use galgo_spawn::readable::explain_denied;
use tokio::time::{Instant, sleep_until, timeout};

use crate::{context::Context, password_gate::VerifyPermit, status};
use file::{Users, UsersFile};
use memory::VerifiedPasswords;

/// Time from the turn of a wrong password to its answer. Only then does the next password of the same address get its turn.
const DELAY: Duration = Duration::from_secs(1);
/// SHA-512-crypt takes longer for longer passwords.
const LONGEST: usize = 1024;

/// Checks the passwords of a route.
#[derive(Debug)]
pub struct Passwords {
    file: Arc<UsersFile>,
    challenge: String,
    /// Users that may come in; `None`: all users of the file.
    allowed: Option<Vec<String>>,
    memory: VerifiedPasswords,
}

impl PartialEq for Passwords {
    fn eq(&self, other: &Self) -> bool {
        let own = (self.path(), &self.challenge, &self.allowed);
        own == (other.path(), &other.challenge, &other.allowed)
    }
}

/// A name and a password, as a client sent them.
struct Credentials {
    user: String,
    password: Vec<u8>,
}

impl Passwords {
    /// Opens the file at `path`. Only its users in `allowed` may come in; `None`: all of them. `realm` is visible ASCII without
    /// `"` and `\`.
    ///
    /// # Errors
    /// The file cannot be read, or the system gives no random numbers.
    pub fn open(path: &Path, realm: &str, allowed: Option<Vec<String>>) -> io::Result<Self> {
        Ok(Self {
            file: Arc::new(UsersFile::open(path)?),
            // RFC 7617, 2.1: names and passwords are UTF-8.
            challenge: format!("Basic realm=\"{realm}\", charset=\"UTF-8\""),
            allowed,
            memory: VerifiedPasswords::new()?,
        })
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Describes, in words, problems with the file.
    pub fn doubts(&self) -> Vec<String> {
        let users = self.file.last_users();
        let mut doubts = users.doubts.clone();
        if users.is_empty() {
            doubts.push("names no user: nobody can log in".into());
        }
        let missing = self.allowed.iter().flatten();
        let missing = missing.filter(|name| users.user_hash(name).is_none());
        doubts.extend(
            missing.map(|name| format!("has no user {name:?}, but `require` names that user")),
        );
        doubts
    }

    /// Checks whether the request may be answered. `Ok(None)`: yes, and the request is granted REMOTE_USER and AUTH_TYPE.
    ///
    /// # Errors
    /// The file cannot be read, or too many passwords wait to be verified.
    pub async fn check_credentials(
        &self,
        cx: Context<'_>,
        request: &mut Request<'_>,
        head: &Head,
    ) -> Result<Option<Response>, Fault> {
        let Some(shown) = credentials(&head.fields) else {
            return Ok(Some(self.deny_request(cx, request)));
        };
        let users = self.file.current_users().await.map_err(|e| {
            let path = self.path();
            Fault::Internal(match e.kind() {
                io::ErrorKind::PermissionDenied => explain_denied(path),
                _ => format!("passwords: {}: {e}", path.display()),
            })
        })?;
        if !self.is_right(cx, request, &users, &shown).await? {
            return Ok(Some(self.deny_request(cx, request)));
        }
        request.entry.borrow_mut().user = Some(shown.user.as_str().into());
        let user = shown.user.into_bytes();
        let granted = [("REMOTE_USER", user), ("AUTH_TYPE", b"Basic".to_vec())];
        let granted = granted.map(|(name, value)| (name.to_owned(), value));
        request.granted.extend(granted);
        Ok(None)
    }

    /// Returns whether name and password are right, and the user may come in.
    async fn is_right(
        &self,
        cx: Context<'_>,
        request: &Request<'_>,
        users: &Users,
        shown: &Credentials,
    ) -> Result<bool, Fault> {
        let known = users.user_hash(&shown.user);
        let allowed = self.allowed.as_ref();
        let may = known.is_some() && allowed.is_none_or(|names| names.contains(&shown.user));
        let tried = users.hashes_to_try(&shown.user);
        let Some(first) = tried.first() else {
            return Ok(false);
        };
        // The mark of an unknown name is never kept.
        let mark = self
            .memory
            .digest_credentials(&shown.user, first, &shown.password);
        if may && self.memory.is_verified(&mark) {
            return Ok(true);
        }
        let gate = &cx.shared.gate;
        let busy = |_| {
            Fault::Busy(
                "the password could not be verified within queue_wait: too many others wait",
            )
        };
        let wait = cx.shared.queue_wait;
        let peer = request.peer();
        let turn = timeout(wait, gate.await_turn(peer)).await.map_err(busy)??;
        // Meanwhile another request of the same page may have verified this password.
        if may && self.memory.is_verified(&mark) {
            return Ok(true);
        }
        let late = Instant::now() + DELAY;
        let permit = timeout(wait, gate.acquire_permit(peer))
            .await
            .map_err(busy)?;
        let fits = verify_off_loop(shown.password.clone(), tried, known.is_some(), permit).await?;
        if fits && may {
            self.memory.keep_verified(mark);
            gate.record_success(peer);
            return Ok(true);
        }
        let why = match (known, fits) {
            (None, _) => "there is no such user",
            (Some(_), false) => "wrong password",
            (Some(_), true) => "`require` does not name this user",
        };
        gate.record_failure(peer);
        log_failure(cx, request, &shown.user, why);
        sleep_until(late).await;
        drop(turn);
        Ok(false)
    }

    fn deny_request(&self, cx: Context<'_>, request: &Request<'_>) -> Response {
        let response = Response::new(401).with_field("WWW-Authenticate", &self.challenge);
        status::add_page(cx, request, response, None)
    }
}

/// Verifies a password in a thread of its own. The first of `tried` is the user's hash if the user `is_known`. A wrong password
/// takes as long as for any other name. `permit` bounds the threads.
async fn verify_off_loop(
    password: Vec<u8>,
    tried: Vec<Arc<str>>,
    is_known: bool,
    permit: Option<VerifyPermit>,
) -> Result<bool, Fault> {
    let verified = off_loop("passwords", move || {
        let verify = |hash: &Arc<str>| hash::verify_password(&password, hash);
        let mut tried = tried.iter().map(verify);
        let fits = is_known && tried.next() == Some(true);
        let _others = (!fits).then(|| tried.fold(false, BitOr::bitor));
        drop(permit);
        fits
    });
    verified
        .await
        .map_err(|e| Fault::Internal(format!("passwords: {e}")))
}

/// Logs the line that tools such as fail2ban look for (docs/configuration.md). The address stands before any text that the client
/// chose.
fn log_failure(cx: Context<'_>, request: &Request<'_>, user: &str, why: &str) {
    let about = format!("[{}]", &*request.id().to_base32());
    let remote = &request.link.remote;
    let words = format!("password failed for {remote}: {why}: {user:?}");
    cx.resources.errors.write(Level::Warn, &about, &words);
}

/// Reads the credentials of a request; `None` if there are none, or if they cannot be right.
fn credentials(fields: &Fields) -> Option<Credentials> {
    let mut all = fields.all_values("authorization");
    let (Some(field), None) = (all.next(), all.next()) else {
        return None;
    };
    let (scheme, token) = str::from_utf8(field).ok()?.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = BASE64_STANDARD.decode(token.trim_ascii()).ok()?;
    let colon = memchr::memchr(b':', &decoded)?;
    let user = str::from_utf8(&decoded[..colon]).ok()?.to_owned();
    let password = decoded[colon + 1..].to_vec();
    let fits = !user.chars().any(char::is_control) && password.len() <= LONGEST;
    fits.then_some(Credentials { user, password })
}

#[cfg(test)]
mod tests {
    use crate::passwords::*;

    #[test]
    fn s2_credentials() {
        let shown = |values: &[&str]| {
            let mut fields = Fields::new();
            values.iter().for_each(|v| fields.push("Authorization", v));
            credentials(&fields).map(|c| (c.user, c.password))
        };
        let basic = |text: &[u8]| format!("Basic {}", BASE64_STANDARD.encode(text));
        let ada = |password: &[u8]| Some(("ada".to_owned(), password.to_vec()));
        assert_eq!(shown(&[&basic(b"ada:se:cret")]), ada(b"se:cret"));
        assert_eq!(shown(&["bAsIc  YWRhOg=="]), ada(b""));
        assert_eq!(shown(&[&basic(b"ada:\xff\0")]), ada(b"\xff\0"));
        let long = basic(&[b"ada:".as_slice(), &[b'x'; LONGEST + 1]].concat());
        for none in [
            "",
            "Basic",
            "Basic ",
            "Basic YWRh",
            "Basic ???",
            "Bearer YWRhOg==",
            &basic(b"a\nb:c"),
            &basic(b"\xff:c"),
            &long,
        ] {
            assert_eq!(shown(&[none]), None, "{none}");
        }
        assert_eq!(shown(&["Basic YWRhOg==", "Basic YWRhOg=="]), None);
        assert_eq!(shown(&[]), None);
    }
}
