//! The server's side of templates at helpers, and of their children that wait there for requests.

use crate::{
    remote::{
        child::{RemoteChild, pid_of_pidfd},
        connection::ProgramConnection,
        deadline::Deadline,
        message::{self, HelperOrder, ProgramReport, send_message},
        shortage::is_short,
        template_message::{PREFORK, REPORT, TemplateReport, TemplateStop},
    },
    start::ChildRequest,
    template_failure::{LoadFailure, NoTemplate},
    template_kind::{TemplateKind, Uses},
};
use rustix::{
    io::Errno,
    net::{SendFlags, sockopt::set_socket_send_buffer_size},
};
use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    sync::{Mutex, PoisonError},
};

/// Limit for the names of modules that are left to children, in bytes. Further reports of names are dropped.
const LEFT_MOST: usize = 256 << 10;

/// A template at a helper. Dropping it ends the process. Its descriptor becomes readable when the helper has sent a report.
#[derive(Debug)]
pub(crate) struct RemoteTemplate {
    connection: ProgramConnection,
    pub(crate) uses: Uses,
    /// The kind and the process id, once the helper has reported them.
    started: Option<(TemplateKind, i32)>,
    holds: bool,
    left: Vec<u8>,
    state: Mutex<TemplateState>,
}

/// The known state of a stopped template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TemplateState {
    There,
    Gone,
    /// A file of the template has changed.
    Changed,
}

impl RemoteTemplate {
    /// Creates the template for an order that was sent over `connection`.
    pub(crate) fn new(connection: ProgramConnection, uses: Uses) -> Self {
        Self {
            connection,
            uses,
            started: None,
            holds: false,
            left: Vec::new(),
            state: Mutex::new(TemplateState::There),
        }
    }

    /// Reads the reports that have come, until the template has stopped. Returns its state, and the names of modules that it
    /// leaves to its children.
    ///
    /// # Errors
    /// There will be no template.
    pub(crate) fn stopped(&mut self) -> Result<Option<(TemplateStop, Vec<String>)>, LoadFailure> {
        loop {
            let mut buffer = vec![0; REPORT];
            let got = self.connection.receive(&mut buffer);
            let lost = || LoadFailure::not_now("its helper has ended");
            let (n, fds) = match got {
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR) => continue,
                Err(_) | Ok((0, _)) => return Err(lost()),
                Ok(got) => got,
            };
            let report = buffer.get(..n).and_then(TemplateReport::decode);
            match report.ok_or_else(lost)? {
                TemplateReport::Started(kind, pid) => {
                    self.started = Some((kind, fds.first().map_or(pid, pid_of_pidfd)));
                }
                TemplateReport::Holds => self.holds = true,
                TemplateReport::Left(names) if self.left.len() < LEFT_MOST => {
                    self.left.extend(names);
                }
                TemplateReport::Left(_) => {}
                TemplateReport::Stopped(_) if self.started.is_none() => {
                    return Err(LoadFailure::not_now(
                        "the helper reported nothing about the template",
                    ));
                }
                TemplateReport::Stopped(stop) => {
                    let names = self.left.split(|&b| b == b'\n').filter(|n| !n.is_empty());
                    let left = names.map(|name| String::from_utf8_lossy(name).into_owned());
                    return Ok(Some((stop, left.collect())));
                }
                TemplateReport::None(reason, words) => {
                    return Err(LoadFailure::new(reason, words));
                }
                TemplateReport::Changed => {
                    let words = "a file or its helper has changed";
                    return Err(LoadFailure::new(NoTemplate::Changed, words));
                }
            }
        }
    }

    /// Whether the template has reported that it will stop before the program itself runs.
    pub(crate) fn holds(&self) -> bool {
        self.holds
    }

    /// Returns the kind of the program; the kind that can do least before the template has stopped.
    pub(crate) fn kind(&self) -> TemplateKind {
        self.started.map_or(TemplateKind::Elf, |(kind, _)| kind)
    }

    /// Returns the process id, or 0 before the template has stopped.
    pub(crate) fn pid(&self) -> i32 {
        self.started.map_or(0, |(_, pid)| pid)
    }

    /// Asks the template to fork another child.
    pub(crate) fn prefork(&self) -> io::Result<RemotePreforked> {
        let helper = &self.connection.helper;
        let connection = helper.connect(self.connection.as_fd(), &[PREFORK], &[])?;
        Ok(RemotePreforked {
            connection,
            ready: false,
        })
    }

    /// Turns a parked process into the process that takes the request.
    pub(crate) fn into_preforked(self) -> RemotePreforked {
        RemotePreforked {
            connection: self.connection,
            ready: true,
        }
    }

    /// Whether the template is there. The only report about a stopped template is that it is gone.
    pub(crate) fn is_alive(&self) -> bool {
        self.read_state() == TemplateState::There
    }

    pub(crate) fn has_changed(&self) -> bool {
        self.read_state() == TemplateState::Changed
    }

    fn read_state(&self) -> TemplateState {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if *state == TemplateState::There {
            let mut buffer = [0; 16];
            let told = self.connection.receive(&mut buffer);
            *state = match told {
                Err(Errno::AGAIN | Errno::INTR) => TemplateState::There,
                Err(e) if is_short(e) => TemplateState::There,
                Ok((n, _)) => match buffer.get(..n).and_then(TemplateReport::decode) {
                    Some(TemplateReport::Changed) => TemplateState::Changed,
                    _ => TemplateState::Gone,
                },
                Err(_) => TemplateState::Gone,
            };
        }
        *state
    }
}

impl AsFd for RemoteTemplate {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}

/// A child of a [`RemoteTemplate`], or a parked process, that waits for its request.
#[derive(Debug)]
pub(crate) struct RemotePreforked {
    connection: ProgramConnection,
    ready: bool,
}

impl RemotePreforked {
    pub(crate) fn is_ready(&mut self) -> io::Result<bool> {
        if self.ready {
            return Ok(true);
        }
        let mut buffer = [0; message::REPORT];
        match self.connection.receive(&mut buffer) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(e) if is_short(e) => {}
            Ok((n, _))
                if buffer.get(..n).and_then(ProgramReport::decode)
                    == Some(ProgramReport::Waits) =>
            {
                self.ready = true;
            }
            Ok(_) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Err(e) => return Err(e.into()),
        }
        Ok(self.ready)
    }

    /// Asks the helper to give the request to the process. [`RemoteChild::has_begun`] tells the result.
    pub(crate) fn give_request(
        self,
        request: &ChildRequest<'_>,
        report: Option<BorrowedFd<'_>>,
    ) -> io::Result<RemoteChild> {
        let by = Deadline::within(request.patience);
        let head = HelperOrder::encode_start(0, false, request.priority, by);
        let head = head.ok_or(io::ErrorKind::InvalidInput)?;
        let program = request.program.to_bytes_with_nul();
        let parts = [&head[..], program, request.env.as_bytes()];
        let size = parts.iter().map(|part| part.len()).sum::<usize>();
        if size > message::MOST {
            return Err(io::ErrorKind::ArgumentListTooLong.into());
        }
        // The variables of a request must fit into one message. The kernel may allow less.
        if size > USUAL {
            let _ = set_socket_send_buffer_size(&self.connection, message::MOST * 2);
        }
        let fds: Vec<_> = request.stdio.into_iter().chain(report).collect();
        send_message(self.connection.as_fd(), &parts, &fds, SendFlags::DONTWAIT)?;
        Ok(RemoteChild::new(self.connection, None))
    }
}

/// Messages up to this size, in bytes, fit into the default buffer of a socket.
const USUAL: usize = 64 << 10;

impl AsFd for RemotePreforked {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}
