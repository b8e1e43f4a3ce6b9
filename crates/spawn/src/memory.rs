//! Memory of this process that is not in use.

/// Gives memory that was freed back to the system (malloc_trim(3)). That may take milliseconds, during which other threads wait
/// for memory.
pub fn give_back_memory() {
    // SAFETY: the call takes no pointer, and any thread may make it at any time (MT-Safe); it changes only free memory.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
}
