//! Locks.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Takes a lock. A panic of another thread while it held the lock is no reason for one here: nothing that is locked is left half
/// changed by code that may panic.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
