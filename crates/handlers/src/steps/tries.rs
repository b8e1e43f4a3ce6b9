//! Front controllers: the first of some paths that is there, else a program (nginx's `try_files`).

use galgo_proto::{h1::Head, target::Target};

use super::{
    redirect,
    template::{TargetTemplate, Values},
};
use crate::files::{self, Files, Waits};

/// Paths to try in the folder of a `files` route.
#[derive(Debug, PartialEq)]
pub struct Tries {
    /// Tried in order.
    pub paths: Vec<TargetTemplate>,
    /// Where none of them is there.
    pub last: Last,
}

/// What answers where nothing is there.
#[derive(Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Last {
    Path(TargetTemplate),
    Status(u16),
}

/// What becomes of a request.
#[derive(Debug)]
#[allow(missing_docs)]
pub enum Tried {
    /// The route answers it as it is.
    AsItIs,
    Again(Box<Target>),
    Status(u16),
}

impl Tries {
    /// What becomes of a request below the route at `route_path`.
    ///
    /// # Errors
    /// Another thread is to look.
    pub fn decide(
        &self,
        files: &Files,
        head: &Head,
        route_path: &str,
        rest: &[u8],
    ) -> Result<Tried, Waits> {
        let target = &head.target;
        let values = Values {
            target,
            rest,
            host: &head.host,
            groups: Vec::new(),
        };
        for template in &self.paths {
            let (path, query) = template.path_and_query(&values);
            let below = path.strip_prefix(route_path.as_bytes());
            let is_there = below.map(|below| files::has(files, below));
            if !is_there.transpose()?.unwrap_or(false) {
                continue;
            }
            let own = target.path();
            // A folder without its last slash is redirected to itself by the route.
            if path == own || path.strip_suffix(b"/") == Some(own) {
                return Ok(Tried::AsItIs);
            }
            return Ok(again(redirect::at(target, path, query)));
        }
        Ok(match &self.last {
            Last::Status(status) => Tried::Status(*status),
            Last::Path(template) => match redirect::again(target, template, &values) {
                // It is where the request is already, and not there.
                Some(next) if next.path() == target.path() => Tried::AsItIs,
                next => again(next),
            },
        })
    }
}

fn again(target: Option<Target>) -> Tried {
    match target {
        Some(target) => Tried::Again(Box::new(target)),
        None => Tried::Status(404),
    }
}
