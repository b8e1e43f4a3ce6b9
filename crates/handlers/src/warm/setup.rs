//! How a template is started.

use std::{ffi::CString, path::PathBuf, time::Duration};

use galgo_spawn::EnvBlock;

use crate::{owners::AsUser, program_settings::CgiOptions};

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
    /// How its route's programs are run.
    pub options: CgiOptions,
    /// Who loads it, where that is not the server: then the helper knows the rest but for `first_byte_timeout` itself.
    pub as_user: Option<AsUser>,
}

impl TemplateSetup {
    /// How long it may take to its first line: where a cold start would be ended, there is nothing
    /// to be gained.
    pub(super) fn patience(&self) -> Duration {
        self.options.first_byte_timeout
    }
}
