//! The stack a child runs on until it has executed its program.

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use std::{ffi::c_void, io, ptr, ptr::NonNull};

/// Bytes the child may use; it needs a few hundred, a debug build some thousand.
const SIZE: usize = 64 * 1024;
/// Unmapped bytes below it: one page, of any page size Linux has.
const GUARD: usize = 64 * 1024;

/// A mapping with a guard below.
#[derive(Debug)]
pub(super) struct Stack {
    base: NonNull<c_void>,
}

// SAFETY: this value alone has the mapping's address, and no method reads or writes what is there. Of which thread the child is
// that runs on it makes no difference to the mapping.
unsafe impl Send for Stack {}

impl Stack {
    pub(super) fn new() -> io::Result<Self> {
        // SAFETY: a new anonymous mapping at a place of the kernel's choice touches no memory in
        // use.
        let base = unsafe {
            mmap_anonymous(
                ptr::null_mut(),
                GUARD + SIZE,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::STACK | MapFlags::NORESERVE,
            )?
        };
        let stack = Self {
            base: NonNull::new(base).ok_or(io::ErrorKind::OutOfMemory)?,
        };
        // SAFETY: the first GUARD bytes of the mapping made above, which nothing uses yet.
        unsafe { mprotect(base, GUARD, MprotectFlags::empty())? };
        Ok(stack)
    }

    /// The address behind its highest byte, as clone(2) takes it: page-aligned.
    pub(super) fn top(&self) -> usize {
        self.base.as_ptr() as usize + GUARD + SIZE
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`. No child uses it: one that is waited for (CLONE_VFORK) has left it before the call
        // that made it returned, and `Launches` forgets the stack of any other that may not have left. A failure leaves the
        // mapping in place, which does no harm.
        let _ = unsafe { munmap(self.base.as_ptr(), GUARD + SIZE) };
    }
}
