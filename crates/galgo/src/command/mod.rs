//! Parts that several commands share: the site that a command is about, the user, and output for people.
//!
//! | module | holds |
//! |---|---|
//! | `site_folder`, `identity` | the folder of a command; the user that it becomes |
//! | `found` | the table of routes and programs |
//! | `paint`, `screen` | colours, for terminals that show them; escapes text of others for a terminal |

// See `cli`.
#![allow(clippy::print_stdout, clippy::print_stderr)]

pub(crate) mod found;
pub(crate) mod identity;
pub(crate) mod paint;
pub(crate) mod screen;
pub(crate) mod site_folder;
