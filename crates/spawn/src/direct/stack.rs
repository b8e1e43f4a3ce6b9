//! The stack that a child runs on until it has executed its program.

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use std::{ffi::c_void, io, ptr, ptr::NonNull};

/// Bytes that the child may use; it needs a few hundred, in a debug build some thousand.
const SIZE: usize = 64 * 1024;
/// Unmapped bytes below the stack: at least one page, of any page size that Linux has.
const GUARD: usize = 64 * 1024;

/// A mapping, with an unmapped guard below the stack.
#[derive(Debug)]
pub(super) struct Stack {
    base: NonNull<c_void>,
}

// SAFETY: this value alone has the mapping's address, and no method reads or writes the mapping. The mapping does not depend on
// which thread started the child that runs on it.
unsafe impl Send for Stack {}

impl Stack {
    pub(super) fn new() -> io::Result<Self> {
        // SAFETY: a new anonymous mapping at a place of the kernel's choice touches no memory in use.
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

    /// Returns the address after the highest byte, as clone(2) takes it: page-aligned.
    pub(super) fn top_address(&self) -> usize {
        self.base.as_ptr() as usize + GUARD + SIZE
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`. No child uses it: a child that is waited for (CLONE_VFORK) left it before the call
        // that made the child returned, and `Launches` forgets the stack of any other that may not have left. A failure leaves
        // the mapping in place, which does no harm.
        let _ = unsafe { munmap(self.base.as_ptr(), GUARD + SIZE) };
    }
}
