//! What answers a request; one file each.

pub mod files;
