//! The server's side of templates at helpers, and of their children that wait there for requests.

use crate::{
    env::EnvBlock,
    remote::{
        child::RemoteChild,
        connection::ProgramConnection,
        deadline::Deadline,
        message::{self, HelperOrder, ProgramReport, send_message},
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

/// A stopped template at a helper.
#[derive(Debug)]
pub(crate) struct RemoteTemplate {
    connection: ProgramConnection,
    pub(crate) kind: TemplateKind,
    pub(crate) uses: Uses,
    pub(crate) pid: i32,
    state: Mutex<TemplateState>,
}

/// The known state of a template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TemplateState {
    There,
    Gone,
    /// A file of the template has changed.
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
        (program, env, priority): (&CStr, &EnvBlock, Priority),
        patience: Duration,
        stdio: [BorrowedFd<'_>; 3],
        report: Option<BorrowedFd<'_>>,
    ) -> io::Result<RemoteChild> {
        let head = HelperOrder::encode_start(0, false, priority, Deadline::within(patience));
        let head = head.ok_or(io::ErrorKind::InvalidInput)?;
        let parts = [&head[..], program.to_bytes_with_nul(), env.as_bytes()];
        let size = parts.iter().map(|part| part.len()).sum::<usize>();
        if size > message::MOST {
            return Err(io::ErrorKind::ArgumentListTooLong.into());
        }
        // The variables of a request must fit into one message. The kernel may allow less.
        if size > USUAL {
            let _ = set_socket_send_buffer_size(&self.connection, message::MOST * 2);
        }
        let fds: Vec<_> = stdio.into_iter().chain(report).collect();
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
