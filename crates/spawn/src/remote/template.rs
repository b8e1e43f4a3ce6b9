//! The server's side: templates that helpers have, and children that wait there for their requests.

use crate::{
    env::EnvBlock,
    remote::{
        child::RemoteChild,
        connection::ProgramConnection,
        deadline::Deadline,
        message::{self, HelperOrder, ProgramReport, send},
        shortage::is_short,
        template_message::{PREFORK, TemplateReport},
    },
    start::Priority,
    template_kind::{TemplateKind, Uses},
};
use rustix::{
    io::Errno,
    net::{SendFlags, sockopt::set_socket_send_buffer_size},
};
use std::{
    ffi::CStr,
    io,
    os::fd::{AsFd, BorrowedFd},
    sync::{Mutex, PoisonError},
    time::Duration,
};

/// A template that has stopped, at a helper.
#[derive(Debug)]
pub(crate) struct RemoteTemplate {
    connection: ProgramConnection,
    pub(crate) kind: TemplateKind,
    pub(crate) uses: Uses,
    pub(crate) pid: i32,
    state: Mutex<TemplateState>,
}

/// What is known of a template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TemplateState {
    There,
    Gone,
    /// A file that it was made of has changed.
    Changed,
}

impl RemoteTemplate {
    pub(crate) fn new(
        connection: ProgramConnection,
        (kind, pid): (TemplateKind, i32),
        uses: Uses,
    ) -> Self {
        Self {
            connection,
            kind,
            uses,
            pid,
            state: Mutex::new(TemplateState::There),
        }
    }

    /// Has it fork one child more.
    pub(crate) fn prefork(&self) -> io::Result<RemotePreforked> {
        let helper = &self.connection.helper;
        let connection = helper.connect(self.connection.as_fd(), &[PREFORK], &[])?;
        Ok(RemotePreforked {
            connection,
            ready: false,
        })
    }

    /// A parked process, as what takes a request.
    pub(crate) fn itself(self) -> RemotePreforked {
        RemotePreforked {
            connection: self.connection,
            ready: true,
        }
    }

    /// A helper says nothing of a template that has stopped but that it is gone.
    pub(crate) fn is_alive(&self) -> bool {
        self.state() == TemplateState::There
    }

    pub(crate) fn has_changed(&self) -> bool {
        self.state() == TemplateState::Changed
    }

    fn state(&self) -> TemplateState {
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

/// A child of such a template, or a parked process, that waits for its request.
#[derive(Debug)]
pub(crate) struct RemotePreforked {
    connection: ProgramConnection,
    ready: bool,
}

impl RemotePreforked {
    pub(crate) fn ready(&mut self) -> io::Result<bool> {
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

    /// Has the helper give the request to it. What comes of that [`RemoteChild::began`] says.
    pub(crate) fn start(
        self,
        (program, env, priority): (&CStr, &EnvBlock, Priority),
        patience: Duration,
        stdio: [BorrowedFd<'_>; 3],
        report: Option<BorrowedFd<'_>>,
    ) -> io::Result<RemoteChild> {
        let head = HelperOrder::start(0, false, priority, Deadline::within(patience));
        let head = head.ok_or(io::ErrorKind::InvalidInput)?;
        let parts = [&head[..], program.to_bytes_with_nul(), env.bytes()];
        let size = parts.iter().map(|part| part.len()).sum::<usize>();
        if size > message::MOST {
            return Err(io::ErrorKind::ArgumentListTooLong.into());
        }
        // A request's variables are one message. The kernel may allow less.
        if size > USUAL {
            let _ = set_socket_send_buffer_size(&self.connection, message::MOST * 2);
        }
        let fds: Vec<_> = stdio.into_iter().chain(report).collect();
        send(self.connection.as_fd(), &parts, &fds, SendFlags::DONTWAIT)?;
        Ok(RemoteChild::new(self.connection, None))
    }
}

/// Variables of so many bytes fit into what a socket holds.
const USUAL: usize = 64 << 10;

impl AsFd for RemotePreforked {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}
