//! The window of a connection: the bytes of request bodies that a client may send over it before they are taken.
//!
//! The window of one body is free, as on a connection of HTTP/1. The windows of further bodies are charged to the address's
//! share of `spool_memory`. They stay charged until the connection ends, because the server cannot take back its permission to
//! send. If the share is used up, the bodies of a connection wait for each other.

use galgo_service::spool::Charge;

use super::limits::{CONNECTION_WINDOW, STREAM_WINDOW};

/// The window of a connection.
#[derive(Debug)]
pub(super) struct Windows {
    charge: Charge,
    size: u32,
    /// Bodies that have not ended.
    bodies: u32,
}

impl Windows {
    /// Creates the window of a connection that has just begun.
    pub(super) fn new(charge: Charge) -> Self {
        Self {
            charge,
            size: STREAM_WINDOW,
            bodies: 0,
        }
    }

    /// Counts another body. Returns the new size of the window of all bodies, if the size changes.
    pub(super) fn add_body(&mut self) -> Option<u32> {
        self.bodies += 1;
        // Doubled, because a client is told of a larger window only if the new window is larger by half.
        let wanted = self.bodies.next_power_of_two() * STREAM_WINDOW;
        let wanted = wanted.min(CONNECTION_WINDOW);
        if wanted <= self.size || !self.charge.grow_to((wanted - STREAM_WINDOW).into()) {
            return None;
        }
        self.size = wanted;
        Some(wanted)
    }

    /// Counts the end of a body.
    pub(super) fn remove_body(&mut self) {
        self.bodies -= 1;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use galgo_service::{
        peer::Peer,
        spool::{Spool, SpoolSettings},
    };

    use super::*;

    /// Begins a hundred bodies, while `spool_memory` holds `memory` windows. Returns each new size of the window, in bodies.
    fn grows(memory: u64) -> Vec<u32> {
        let settings = SpoolSettings {
            memory: memory * u64::from(STREAM_WINDOW),
            ..SpoolSettings::default()
        };
        let spool = Arc::new(Spool::new(&settings, None));
        let peer = Peer::from_address(Some([192, 0, 2, 1].into()));
        let mut windows = Windows::new(spool.share_of(peer).memory_charge());
        let grown = (0..100)
            .filter_map(|_| windows.add_body())
            .collect::<Vec<_>>();
        (0..100).for_each(|_| windows.remove_body());
        // The window stays as large as it was.
        assert_eq!(windows.add_body(), None);
        grown.into_iter().map(|size| size / STREAM_WINDOW).collect()
    }

    #[test]
    fn as_large_as_all_bodies_and_the_share_of_their_address() {
        assert_eq!(grows(1000), [2, 4, 8, 16, 32, 64, 100]);
        assert_eq!(grows(16), [2, 4, 8]);
        assert_eq!(grows(1), []);
    }
}
