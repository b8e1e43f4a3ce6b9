//! Memory of this process that nobody uses.

/// Gives memory that was freed back to the system (malloc_trim(3)). It may take milliseconds, during which other threads wait for
/// memory.
pub fn give_back_memory() {
    // SAFETY: it takes no pointer, and any thread may call it at any time (MT-Safe); it changes only what is free.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
}
