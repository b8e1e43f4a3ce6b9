//! The user that the server and its programs run as.

use crate::{
    apart::{NOBODYS, id_apart, open_files_as_user, programs_user, set_programs_user},
    own_child::groups_by_pidfd,
};
use std::{
    ffi::{CStr, CString, OsString, c_char},
    fmt, io,
    mem::MaybeUninit,
    os::unix::ffi::OsStringExt,
    path::PathBuf,
    ptr,
    sync::OnceLock,
};

/// A user with its groups, from the system's user database (getpwnam(3), getgrouplist(3)).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The user's id.
    pub uid: u32,
    /// The group's id: the requested group, or the user's own.
    pub gid: u32,
    /// Supplementary groups, `gid` among them.
    pub groups: Vec<u32>,
    /// The home folder.
    pub home: PathBuf,
}

/// A user without supplementary groups. Looking for those takes as long as the system has groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// The name, which the groups are found by.
    pub name: CString,
    /// The user's id.
    pub uid: u32,
    /// The group's id: the requested group, or the user's own.
    pub gid: u32,
    /// The home folder.
    pub home: PathBuf,
}

impl User {
    /// Returns the user with its groups, as they are now.
    pub fn identity(&self) -> Identity {
        Identity {
            uid: self.uid,
            gid: self.gid,
            groups: groups_of(&self.name, self.gid),
            home: self.home.clone(),
        }
    }
}

/// The reason why there is no such identity, or why it could not be assumed.
#[derive(Debug)]
#[allow(missing_docs)] // each name says it
pub enum IdentityError {
    NoUser(String),
    NoGroup(String),
    /// Root is the identity to drop, not to assume.
    Root,
    /// The database, or the named call, failed.
    System(&'static str, io::Error),
    /// The system reported success, yet the old identity was still there or could be regained.
    Regained(&'static str),
}

impl fmt::Display for IdentityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoUser(name) => write!(f, "there is no user `{name}`"),
            Self::NoGroup(name) => write!(f, "there is no group `{name}`"),
            Self::Root => f.write_str("root is not a user to serve as"),
            Self::System(call, e) => write!(f, "{call}: {e}"),
            Self::Regained(what) => write!(f, "the kernel did not take away the old {what}"),
        }
    }
}

impl std::error::Error for IdentityError {}

/// Returns the identity of `user`, with `group` instead of the user's own group. Both are names, or decimal ids that the
/// database knows.
pub fn resolve_identity(user: &str, group: Option<&str>) -> Result<Identity, IdentityError> {
    resolve_user(user, group).map(|user| user.identity())
}

/// Does the same as [`resolve_identity`], without the supplementary groups.
pub fn resolve_user(user: &str, group: Option<&str>) -> Result<User, IdentityError> {
    let found = find_passwd(user)?.ok_or_else(|| IdentityError::NoUser(user.to_owned()))?;
    let gid = match group {
        None => found.gid,
        Some(name) => self::resolve_group(name)?,
    };
    Ok(User { gid, ..found })
}

/// Returns the current identity of this process.
pub fn current() -> Identity {
    let groups = rustix::process::getgroups().unwrap_or_default();
    Identity {
        uid: effective_uid(),
        gid: rustix::process::getegid().as_raw(),
        groups: groups.into_iter().map(|group| group.as_raw()).collect(),
        home: PathBuf::from("/"),
    }
}

/// Returns the name of the user with that id; the id, if it has no name.
pub fn user_name_of(uid: u32) -> String {
    match find_passwd_by_uid(uid) {
        Ok(Some(user)) => user.name.to_string_lossy().into_owned(),
        _ => uid.to_string(),
    }
}

/// Returns the name of the group with that id; the id, if it has no name.
pub fn group_name_of(gid: u32) -> String {
    let found = read_entry(
        "getgrgid_r",
        // SAFETY: `entry` gives places and a buffer of the length that it says.
        |to, buf, len, found| unsafe { libc::getgrgid_r(gid, to, buf, len, found) },
        |entry: &libc::group| {
            // SAFETY: libc's own contract; the name lies in the buffer, which outlives the call.
            let name = unsafe { CStr::from_ptr(entry.gr_name) };
            name.to_string_lossy().into_owned()
        },
    );
    found.ok().flatten().unwrap_or_else(|| gid.to_string())
}

/// Returns the identity of the user with that id, which the database must know.
///
/// # Errors
/// There is no such user, or it is root.
pub fn resolve_uid(uid: u32) -> Result<Identity, IdentityError> {
    let unknown = || IdentityError::NoUser(uid.to_string());
    let found = find_passwd_by_uid(uid)?.ok_or_else(unknown)?;
    match found.uid {
        0 => Err(IdentityError::Root),
        found_uid if found_uid != uid => Err(unknown()),
        _ => Ok(found.identity()),
    }
}

/// Returns the id of the group `group`: a name, or a decimal id that the database knows.
pub fn resolve_group(group: &str) -> Result<u32, IdentityError> {
    group_id(group)?.ok_or_else(|| IdentityError::NoGroup(group.to_owned()))
}

/// Returns the home folder of `user`; `None` if there is no such user.
pub fn home_of(user: &str) -> Result<Option<PathBuf>, IdentityError> {
    Ok(find_passwd(user)?.map(|p| p.home))
}

impl Identity {
    /// Leaves all supplementary groups but `kept`: some are as good as root (docker, disk), others may read secrets (shadow).
    pub fn keep_groups(&mut self, kept: &[u32]) {
        let gid = self.gid;
        self.groups
            .retain(|group| *group == gid || kept.contains(group));
    }

    /// Takes this identity on for good. Groups come first, while there is still the right to change them, then the group, then
    /// the user. Then this tries to regain the old identity, which must fail.
    ///
    /// Call this while the process has a single thread. libc carries the change to all existing threads, but a thread that is
    /// just opening a file would do so with the old identity. On an error the process may be half changed and must end. A
    /// process that is not root can only become its current user.
    pub fn assume(&self) -> Result<(), IdentityError> {
        self.assume_groups()?;
        let uid = self.uid;
        // SAFETY: numbers only.
        check_result("setresuid", unsafe { libc::setresuid(uid, uid, uid) })?;
        self.verify([uid; 3])
    }

    /// Does the same as [`assume`](Self::assume) for a process that starts programs as this user. No program has the real and
    /// effective user id that the process gets ([`crate::apart`]). All ids are this user's in four cases: root has not started
    /// this process, its user namespace lacks the other id (user_namespaces(7)), Linux is older than 6.9, or `fs.suid_dumpable`
    /// is 1.
    pub fn assume_apart(&self) -> Result<(), IdentityError> {
        if effective_uid() != 0 || !groups_by_pidfd() || opens_memory() {
            return self.assume();
        }
        self.assume_groups()?;
        let own = id_apart(self.uid);
        // SAFETY: numbers only.
        if unsafe { libc::setresuid(own, own, self.uid) } != 0 {
            return self.assume();
        }
        set_programs_user(self.uid);
        open_files_as_user();
        self.verify([own, own, self.uid])
    }

    fn assume_groups(&self) -> Result<(), IdentityError> {
        if self.uid == 0 {
            return Err(IdentityError::Root);
        }
        if effective_uid() == 0 {
            // SAFETY: the pointer and length describe a live slice.
            let ret = unsafe { libc::setgroups(self.groups.len(), self.groups.as_ptr()) };
            check_result("setgroups", ret)?;
        }
        let gid = self.gid;
        // SAFETY: numbers only.
        check_result("setresgid", unsafe { libc::setresgid(gid, gid, gid) })
    }

    /// Calls `f` with the rights of this user to open and make files: files that `f` makes belong to the user. Only root may do
    /// this. Only the calling thread changes, and only while `f` runs.
    ///
    /// # Errors
    /// An error of `f`; or the identity could not be taken on, or not be left again.
    pub fn with_file_rights<T>(&self, f: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let own = rustix::process::getgroups()?;
        let own: Vec<_> = own.into_iter().map(|group| group.as_raw()).collect();
        let (uid, gid) = set_file_ids(self.uid, self.gid);
        let done =
            set_thread_groups(&self.groups).and_then(|()| match set_file_ids(self.uid, self.gid) {
                now if now == (self.uid, self.gid) => f(),
                _ => Err(io::ErrorKind::PermissionDenied.into()),
            });
        set_file_ids(uid, gid);
        set_thread_groups(&own)?;
        done
    }

    fn verify(&self, ids: [u32; 3]) -> Result<(), IdentityError> {
        let (mut u, mut g) = ([0; 3], [0; 3]);
        let ([ru, eu, su], [rg, eg, sg]) = (&mut u, &mut g);
        // SAFETY: three live places each.
        let ret = unsafe { libc::getresuid(ru, eu, su) | libc::getresgid(rg, eg, sg) };
        check_result("getresuid", ret)?;
        // SAFETY: numbers only; no user has this id, so nothing changes.
        let opens_as = unsafe { libc::setfsuid(NOBODYS) }.cast_unsigned();
        if (u, opens_as) != (ids, self.uid) {
            return Err(IdentityError::Regained("user"));
        }
        if g != [self.gid; 3] {
            return Err(IdentityError::Regained("group"));
        }
        // SAFETY: numbers only. Each call is meant to fail; if a call succeeds, the caller ends the process.
        if unsafe { libc::setresuid(0, 0, 0) } == 0 || unsafe { libc::setuid(0) } == 0 {
            return Err(IdentityError::Regained("user"));
        }
        // SAFETY: the same as above.
        if self.gid != 0 && unsafe { libc::setresgid(0, 0, 0) } == 0 {
            return Err(IdentityError::Regained("group"));
        }
        // SAFETY: the same as above; the pointer is to a live number. Without CAP_SETGID no list can be set, not even an equal
        // one.
        if unsafe { libc::setgroups(1, &self.gid) } == 0 {
            return Err(IdentityError::Regained("right to choose groups"));
        }
        Ok(())
    }
}

/// Sets the user and group that this thread opens and makes files as (setfsuid(2)); returns the previous ones. The calls do not
/// fail: a refused change shows in the result of the next call.
fn set_file_ids(uid: u32, gid: u32) -> (u32, u32) {
    // SAFETY: numbers only; the kernel changes the credentials of this thread alone. The group goes first, because the right to
    // choose the group is lost with the user.
    let (gid, uid) = unsafe { (libc::setfsgid(gid), libc::setfsuid(uid)) };
    (uid.cast_unsigned(), gid.cast_unsigned())
}

/// Sets the supplementary groups of this thread; libc's own call would change the groups of all threads.
fn set_thread_groups(groups: &[u32]) -> io::Result<()> {
    // SAFETY: the pointer and length describe a live slice.
    match unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns the user that this process opens files as and that its programs run as: the effective user id, unless this process
/// keeps [ids of its own](crate::apart). 0 is root.
pub fn effective_uid() -> u32 {
    programs_user().unwrap_or_else(|| rustix::process::geteuid().as_raw())
}

/// Returns whether this process is root, for decisions about who else may change a file, or which user to become. Id 0 of a user
/// namespace that has no id for the owner of `/` is an ordinary user by another name (`unshare -Ur`): there nobody can own the
/// folders above a file.
pub fn is_root() -> bool {
    static IS_APART: OnceLock<bool> = OnceLock::new();
    rustix::process::geteuid().is_root() && !*IS_APART.get_or_init(is_in_others_namespace)
}

/// See [`is_root`]. Without `/proc` the answer is no, which trusts fewer files.
fn is_in_others_namespace() -> bool {
    let ids = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let ids: Vec<&str> = ids.split_whitespace().collect();
    let unmapped = std::fs::read_to_string("/proc/sys/kernel/overflowuid");
    let unmapped = unmapped.ok().and_then(|id| id.trim().parse().ok());
    match ids[..] {
        [] | [_, _, "4294967295"] => false,
        [_, outside, "1"] if outside != "0" => true,
        _ => rustix::fs::stat("/").is_ok_and(|root| Some(root.st_uid) == unmapped),
    }
}

/// Returns whether the kernel opens the memory of a process that changes its ids to all processes of the user (proc_sys_fs(5)).
fn opens_memory() -> bool {
    std::fs::read("/proc/sys/fs/suid_dumpable").is_ok_and(|mode| mode.starts_with(b"1"))
}

fn find_passwd(user: &str) -> Result<Option<User>, IdentityError> {
    let Ok(name) = CString::new(user) else {
        return Ok(None);
    };
    let by_name = read_entry(
        "getpwnam_r",
        // SAFETY: `entry` gives places and a buffer of the length that it says.
        |to, buf, len, found| unsafe { libc::getpwnam_r(name.as_ptr(), to, buf, len, found) },
        read_passwd,
    )?;
    match (by_name, user.parse()) {
        (None, Ok(uid)) => find_passwd_by_uid(uid),
        (found, _) => Ok(found),
    }
}

fn find_passwd_by_uid(uid: u32) -> Result<Option<User>, IdentityError> {
    read_entry(
        "getpwuid_r",
        // SAFETY: `entry` gives places and a buffer of the length that it says.
        |to, buf, len, found| unsafe { libc::getpwuid_r(uid, to, buf, len, found) },
        read_passwd,
    )
}

fn read_passwd(entry: &libc::passwd) -> User {
    // SAFETY: libc's own contract; the strings of `entry` lie in the buffer, which outlives the call.
    unsafe {
        User {
            name: CStr::from_ptr(entry.pw_name).to_owned(),
            uid: entry.pw_uid,
            gid: entry.pw_gid,
            home: OsString::from_vec(CStr::from_ptr(entry.pw_dir).to_bytes().to_vec()).into(),
        }
    }
}

fn group_id(group: &str) -> Result<Option<u32>, IdentityError> {
    let Ok(name) = CString::new(group) else {
        return Ok(None);
    };
    let read = |entry: &libc::group| entry.gr_gid;
    let by_name = read_entry(
        "getgrnam_r",
        // SAFETY: `entry` gives places and a buffer of the length that it says.
        |to, buf, len, found| unsafe { libc::getgrnam_r(name.as_ptr(), to, buf, len, found) },
        read,
    )?;
    match (by_name, group.parse()) {
        (None, Ok(gid)) => read_entry(
            "getgrgid_r",
            // SAFETY: the same as above.
            |to, buf, len, found| unsafe { libc::getgrgid_r(gid, to, buf, len, found) },
            read,
        ),
        (found, _) => Ok(found),
    }
}

/// Calls a `get…_r` function with a buffer that grows until the entry fits.
fn read_entry<T, R>(
    name: &'static str,
    call: impl Fn(*mut T, *mut c_char, usize, *mut *mut T) -> libc::c_int,
    read: impl Fn(&T) -> R,
) -> Result<Option<R>, IdentityError> {
    const MOST: usize = 1 << 20; // the longest entry is a group's list of members
    let mut buffer: Vec<c_char> = vec![0; 4096];
    loop {
        let mut place = MaybeUninit::<T>::uninit();
        let mut found = ptr::null_mut();
        match call(
            place.as_mut_ptr(),
            buffer.as_mut_ptr(),
            buffer.len(),
            &mut found,
        ) {
            libc::ERANGE if buffer.len() < MOST => buffer.resize(buffer.len() * 4, 0),
            // SAFETY: a non-null `found` points to `place`, which is filled in, and `buffer` still lives.
            0 => return Ok(unsafe { found.as_ref() }.map(&read)),
            // getpwnam(3) lists these as answers for "no such name".
            libc::ENOENT | libc::ESRCH | libc::EBADF | libc::EPERM => return Ok(None),
            libc::EINTR => {}
            e => return Err(IdentityError::System(name, io::Error::from_raw_os_error(e))),
        }
    }
}

fn groups_of(user: &CStr, gid: u32) -> Vec<u32> {
    let mut groups = vec![0; 64];
    loop {
        let mut n = groups.len() as libc::c_int;
        // SAFETY: `n` gives the number of places; the call sets it to the number that it needs.
        let ret = unsafe { libc::getgrouplist(user.as_ptr(), gid, groups.as_mut_ptr(), &mut n) };
        let wanted = n.max(0) as usize;
        if ret >= 0 {
            groups.truncate(wanted);
            return groups;
        }
        groups.resize(wanted.max(groups.len() * 2), 0);
    }
}

fn check_result(call: &'static str, ret: libc::c_int) -> Result<(), IdentityError> {
    if ret == 0 {
        Ok(())
    } else {
        Err(IdentityError::System(call, io::Error::last_os_error()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_known_by_name_and_by_number() {
        for user in ["root", "0"] {
            let root = resolve_identity(user, None).unwrap();
            assert_eq!((root.uid, root.gid), (0, 0));
            assert!(root.groups.contains(&0) && root.home.is_absolute());
            assert_eq!(home_of(user).unwrap(), Some(root.home.clone()));
            assert!(matches!(root.assume(), Err(IdentityError::Root)));
        }
    }

    #[test]
    fn a_group_that_is_named_replaces_the_users_own() {
        let nobody = resolve_identity("nobody", Some("daemon")).unwrap();
        assert_ne!(nobody.uid, 0);
        assert_eq!((nobody.gid, nobody.groups), (1, vec![1]));
    }

    #[test]
    fn who_does_not_exist_is_named() {
        assert!(
            matches!(resolve_identity("no such user", None), Err(IdentityError::NoUser(n)) if n == "no such user")
        );
        assert!(matches!(
            resolve_identity("a\0b", None),
            Err(IdentityError::NoUser(_))
        ));
        assert!(matches!(
            resolve_identity("root", Some("no such group")),
            Err(IdentityError::NoGroup(_))
        ));
        assert_eq!(home_of("no such user").unwrap(), None);
    }
}
