//! A file or folder in the list of a strict sandbox.

use crate::domain::AccessRights;
use std::{os::fd::OwnedFd, path::PathBuf, rc::Rc};

/// A file or folder that programs may use.
#[derive(Debug, Clone)]
pub(super) struct ListedFile {
    /// The path without links in it.
    pub(super) path: PathBuf,
    /// Opened with O_PATH: rules and mounts refer to this file, even if another file takes its place.
    pub(super) file: Rc<OwnedFd>,
    pub(super) access: AccessRights,
}
