//! Programs that a helper keeps loaded for warm starts.
//!
//! The server decides when to load a template and how many children wait ([`Owners`](super::Owners)). The helper makes them in
//! the same way as the server makes its own ([`crate::template`]). The server has a socket for each template and each waiting
//! child. Closing this socket ends the process.
//!
//! The helper does not trust the server here either. It finds out the kind of a program itself, gives templates the variables
//! from the configuration, and checks each request as it checks a cold start. It judges itself which learned modules count, and
//! watches the files that a template was made of. No other process is told the names of these files.
//!
//! 1. [`template_message`](crate::remote::template_message): the messages of both sides
//! 2. [`remote`](crate::remote::template): the server's side
//! 3. `templates`: the helper's side
//! 4. `waiting`: the children at the helper

pub(crate) mod templates;
mod waiting_children;
