//! The entries of a folder, and the order that they are listed in.

use std::{cell::RefCell, sync::Arc, time::SystemTime};

/// Entries that are listed; the page says so where there are more. Each costs a stat on the event loop.
pub(super) const MAX_ENTRIES: usize = 10_000;
pub(super) const PAGE: usize = 1000;

/// A name in a folder that would be answered if it were asked for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ListingEntry {
    pub(super) name: Vec<u8>,
    pub(super) folder: bool,
    /// Bytes; of no meaning for a folder.
    pub(super) size: u64,
    pub(super) modified: Option<SystemTime>,
}

/// What a list is sorted by: `?C=N|M|S&O=A|D`, as Apache has it.
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
    /// It holds more.
    pub(super) more: bool,
    /// The page that was made last: those who ask for it again share it.
    pub(super) last: RefCell<Option<(PageAsked, Arc<[u8]>)>>,
}

/// The path, the order, and the number of a page.
pub(super) type PageAsked = (Vec<u8>, SortOrder, usize);
