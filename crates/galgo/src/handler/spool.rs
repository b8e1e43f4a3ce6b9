//! A whole request body in a file, handed to the program as its standard input (`body = "file"`).

use std::{
    fs::File,
    io::{self, Seek, Write},
    os::fd::OwnedFd,
};

use rustix::fs::{MemfdFlags, Mode, OFlags};

use crate::{
    conn::{Request, input::Next},
    fault::Fault,
};

/// Up to this size a body is kept in memory; a larger one goes to a file in the temporary folder.
const IN_MEMORY: u64 = 1 << 20;

/// Receives the rest of the body. Returns the file, at its beginning, and its length.
pub async fn spool(request: &mut Request<'_>) -> Result<(OwnedFd, u64), Fault> {
    let small = request.body.declared().is_some_and(|n| n <= IN_MEMORY);
    let mut file = if small { in_memory() } else { on_disk() }.map_err(|e| trouble(&e))?;
    request.send_continue();
    loop {
        match request.body.next(&mut request.input.buf)? {
            Next::Data(n) => {
                file.write_all(&request.input.buf.bytes()[..n])
                    .map_err(|e| trouble(&e))?;
                request.body.take(&mut request.input.buf, n);
            }
            Next::More => request.input.fill_body().await?,
            Next::End => break,
        }
    }
    file.rewind().map_err(|e| trouble(&e))?;
    Ok((file.into(), request.body.taken()))
}

fn in_memory() -> io::Result<File> {
    Ok(rustix::fs::memfd_create("galgo request body", MemfdFlags::CLOEXEC)?.into())
}

/// A file without a name, where the file system knows such; else one whose name is removed at once.
fn on_disk() -> io::Result<File> {
    let folder = std::env::temp_dir();
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::TMPFILE;
    match rustix::fs::open(&folder, flags, Mode::RUSR | Mode::WUSR) {
        Ok(fd) => Ok(fd.into()),
        Err(_) => in_memory(),
    }
}

fn trouble(e: &io::Error) -> Fault {
    Fault::Internal(format!("the request body could not be kept in a file: {e}"))
}
