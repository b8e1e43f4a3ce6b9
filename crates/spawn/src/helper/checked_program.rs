//! A program that a helper may execute, after all parts of the order were checked.

use crate::{
    EnvBlock, Launch, Limits, Priority, StartStage,
    owners::Remit,
    remote::message::{ProgramReport, StartOrder},
};
use rustix::io::Errno;
use std::{
    ffi::{CString, OsStr},
    fmt, io,
    os::unix::ffi::OsStrExt,
    path::Path,
};

/// Settings for all programs of a helper.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HelperTerms<'r> {
    pub(crate) remit: &'r Remit,
    pub(crate) uid: u32,
    /// The limits of each program.
    pub(crate) limits: Limits,
    /// The helper is in a PID namespace of its own: the server knows processes by other numbers.
    pub(crate) own_ids: bool,
}

/// A checked program, with its arguments, environment and folder.
#[derive(Debug)]
pub(crate) struct CheckedProgram {
    pub(crate) path: CString,
    pub(crate) args: Vec<CString>,
    pub(crate) env: EnvBlock,
    pub(crate) dir: CString,
}

/// The reason for not starting a program.
#[derive(Debug)]
pub(crate) enum NotChecked {
    /// The program may not be started. The string is a sentence for the log.
    Denied(String),
    /// The program could not be checked: the system is short of something.
    Short(Errno),
}

impl NotChecked {
    pub(crate) fn into_report(self) -> ProgramReport {
        match self {
            Self::Denied(why) => ProgramReport::Denied(why),
            Self::Short(e) => ProgramReport::Failed(StartStage::Descriptors, e.raw_os_error()),
        }
    }
}

impl From<String> for NotChecked {
    fn from(why: String) -> Self {
        Self::Denied(why)
    }
}

impl From<&str> for NotChecked {
    fn from(why: &str) -> Self {
        Self::Denied(why.to_owned())
    }
}

impl fmt::Display for NotChecked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Denied(why) => f.write_str(why),
            Self::Short(e) => write!(f, "{}", io::Error::from(*e)),
        }
    }
}

impl CheckedProgram {
    /// Checks an order to a helper of the user `uid`.
    ///
    /// # Errors
    /// The program may not be started, or could not be checked.
    pub(crate) fn from_order(
        order: &StartOrder,
        remit: &Remit,
        uid: u32,
    ) -> Result<Self, NotChecked> {
        let refused = |name: Vec<u8>| {
            let name = name.escape_ascii();
            format!("the variable {name} may not be set: name it in `env` of the route")
        };
        let mut env = remit.build_environment(&order.env).map_err(refused)?;
        let has = |name: &[u8]| order.env.iter().any(|(known, _)| known == name);
        if has(b"REDIRECT_URL") && (has(b"PATH_INFO") || has(b"PATH_TRANSLATED")) {
            // PHP would run the file that PATH_TRANSLATED names.
            return Err("REDIRECT_URL may not be set beside PATH_INFO".into());
        }
        let is_word = |arg: &CString| !matches!(arg.as_bytes(), [] | [b'-', ..]);
        let worker = remit.terms.worker.as_deref();
        if worker.is_some() && order.env.iter().next().is_some() {
            return Err("a worker takes no variables".into());
        }
        if (worker.is_some() || !remit.terms.query_args) && !order.args.is_empty() {
            return Err("the program takes no arguments".into());
        }
        if !order.args.iter().all(is_word) {
            return Err("an argument is empty, or would be an option".into());
        }
        let asked = Path::new(OsStr::from_bytes(order.program.as_bytes()));
        let real = remit.check_program(asked, uid);
        let real = real.map_err(|e| match e.shortage() {
            Some(errno) => NotChecked::Short(errno),
            None => NotChecked::Denied(e.to_string()),
        })?;
        let text = |path: &OsStr| {
            CString::new(path.as_bytes()).map_err(|_| "its path holds a NUL".to_owned())
        };
        let dir = text(real.parent().unwrap_or(Path::new("/")).as_os_str())?;
        let file = text(real.as_os_str())?;
        let (path, args) = match remit.interpreter(order.program.as_bytes()) {
            None => {
                let own = worker.unwrap_or_default().iter();
                let own = own.map(|arg| CString::new(arg.as_str()));
                let own: Vec<_> = own
                    .collect::<Result<_, _>>()
                    .map_err(|_| "an argument holds a NUL".to_owned())?;
                if worker.is_none() {
                    // So for a script that names php-cgi in its first line.
                    env.set_variable(b"SCRIPT_FILENAME", order.program.as_bytes());
                }
                let program = std::iter::once(&order.program);
                let all = program.chain(&own).chain(&order.args);
                (file, all.cloned().collect())
            }
            Some(program) => {
                // Make an interpreter that goes by this variable run the checked file, too.
                env.set_variable(b"SCRIPT_FILENAME", file.as_bytes());
                let program = text(program.as_os_str())?;
                (program.clone(), vec![program, file])
            }
        };
        Ok(Self {
            path,
            args,
            env,
            dir,
        })
    }

    /// Returns the launch of the program: without knocking, and at normal priority.
    pub(crate) fn into_launch(self, terms: &HelperTerms<'_>) -> Launch {
        Launch {
            path: Some(self.path),
            args: self.args,
            env: self.env,
            dir: self.dir,
            limits: terms.limits,
            no_new_privs: terms.remit.terms.no_new_privs,
            sandbox: terms.remit.terms.sandbox,
            more: Vec::new(),
            knocks: false,
            priority: Priority::Normal,
        }
    }
}
