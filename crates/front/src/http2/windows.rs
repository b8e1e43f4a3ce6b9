//! What the request bodies of a connection hold of its window.

use std::{cell::RefCell, collections::HashMap};

use h2::{FlowControl, RecvStream, StreamId};

use super::limits::CONNECTION_WINDOW;

/// The largest frame that clients send, SETTINGS_MAX_FRAME_SIZE at its start: with less room than that some send nothing.
const FRAME: usize = 16 << 10;

/// The streams of a connection that have a body.
#[derive(Debug, Default)]
pub(super) struct Windows(RefCell<HashMap<StreamId, FlowControl>>);

impl Windows {
    /// A stream's body begins to come.
    pub(super) fn enter(&self, body: &mut RecvStream) {
        let flow = body.flow_control().clone();
        self.0.borrow_mut().insert(flow.stream_id(), flow);
    }

    /// Nothing more of it is wanted.
    pub(super) fn leave(&self, body: &RecvStream) {
        self.0.borrow_mut().remove(&body.stream_id());
    }

    /// Whether bodies that nobody takes leave the client no room to send more.
    pub(super) fn are_shut(&self) -> bool {
        let held = self.0.borrow();
        let held: usize = held.values().map(FlowControl::used_capacity).sum();
        held + FRAME > CONNECTION_WINDOW as usize
    }
}
