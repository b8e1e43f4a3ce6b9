//! Tells how much data a peer has not taken yet.

use std::{
    io,
    os::fd::{AsFd, AsRawFd},
};

/// Returns the bytes written to a socket that its peer has not acknowledged (SIOCOUTQ: tcp(7), unix(7)).
///
/// # Errors
/// The descriptor is no stream socket.
pub fn unacknowledged_bytes(socket: impl AsFd) -> io::Result<usize> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the descriptor is open for as long as it is borrowed, and the request (SIOCOUTQ has the number of TIOCOUTQ)
    // writes one int to the pointer's place.
    let done = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    match done {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(usize::try_from(bytes).unwrap_or(0)),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::{TcpListener, TcpStream},
    };

    use super::*;

    #[test]
    fn what_was_acknowledged_does_not_count() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut theirs, _) = listener.accept().unwrap();
        ours.set_nonblocking(true).unwrap();
        while ours.write(&[0; 1 << 16]).is_ok() {}
        assert!(unacknowledged_bytes(&ours).unwrap() > 0);
        drop(std::thread::spawn(move || {
            theirs.read_to_end(&mut Vec::new())
        }));
        while unacknowledged_bytes(&ours).unwrap() > 0 {
            std::thread::yield_now();
        }
        assert!(unacknowledged_bytes(std::fs::File::open("/dev/zero").unwrap()).is_err());
    }
}
