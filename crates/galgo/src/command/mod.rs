//! Parts that several commands share: the site that a command is about, the user, and output for people.

pub(crate) mod found;
pub(crate) mod identity;
pub(crate) mod paint;
pub(crate) mod screen;
pub(crate) mod site_folder;
