//! Users and groups by name. Everything that asks the system who is who stands here.

use std::{fs, io, path::PathBuf};

/// A user with its groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The user's id.
    pub uid: u32,
    /// The group's id: the one asked for, or the user's own.
    pub gid: u32,
    /// Supplementary groups, `gid` among them.
    pub groups: Vec<u32>,
    /// The home folder.
    pub home: PathBuf,
}

/// Looks a user up, and a group where it is not the user's own.
///
/// # Errors
/// `NotFound` with a sentence where there is no such user or group; else the system's error.
pub fn identity(user: &str, group: Option<&str>) -> io::Result<Identity> {
    let account = account(user)?;
    let groups = fs::read_to_string("/etc/group")?;
    let gid = match group {
        None => account.gid,
        Some(name) => groups
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
            .and_then(|rest| rest.split(':').nth(1)?.parse().ok())
            .ok_or_else(|| missing("group", name))?,
    };
    let mut all = vec![gid];
    for line in groups.lines() {
        let mut fields = line.split(':').skip(2);
        let id = fields.next().and_then(|id| id.parse().ok());
        let member = fields
            .next()
            .is_some_and(|names| names.split(',').any(|name| name == user));
        if let Some(id) = id.filter(|id| member && !all.contains(id)) {
            all.push(id);
        }
    }
    Ok(Identity {
        uid: account.uid,
        gid,
        groups: all,
        home: account.home,
    })
}

/// The home of a user.
///
/// # Errors
/// As [`identity`].
pub(super) fn home(user: &str) -> io::Result<PathBuf> {
    Ok(account(user)?.home)
}

struct Account {
    uid: u32,
    gid: u32,
    home: PathBuf,
}

fn account(user: &str) -> io::Result<Account> {
    let passwd = fs::read_to_string("/etc/passwd")?;
    let entry = |line: &str| {
        let mut fields = line
            .strip_prefix(user)?
            .strip_prefix(':')?
            .split(':')
            .skip(1);
        let uid = fields.next()?.parse().ok()?;
        let gid = fields.next()?.parse().ok()?;
        let home = fields.nth(1)?.into();
        Some(Account { uid, gid, home })
    };
    passwd
        .lines()
        .find_map(entry)
        .ok_or_else(|| missing("user", user))
}

fn missing(kind: &str, name: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::NotFound,
        format!("there is no {kind} `{name}`"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_known_and_nobody_else_is_invented() {
        let root = identity("root", None).unwrap();
        assert_eq!((root.uid, root.gid), (0, 0));
        assert_eq!(home("root").unwrap(), PathBuf::from("/root"));
        for name in ["", "no-such-user", "roo", "root:x"] {
            assert_eq!(
                identity(name, None).unwrap_err().kind(),
                io::ErrorKind::NotFound
            );
        }
        let error = identity("root", Some("no-such-group")).unwrap_err();
        assert_eq!(error.to_string(), "there is no group `no-such-group`");
    }
}
