//! Locks.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Takes a lock. A panic while one is held leaves nothing half done in this crate.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
