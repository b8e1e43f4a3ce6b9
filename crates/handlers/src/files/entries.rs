//! The entries of a folder, and the order of a list.

use std::{cell::RefCell, sync::Arc, time::SystemTime};

/// Limit for entries in a list; the page tells if the folder holds more. Each entry costs a stat on the event loop.
pub(super) const MAX_ENTRIES: usize = 10_000;
pub(super) const PAGE: usize = 1000;

/// A name in a folder that a request could ask for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ListingEntry {
    pub(super) name: Vec<u8>,
    pub(super) folder: bool,
    /// Size in bytes; meaningless for a folder.
    pub(super) size: u64,
    pub(super) modified: Option<SystemTime>,
}

/// Order of a list: `?C=N|M|S&O=A|D`, as Apache has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SortOrder {
    pub(super) column: Column,
    pub(super) descending: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Column {
    Name,
    Modified,
    Size,
}

#[derive(Debug, Default)]
pub(super) struct Listed {
    /// Folders first, each part by name.
    pub(super) entries: Vec<ListingEntry>,
    pub(super) folders: usize,
    /// Whether the folder holds more entries.
    pub(super) more: bool,
    /// The last page that was made: requests for the same page share it.
    pub(super) last: RefCell<Option<(PageAsked, Arc<[u8]>)>>,
}

/// The path, the order, and the number of a page.
pub(super) type PageAsked = (Vec<u8>, SortOrder, usize);
