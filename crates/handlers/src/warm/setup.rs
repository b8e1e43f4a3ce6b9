//! How a template is started.

use std::{ffi::CString, path::PathBuf, sync::Arc, time::Duration};

use galgo_spawn::{
    EnvBlock, Limits, Sandbox,
    owners::{Owners, Remit},
};

/// How a template is started: as a cold start of the same program would be, without a request.
#[derive(Debug)]
pub struct TemplateSetup {
    /// What to execute, and its arguments.
    pub args: Vec<CString>,
    /// The variables that every request has.
    pub env: EnvBlock,
    /// The working directory.
    pub dir: CString,
    /// The program's file.
    pub file: PathBuf,
    /// What runs the file, where it is not the kernel that finds out.
    pub interpreter: Option<PathBuf>,
    /// Resource limits.
    pub limits: Limits,
    /// PR_SET_NO_NEW_PRIVS.
    pub no_new_privs: bool,
    /// What it is kept from.
    pub sandbox: Sandbox,
    /// How long it may take to its first line: where a cold start would be ended, there is nothing
    /// to be gained.
    pub patience: Duration,
    /// Who loads it, where that is not the server: then the helper knows the rest but for `patience` itself.
    pub as_user: Option<AsUser>,
}

/// A program that a helper starts.
#[derive(Debug)]
pub struct AsUser {
    /// What asks helpers.
    pub owners: Arc<Owners>,
    /// Of its route.
    pub remit: Arc<Remit>,
    /// The user that it runs as.
    pub uid: u32,
    /// Its file, as a request asks for it.
    pub program: CString,
}
