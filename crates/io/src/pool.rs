//! Buffers for the output of programs, used again and again by the event loop of this thread.
//!
//! A buffer this large would otherwise be a fresh mapping each time, and its first touch a page
//! fault, which costs more than the read itself.

use std::cell::RefCell;

pub use galgo_spawn::give_back_memory;

/// The size of a buffer: the default capacity of a pipe (pipe(7)), so that one read empties it.
pub const SIZE: usize = 64 << 10;
/// The size of a buffer for long output: about as much as a Unix socket holds. One read empties the socket, and the writer is
/// woken once for all of that (bench/notes/applications.md, *Larger buffers*).
pub const LARGE: usize = 256 << 10;
/// Least room for a read.
const LEAST: usize = 4 << 10;
/// Capacity and number of the free buffers that are kept for later requests: 2 MiB for each of the two sizes.
const KEPT: [(usize, usize); 2] = [(SIZE, 32), (LARGE, 8)];

thread_local! {
    static FREE: RefCell<[Vec<Vec<u8>>; 2]> = const { RefCell::new([Vec::new(), Vec::new()]) };
}

/// Returns an empty buffer with room for [`SIZE`] bytes.
pub fn take_buffer() -> Vec<u8> {
    FREE.with_borrow_mut(|[free, _]| free.pop())
        .unwrap_or_else(|| Vec::with_capacity(SIZE))
}

/// Returns an empty buffer with room for [`LARGE`] bytes.
pub fn take_large_buffer() -> Vec<u8> {
    FREE.with_borrow_mut(|[_, free]| free.pop())
        .unwrap_or_else(|| Vec::with_capacity(LARGE))
}

/// Gives a buffer back. Frees it instead if it has grown, or if enough buffers are kept.
pub fn return_buffer(mut buf: Vec<u8>) {
    if let Some(at) = KEPT.iter().position(|(size, _)| *size == buf.capacity()) {
        buf.clear();
        FREE.with_borrow_mut(|free| {
            if free[at].len() < KEPT[at].1 {
                free[at].push(buf);
            }
        });
    }
}

/// Returns whether so little room is left that [`reserve_read`] would make more.
pub fn is_full(buf: &Vec<u8>) -> bool {
    buf.capacity() > 0 && buf.capacity() - buf.len() < LEAST
}

/// Makes room for a read. An empty vector without memory becomes a whole buffer.
pub fn reserve_read(buf: &mut Vec<u8>) {
    if buf.capacity() == 0 {
        *buf = take_buffer();
    } else if is_full(buf) {
        buf.reserve(SIZE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_back_empty() {
        let mut a = take_buffer();
        a.extend_from_slice(b"secret");
        let at = a.as_ptr();
        return_buffer(a);
        let b = take_buffer();
        assert_eq!((b.as_ptr(), b.len()), (at, 0));
    }

    #[test]
    fn buffers_of_both_sizes_come_back_as_such() {
        return_buffer(take_large_buffer());
        return_buffer(take_buffer());
        assert_eq!(
            (take_buffer().capacity(), take_large_buffer().capacity()),
            (SIZE, LARGE)
        );
    }

    #[test]
    fn room_is_made_when_it_is_short() {
        let mut a = Vec::new();
        reserve_read(&mut a);
        assert_eq!(a.capacity(), SIZE);
        a.resize(SIZE - 1, 0);
        reserve_read(&mut a);
        assert!(a.capacity() >= 2 * SIZE - 1);
        return_buffer(a);
        assert_eq!(take_buffer().capacity(), SIZE);
    }
}
