//! Reads an htpasswd file: a line `name:hash` for each user. The file is read again after a change.

use std::{
    collections::HashMap,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use galgo_io::off_loop::off_loop;
use galgo_service::lock::lock;
use galgo_spawn::{FileId, hanging::look_at, trusted_path};
use rustix::fs::{fstat, stat};

use crate::{
    blocking::run_for_owner,
    passwords::hash::{self, HashScheme},
    root::is_local,
};

/// Limit for the file's size: 16 MiB are some 200,000 users.
const MOST: u64 = 16 << 20;

/// The users of a file.
#[derive(Debug, Default)]
pub struct Users {
    hashes: HashMap<Box<str>, Arc<str>>,
    /// The first hash of each cost. A wrong password is verified against one hash of each cost, so that all take equally long.
    samples: Vec<Arc<str>>,
    /// Problems with lines of the file, in words; only the first few.
    pub doubts: Vec<String>,
}

impl Users {
    /// Reads lines. If a name comes twice, the first line counts, as for Apache.
    pub fn parse(text: &str) -> Self {
        let mut users = Self::default();
        for (at, line) in text.lines().enumerate() {
            let line = line.trim_end();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if let Err(doubt) = users.parse_line(line) {
                users.add_doubt(at + 1, &doubt);
            }
        }
        users
    }

    fn parse_line(&mut self, line: &str) -> Result<(), String> {
        let Some((name, rest)) = line.split_once(':') else {
            return Err("is not name:hash, and is ignored".into());
        };
        let hash = rest.split(':').next().unwrap_or_default();
        let Some(kind) = HashScheme::from_hash(hash) else {
            return Err(format!(
                "galgo does not support the hash of {name:?}: this user cannot log in (try: galgo passwd FILE {name})"
            ));
        };
        let hash: Arc<str> = hash.into();
        let is_known = |sample: &Arc<str>| hash::cost_prefix(sample) == hash::cost_prefix(&hash);
        if !self.samples.iter().any(is_known) {
            self.samples.push(hash.clone());
        }
        self.hashes.entry(name.into()).or_insert(hash);
        if kind.is_weak() {
            Err(format!(
                "the hash of {name:?} is weak: anyone who reads the file can guess the password (try: galgo passwd FILE {name})"
            ))
        } else {
            Ok(())
        }
    }

    fn add_doubt(&mut self, line: usize, words: &str) {
        const SHOWN: usize = 3;
        match self.doubts.len() {
            0..SHOWN => self.doubts.push(format!("line {line}: {words}")),
            SHOWN => self.doubts.push("and more lines like these".into()),
            _ => {}
        }
    }

    /// Returns the hash of a user's password.
    pub fn user_hash(&self, name: &str) -> Option<&Arc<str>> {
        self.hashes.get(name)
    }

    /// Returns the hashes that a wrong password of that user is verified against: the user's own first, then a hash of each other
    /// cost.
    pub(super) fn hashes_to_try(&self, name: &str) -> Vec<Arc<str>> {
        let own = self.user_hash(name);
        let cost = own.map(|own| hash::cost_prefix(own));
        let others = self.samples.iter();
        let others = others.filter(|sample| Some(hash::cost_prefix(sample)) != cost);
        own.into_iter().chain(others).cloned().collect()
    }

    /// Returns whether there are no users.
    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }
}

/// A file, and its users when it was last read.
#[derive(Debug)]
pub struct UsersFile {
    path: PathBuf,
    /// The file's owner, if the file system may hang, or if another account can mount something on the way to the file.
    waits: Option<u64>,
    read: Mutex<(FileId, bool, Arc<Users>)>,
}

impl UsersFile {
    /// Reads the file.
    ///
    /// # Errors
    /// The file cannot be read, is not text, or is too large.
    pub fn open(path: &Path) -> io::Result<Self> {
        let (id, users) = read(path)?;
        let found = trusted_path::resolve(path)?;
        let is_local = || Ok((is_local(&found.file)?, fstat(&found.file)?.st_uid));
        let (is_local, owner) = look_at(path, is_local)?;
        let may_hang = found.bound.is_some() || !is_local;
        Ok(Self {
            path: path.to_owned(),
            waits: may_hang.then_some(owner.into()),
            read: Mutex::new((id, id.has_settled(), users)),
        })
    }

    /// Returns the file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the users as they were when the file was last read.
    pub fn last_users(&self) -> Arc<Users> {
        lock(&self.read).2.clone()
    }

    /// Returns the current users. A file that has changed is read off the event loop.
    ///
    /// # Errors
    /// The file has changed, and cannot be read.
    pub async fn current_users(self: &Arc<Self>) -> io::Result<Arc<Users>> {
        let own = self.clone();
        if let Some(owner) = self.waits {
            let late = || io::Error::new(io::ErrorKind::TimedOut, "its file system hangs");
            return run_for_owner(owner, move || own.load_users())
                .await
                .ok_or_else(late)?;
        }
        match self.known_users()? {
            Some((true, users)) => Ok(users),
            _ => off_loop("passwords", move || own.load_users())
                .await
                .flatten(),
        }
    }

    fn load_users(&self) -> io::Result<Arc<Users>> {
        let known = self.known_users()?;
        if let Some((true, users)) = known {
            return Ok(users);
        }
        match (known, self.reread()) {
            // Root read the file, and the user that the server became may not read it: the file has not changed.
            (Some((_, users)), Err(e)) if e.kind() == io::ErrorKind::PermissionDenied => Ok(users),
            (_, again) => again,
        }
    }

    /// Returns the users that were read, if the file is still the same, and whether it has settled. A second change within the
    /// same tick of the clock would not show: until that tick has passed, the flag is false and the file is read each time.
    fn known_users(&self) -> io::Result<Option<(bool, Arc<Users>)>> {
        let now = FileId::from_stat(&stat(&self.path)?);
        let read = lock(&self.read);
        let (id, settled, users) = &*read;
        Ok((*id == now).then(|| (*settled, users.clone())))
    }

    fn reread(&self) -> io::Result<Arc<Users>> {
        let (id, users) = read(&self.path)?;
        *lock(&self.read) = (id, id.has_settled(), users.clone());
        Ok(users)
    }
}

fn read(path: &Path) -> io::Result<(FileId, Arc<Users>)> {
    let file = trusted_path::read(path)?;
    let mut text = Vec::new();
    let id = look_at(path, || {
        let id = FileId::from_stat(&fstat(&file)?);
        if file.take(MOST + 1).read_to_end(&mut text)? as u64 > MOST {
            return Err(io::Error::other("is larger than 16M"));
        }
        Ok(id)
    })?;
    let text = String::from_utf8(text).map_err(|_| io::Error::other("is not UTF-8"))?;
    Ok((id, Arc::new(Users::parse(&text))))
}

#[cfg(test)]
mod tests {
    use crate::passwords::file::*;

    #[test]
    fn a_wrong_password_costs_the_same_for_every_name() {
        let users = Users::parse(
            "ada:$2y$05$a\nbob:$2b$05$b\ncy:$2y$12$c\ndan:$6$salt$d\neve:$6$rounds=9$salt$e\nfay:$6$other$f\n",
        );
        let costs = |name: &str| {
            let mut costs: Vec<_> = users
                .hashes_to_try(name)
                .iter()
                .map(|h| hash::cost_prefix(h).to_owned())
                .collect();
            costs.sort();
            costs
        };
        let all = ["$05", "$12", "$6", "$6$rounds=9"];
        for name in ["ada", "bob", "cy", "dan", "eve", "fay", "nobody"] {
            assert_eq!(costs(name), all, "{name}");
            assert_eq!(
                users.hashes_to_try(name).first() == users.user_hash(name),
                name != "nobody",
                "{name}"
            );
        }
        assert!(Users::default().hashes_to_try("ada").is_empty());
    }

    #[test]
    fn lines() {
        let users = Users::parse(
            "# people\n\nada:$2y$05$abc\nbob:$apr1$x$y:more\nada:$6$later\r\nplain:secret\nnothing\n: \n",
        );
        assert_eq!(users.user_hash("ada").map(|h| &**h), Some("$2y$05$abc"));
        assert_eq!(users.user_hash("bob").map(|h| &**h), Some("$apr1$x$y"));
        assert!(users.user_hash("plain").is_none() && users.user_hash("").is_none());
        let doubts = users.doubts.join("\n");
        for words in [
            "line 4: the hash of \"bob\" is weak",
            "line 6: galgo does not support the hash of \"plain\"",
            "line 7: is not name:hash",
            "and more",
        ] {
            assert!(doubts.contains(words), "{words}: {doubts}");
        }
    }
}
