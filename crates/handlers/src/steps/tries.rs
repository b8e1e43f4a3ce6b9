//! Front controllers: the first of some paths that exists, else a program (nginx's `try_files`).

use galgo_proto::{h1::Head, target::Target};

use super::{
    redirect,
    template::{TargetTemplate, Values},
};
use crate::{
    files::{self, Files, Waits},
    program_settings::Cgi,
    script,
};

/// Paths to try in the folder of a `files` route.
#[derive(Debug, PartialEq)]
pub struct Tries {
    /// Paths in the order of trying.
    pub paths: Vec<TargetTemplate>,
    /// Fallback if none of the paths exists.
    pub last: Last,
}

/// Fallback if none of the paths exists.
#[derive(Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Last {
    Path(TargetTemplate),
    Status(u16),
}

/// Outcome for a request.
#[derive(Debug)]
#[allow(missing_docs)]
pub enum Tried {
    /// The route answers the request unchanged.
    AsItIs,
    /// A file or a program of the route exists at this target.
    Found(Box<Target>),
    /// The last path: the request starts again with this target.
    Again(Box<Target>),
    Status(u16),
}

impl Tries {
    /// Decides how to answer a request below the route at `route_path`, which has `programs` among its files.
    ///
    /// # Errors
    /// Looking may block, so that another thread has to do it.
    pub fn decide(
        &self,
        (files, programs): (&Files, Option<&Cgi>),
        head: &Head,
        route_path: &str,
        rest: &[u8],
    ) -> Result<Tried, Waits> {
        let target = &head.target;
        let own = target.path();
        let values = Values {
            target,
            rest,
            host: &head.host,
            groups: Vec::new(),
        };
        for template in &self.paths {
            let (path, query) = template.expand_path_and_query(&values);
            let below = path.strip_prefix(route_path.as_bytes());
            let is_file = below.map(|below| files::has_file(files, below));
            let is_there = is_file.transpose()?.unwrap_or(false)
                || program_of(programs, route_path, &path)?
                    .is_some_and(|program| own.ends_with(&path[program.len()..]));
            if !is_there {
                continue;
            }
            // The route redirects a folder without its last slash to itself.
            if path == own || path.strip_suffix(b"/") == Some(own) {
                return Ok(Tried::AsItIs);
            }
            return Ok(retry_at(
                redirect::target_at(target, path, query),
                Tried::Found,
            ));
        }
        let next = match &self.last {
            Last::Status(status) => return Ok(Tried::Status(*status)),
            Last::Path(template) => redirect::moved_target(target, template, &values),
        };
        if let Some(next) = &next {
            let program = program_of(programs, route_path, next.path())?;
            let is_same = program.is_some() && program == program_of(programs, route_path, own)?;
            // The last path leads to the request's own path or program: nothing else is left to try.
            if next.path() == own || is_same {
                return Ok(Tried::AsItIs);
            }
        }
        Ok(retry_at(next, Tried::Again))
    }
}

/// Returns the program that a path names among the files of the route at `route_path`.
fn program_of<'p>(
    programs: Option<&Cgi>,
    route_path: &str,
    path: &'p [u8],
) -> Result<Option<&'p [u8]>, Waits> {
    let length = programs.map(|cgi| script::length_of_program(cgi, route_path, path));
    let length = length.transpose().map_err(|_| Waits)?.flatten();
    Ok(length.and_then(|length| path.get(..length)))
}

fn retry_at(target: Option<Target>, tried: fn(Box<Target>) -> Tried) -> Tried {
    match target {
        Some(target) => tried(Box::new(target)),
        None => Tried::Status(404),
    }
}
