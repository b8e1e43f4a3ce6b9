//! Programs that a helper keeps loaded for warm starts.
//!
//! The server decides when there is to be a template and how many children wait ([`Owners`](super::Owners)); the helper makes
//! them, in the way that the server makes its own ([`crate::template`]). Of each template and of each child that waits the
//! server has a socket. Who closes it ends the process.
//!
//! The helper believes the server nothing here either: it finds out itself what kind of program it is, gives templates the
//! variables that are configured, checks each request as it checks a cold start, and judges itself which learned modules
//! count. It watches the files that a template was made of: no other process is told their names.
//!
//! 1. [`template_message`](crate::remote::template_message): what both say  2. `under_way`, [`remote`](crate::remote::template): the server's side  3. `templates`: the helper's  4. `waiting`: children
//!    there

pub(super) mod templates;
pub(crate) mod under_way;
pub(super) mod waiting;
