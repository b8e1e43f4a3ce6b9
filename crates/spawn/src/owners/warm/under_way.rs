//! The server's side of a template that a helper loads, until it has stopped.

use crate::{
    remote::{
        child::pid_of_pidfd,
        connection::ProgramConnection,
        template::RemoteTemplate,
        template_message::{NoTemplate, REPORT, TemplateReport, TemplateStop},
    },
    template::{LoadedTemplate, Template, TemplateKind, Uses},
};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd};

/// Limit for the names of modules that are left to children, in bytes. Further reports of names are dropped.
const LEFT_MOST: usize = 256 << 10;

/// A template that a helper is loading. Dropping it ends the process. Its descriptor becomes readable when the helper has sent
/// a report.
#[derive(Debug)]
pub struct TemplateUnderWay {
    connection: ProgramConnection,
    uses: Uses,
    started: Option<(TemplateKind, i32)>,
    holds: bool,
    left: Vec<u8>,
}

/// A template that a helper has loaded.
#[derive(Debug)]
pub struct StoppedTemplate {
    /// The template.
    pub template: Template,
    /// The reported facts. Only the helper knows the template's files and module search path.
    pub loaded: LoadedTemplate,
    /// The helper has checked the learned modules for this template; if not, another template will get them.
    pub knows: bool,
}

impl TemplateUnderWay {
    pub(crate) fn new(connection: ProgramConnection, uses: Uses) -> Self {
        Self {
            connection,
            uses,
            started: None,
            holds: false,
            left: Vec::new(),
        }
    }

    /// Reads the reports that have come. Returns the [`TemplateStop`] for [`stopped`](Self::stopped) once the template has
    /// stopped.
    ///
    /// # Errors
    /// There will be no template. The string is a sentence for the log.
    pub fn progress(&mut self) -> Result<Option<TemplateStop>, (NoTemplate, String)> {
        loop {
            let mut buffer = vec![0; REPORT];
            let got = self.connection.receive(&mut buffer);
            let lost = || (NoTemplate::NotNow, "its helper has ended".to_owned());
            let (n, fds) = match got {
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR) => continue,
                Err(_) | Ok((0, _)) => return Err(lost()),
                Ok(got) => got,
            };
            let report = buffer.get(..n).and_then(TemplateReport::decode);
            match report.ok_or_else(lost)? {
                TemplateReport::Started(kind, pid) => {
                    let pid = fds.first().map_or(pid, pid_of_pidfd);
                    self.started = Some((kind, pid));
                }
                TemplateReport::Holds => self.holds = true,
                TemplateReport::Left(names) if self.left.len() < LEFT_MOST => {
                    self.left.extend(names);
                }
                TemplateReport::Left(_) => {}
                TemplateReport::Stopped(stop) => return Ok(Some(stop)),
                TemplateReport::None(why, words) => return Err((why, words)),
                TemplateReport::Changed => {
                    return Err((
                        NoTemplate::Changed,
                        "a file or its helper has changed".into(),
                    ));
                }
            }
        }
    }

    /// Whether the program itself has not run: the template has reported that it will stop before.
    pub fn holds(&self) -> bool {
        self.holds
    }

    /// Returns the kind of the program, once the helper has reported it.
    pub fn kind(&self) -> Option<TemplateKind> {
        self.started.map(|(kind, _)| kind)
    }

    /// Returns the stopped template; `None` if the helper has never reported its start.
    pub fn stopped(self, stop: TemplateStop) -> Option<StoppedTemplate> {
        let (kind, pid) = self.started?;
        let names = self.left.split(|&b| b == b'\n').filter(|n| !n.is_empty());
        let left = names.map(|name| String::from_utf8_lossy(name).into_owned());
        let loaded = LoadedTemplate {
            memory: stop.memory,
            obstacle: Some(stop.obstacle).filter(|words| !words.is_empty()),
            left: left.collect(),
            ..LoadedTemplate::default()
        };
        let template = RemoteTemplate::new(self.connection, (kind, pid), self.uses);
        let template = Template::from_remote(template);
        Some(StoppedTemplate {
            template,
            loaded,
            knows: stop.knows,
        })
    }
}

impl AsFd for TemplateUnderWay {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}
