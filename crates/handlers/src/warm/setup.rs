//! Start parameters of a template.

use std::{ffi::CString, path::PathBuf, time::Duration};

use galgo_spawn::EnvBlock;

use crate::{owners::AsUser, program_settings::CgiOptions};

/// Start parameters of a template: the same as for a cold start of the program, without a request.
#[derive(Debug)]
pub struct TemplateSetup {
    /// The file to execute, and its arguments.
    pub args: Vec<CString>,
    /// The variables that every request has.
    pub env: EnvBlock,
    /// The working directory.
    pub dir: CString,
    /// The program's file.
    pub file: PathBuf,
    /// The interpreter that runs the file, unless the kernel finds it.
    pub interpreter: Option<PathBuf>,
    /// The route's settings for running programs.
    pub options: CgiOptions,
    /// The user whose helper loads the template, if not the server. The helper then knows all other fields but
    /// `first_byte_timeout`.
    pub as_user: Option<AsUser>,
}

impl TemplateSetup {
    /// Returns the time limit until the first line. A program whose cold start would be ended gains nothing from a
    /// warm one.
    pub(super) fn patience(&self) -> Duration {
        self.options.first_byte_timeout
    }
}
