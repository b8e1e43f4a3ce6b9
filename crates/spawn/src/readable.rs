//! Explains why a user cannot open a file or folder, with the command that lets the user in.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use crate::{
    identity::{self, Identity, effective_uid},
    trusted_path, words,
};

/// Explains why `user` cannot read a file. `None`: the user can, or the file cannot be read for another reason. Root tries with
/// the rights of that user. Another caller decides by owners and modes, unless it is that user itself.
pub fn explain_unreadable(path: &Path, user: &Identity) -> Option<String> {
    let open = || trusted_path::read(path).map(drop);
    let tried = match effective_uid() {
        uid if uid == user.uid => open(),
        0 => user.with_file_rights(open),
        _ => return find_barrier(path, user).map(|barrier| barrier.suggest_fix(user)),
    };
    let denied = |e: &io::Error| e.kind() == io::ErrorKind::PermissionDenied;
    tried
        .err()
        .filter(denied)
        .map(|_| explain_denied_to(path, user))
}

/// Explains why the system denies this process a file or folder.
pub fn explain_denied(path: &Path) -> String {
    explain_denied_to(path, &identity::current())
}

fn explain_denied_to(path: &Path, user: &Identity) -> String {
    match find_barrier(path, user) {
        Some(barrier) => barrier.suggest_fix(user),
        None => format!(
            "user {} cannot open {}, though owners and modes allow it: look at access lists (getfacl) and security modules",
            identity::user_name_of(user.uid),
            words::escape_path(path)
        ),
    }
}

/// A folder that a user cannot enter, or the file at the end of the path.
struct Barrier {
    at: PathBuf,
    metadata: fs::Metadata,
}

/// Returns the first component of the path whose owner and mode keep `user` out.
fn find_barrier(path: &Path, user: &Identity) -> Option<Barrier> {
    let absolute = std::path::absolute(path).ok()?;
    let all: Vec<_> = absolute.ancestors().collect();
    all.iter().rev().find_map(|at| {
        let metadata = fs::metadata(at).ok()?;
        let needed = if metadata.is_dir() { 0o1 } else { 0o4 };
        // The path is shown as it was typed.
        let at = if *at == absolute { path } else { at }.to_owned();
        (!has_mode_bit(user, &metadata, needed)).then_some(Barrier { at, metadata })
    })
}

/// Returns whether the mode has a bit in the class of users that `user` belongs to.
fn has_mode_bit(user: &Identity, of: &fs::Metadata, bit: u32) -> bool {
    let shift = match () {
        () if user.uid == 0 => return true,
        () if of.uid() == user.uid => 6,
        () if is_in_group(user, of.gid()) => 3,
        () => 0,
    };
    of.mode() >> shift & bit == bit
}

fn is_in_group(user: &Identity, gid: u32) -> bool {
    user.gid == gid || user.groups.contains(&gid)
}

impl Barrier {
    fn suggest_fix(&self, user: &Identity) -> String {
        let (name, shown) = (
            identity::user_name_of(user.uid),
            words::escape_path(&self.at),
        );
        let argument = words::shell_argument(&self.at);
        if self.metadata.is_dir() {
            return format!("user {name} cannot enter {shown}: chmod a+x {argument}");
        }
        let is_owner = self.metadata.uid() == user.uid;
        let needs_group = !is_owner && !is_in_group(user, self.metadata.gid());
        let chgrp = needs_group.then(|| {
            let group = identity::group_name_of(user.gid);
            format!("chgrp {group} {argument}")
        });
        let (class, bit) = if is_owner { ("u", 0o400) } else { ("g", 0o040) };
        let chmod =
            (self.metadata.mode() & bit == 0).then(|| format!("chmod {class}+r {argument}"));
        let commands: Vec<_> = chgrp.into_iter().chain(chmod).collect();
        format!("user {name} cannot read {shown}: {}", commands.join(" && "))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use std::os::unix::fs::{PermissionsExt, chown};

    #[test]
    fn the_command_lets_the_user_in() {
        let top = tempfile::tempdir().unwrap();
        fs::set_permissions(top.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let folder = top.path().join("a b");
        fs::create_dir(&folder).unwrap();
        let file = folder.join("site.htpasswd");
        fs::write(&file, "").unwrap();
        let user = Identity {
            uid: 65534,
            gid: 65534,
            groups: vec![65534],
            home: "/".into(),
        };
        for (owner, group, mode, folder_mode, commands) in [
            (0, 0, 0o644, 0o755, None),
            (0, 0, 0o640, 0o755, Some("chgrp nogroup FILE")),
            (
                0,
                0,
                0o600,
                0o755,
                Some("chgrp nogroup FILE && chmod g+r FILE"),
            ),
            (0, 65534, 0o600, 0o755, Some("chmod g+r FILE")),
            (0, 65534, 0o640, 0o755, None),
            (65534, 0, 0o044, 0o755, Some("chmod u+r FILE")),
            (0, 65534, 0o640, 0o700, Some("chmod a+x FOLDER")),
        ] {
            chown(&file, Some(owner), Some(group)).unwrap();
            fs::set_permissions(&file, PermissionsExt::from_mode(mode)).unwrap();
            fs::set_permissions(&folder, PermissionsExt::from_mode(folder_mode)).unwrap();
            let said = explain_unreadable(&file, &user);
            let argument = |path: &Path| words::shell_argument(path);
            let want = commands.map(|commands| {
                let commands = commands.replace("FILE", &argument(&file));
                commands.replace("FOLDER", &argument(&folder))
            });
            let said = said.as_deref();
            assert_eq!(said.is_some(), want.is_some(), "{mode:o}: {said:?}");
            if let Some(want) = &want {
                assert!(said.unwrap().ends_with(want), "{said:?}: {want}");
                assert!(said.unwrap().starts_with("user nobody cannot "), "{said:?}");
            }
        }
    }
}
