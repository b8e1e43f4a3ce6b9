//! What a strict sandbox lists.

use crate::domain::AccessRights;
use std::{os::fd::OwnedFd, path::PathBuf, rc::Rc};

/// A file or folder that programs may use.
#[derive(Debug, Clone)]
pub(super) struct ListedFile {
    /// Without links in it.
    pub(super) path: PathBuf,
    /// Opened with O_PATH: rules and mounts go by this, whatever comes in its place.
    pub(super) file: Rc<OwnedFd>,
    pub(super) access: AccessRights,
}
