//! A lock that ignores poisoning.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Takes a lock. If another thread panicked while it held the lock, this one need not: code that may panic leaves no locked
/// value half changed.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
