//! The server's side: templates that helpers have, and their children.

use super::message::{NoTemplate, PREFORK, REPORT, TemplateReport};
use crate::{
    Child,
    owners::{
        message::{self, HelperOrder, Report, pair, receive, send},
        remote::{RemoteChild, number},
    },
    template::{ChildRequest, LoadedTemplate, PreforkedChild, Template, TemplateKind, Uses},
};
use rustix::{
    io::Errno,
    net::{RecvFlags, SendFlags, sockopt::set_socket_send_buffer_size},
};
use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Mutex, PoisonError},
};

/// Names of modules that are left to children, bytes: more a template does not tell.
const LEFT_MOST: usize = 256 << 10;

/// A template that a helper loads. Dropping it ends it. Its descriptor becomes readable when it has told something.
#[derive(Debug)]
pub struct TemplateUnderWay {
    socket: OwnedFd,
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
    pub(crate) fn new(socket: OwnedFd, uses: Uses) -> Self {
        Self {
            socket,
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
    pub fn progress(&mut self) -> Result<Option<Stop>, (NoTemplate, String)> {
        loop {
            let mut buffer = vec![0; REPORT];
            let got = receive(self.socket.as_fd(), &mut buffer, RecvFlags::DONTWAIT);
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
                TemplateReport::Stopped {
                    memory,
                    knows,
                    obstacle,
                } => {
                    return Ok(Some(Stop {
                        memory,
                        knows,
                        obstacle,
                    }));
                }
                TemplateReport::None(why, words) => return Err((why, words)),
                TemplateReport::Changed => {
                    return Err((NoTemplate::Changed, "a file has changed".into()));
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
    pub fn stopped(self, stop: Stop) -> Option<StoppedTemplate> {
        let (kind, pid) = self.started?;
        let names = self.left.split(|&b| b == b'\n').filter(|n| !n.is_empty());
        let left = names.map(|name| String::from_utf8_lossy(name).into_owned());
        let loaded = LoadedTemplate {
            memory: stop.memory,
            obstacle: Some(stop.obstacle).filter(|words| !words.is_empty()),
            left: left.collect(),
            ..LoadedTemplate::default()
        };
        let template = Template::remote(RemoteTemplate {
            socket: self.socket,
            kind,
            uses: self.uses,
            pid,
            state: Mutex::new(State::There),
        });
        Some(StoppedTemplate {
            template,
            loaded,
            knows: stop.knows,
        })
    }
}

/// How a template has stopped.
#[derive(Debug)]
pub struct Stop {
    memory: u64,
    knows: bool,
    obstacle: String,
}

impl AsFd for TemplateUnderWay {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A template that has stopped, at a helper.
#[derive(Debug)]
pub(crate) struct RemoteTemplate {
    socket: OwnedFd,
    kind: TemplateKind,
    uses: Uses,
    pid: i32,
    state: Mutex<State>,
}

/// What is known of a template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    There,
    Gone,
    /// A file that it was made of has changed.
    Changed,
}

impl RemoteTemplate {
    /// As [`Template::prefork`].
    pub(crate) fn prefork(&self) -> io::Result<PreforkedChild> {
        let (ours, theirs) = pair()?;
        let fds = [theirs.as_fd()];
        send(self.socket.as_fd(), &[PREFORK], &fds, SendFlags::DONTWAIT)?;
        Ok(PreforkedChild::remote(RemotePreforked {
            socket: ours,
            ready: false,
        }))
    }

    /// As [`Template::itself`].
    pub(crate) fn itself(self) -> PreforkedChild {
        PreforkedChild::remote(RemotePreforked {
            socket: self.socket,
            ready: true,
        })
    }

    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    pub(crate) fn uses(&self) -> Uses {
        self.uses
    }

    pub(crate) fn kind(&self) -> TemplateKind {
        self.kind
    }

    /// A helper says nothing of a template that has stopped but that it is gone.
    pub(crate) fn is_alive(&self) -> bool {
        self.state() == State::There
    }

    pub(crate) fn has_changed(&self) -> bool {
        self.state() == State::Changed
    }

    fn state(&self) -> State {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if *state == State::There {
            let mut buffer = [0; 16];
            let mut told = receive(self.socket.as_fd(), &mut buffer, RecvFlags::DONTWAIT);
            // It was closed with something unread. The kernel says that first, once: what was told comes behind.
            if matches!(told, Err(Errno::CONNRESET)) {
                told = receive(self.socket.as_fd(), &mut buffer, RecvFlags::DONTWAIT);
            }
            *state = match told {
                Err(Errno::AGAIN | Errno::INTR) => State::There,
                Ok((n, _)) => match buffer.get(..n).and_then(TemplateReport::decode) {
                    Some(TemplateReport::Changed) => State::Changed,
                    _ => State::Gone,
                },
                Err(_) => State::Gone,
            };
        }
        *state
    }
}

impl AsFd for RemoteTemplate {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A child of such a template, or a parked process, that waits for its request.
#[derive(Debug)]
pub(crate) struct RemotePreforked {
    socket: OwnedFd,
    ready: bool,
}

impl RemotePreforked {
    pub(crate) fn ready(&mut self) -> io::Result<bool> {
        if self.ready {
            return Ok(true);
        }
        let mut buffer = [0; message::REPORT];
        match receive(self.socket.as_fd(), &mut buffer, RecvFlags::DONTWAIT) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            Ok((n, _)) if buffer.get(..n).and_then(Report::decode) == Some(Report::Waits) => {
                self.ready = true;
            }
            Ok(_) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Err(e) => return Err(e.into()),
        }
        Ok(self.ready)
    }

    /// Has the helper give the request to it. What comes of that [`RemoteChild::began`] says.
    pub(crate) fn start(
        self,
        request: &ChildRequest<'_>,
        report: Option<BorrowedFd<'_>>,
    ) -> io::Result<Child> {
        let head = HelperOrder::start(0).ok_or(io::ErrorKind::InvalidInput)?;
        let parts = [
            &head[..],
            request.program.to_bytes_with_nul(),
            request.env.bytes(),
        ];
        let size = parts.iter().map(|part| part.len()).sum::<usize>();
        if size > message::MOST {
            return Err(io::ErrorKind::ArgumentListTooLong.into());
        }
        // A request's variables are one message. The kernel may allow less.
        if size > USUAL {
            let _ = set_socket_send_buffer_size(&self.socket, message::MOST * 2);
        }
        let fds: Vec<_> = request.stdio.into_iter().chain(report).collect();
        send(self.socket.as_fd(), &parts, &fds, SendFlags::DONTWAIT)?;
        Ok(Child::remote(RemoteChild::warm(self.socket)))
    }
}

/// Variables of so many bytes fit into what a socket holds.
const USUAL: usize = 64 << 10;

impl AsFd for RemotePreforked {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
