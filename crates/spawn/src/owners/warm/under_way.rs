//! The server's side of a template that a helper loads, until it has stopped.

use crate::{
    remote::{
        child::number,
        connection::ProgramConnection,
        template::RemoteTemplate,
        template_message::{NoTemplate, REPORT, TemplateReport, TemplateStop},
    },
    template::{LoadedTemplate, Template, TemplateKind, Uses},
};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd};

/// Names of modules that are left to children, bytes: more a template does not tell.
const LEFT_MOST: usize = 256 << 10;

/// A template that a helper loads. Dropping it ends it. Its descriptor becomes readable when it has told something.
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
    /// What is known of it. Its files and where it looks for modules the helper knows alone.
    pub loaded: LoadedTemplate,
    /// It has of the learned modules what it is to have; if not, another one will.
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

    /// Reads what has come; once it has stopped, how: for [`stopped`](Self::stopped).
    ///
    /// # Errors
    /// There will be none, in words.
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
                    let pid = fds.first().map_or(pid, number);
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

    /// Whether nothing of the program itself has run.
    pub fn holds(&self) -> bool {
        self.holds
    }

    /// What kind of program it is, once that has come.
    pub fn kind(&self) -> Option<TemplateKind> {
        self.started.map(|(kind, _)| kind)
    }

    /// It has stopped. `None`: that makes no sense.
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
        let template = Template::remote(template);
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
