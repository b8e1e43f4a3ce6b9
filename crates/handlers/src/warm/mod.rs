//! Warm starts. A program is kept loaded, stopped before its first line. Each request gets a fork of this process, or a parked
//! process that serves one request.
//!
//! [`galgo_spawn::template`] is the mechanism. It starts a program with the shim preloaded, checks whether the program can be
//! forked, asks for a child and hands the child a request. This module is the policy: when to load and retire templates, and
//! which programs have room. A template belongs to a program, its user and its route. A template of php-cgi serves all scripts
//! that it runs there, because a request names its script. If a helper starts a program, the mechanism runs there
//! (`spawn::owners::warm`): the helper checks each order, watches the files and judges the learned modules. `keeper` has either
//! load a template, and treats both alike from then on.
//!
//! 1. `take`: a child for this request, or none: then the program is started cold, at once
//! 2. `program`: one program, and which of its templates is next; `state`: the facts about it, under its lock
//! 3. `live`: a loaded template or a parked process, and its share of the limits
//! 4. `keeper`: loads, replaces and drops a program's templates, outside of requests
//! 5. `learned`: the modules that children say they loaded
//! 6. `registry`: all programs, and whether files of their templates have changed; `bounds`: limits of all templates together

mod bounds;
mod keeper;
mod learned;
mod live;
mod order;
pub mod registry;
pub(crate) mod setup;
mod state;
mod streams;
mod take;
mod warm_program;

pub use crate::warm::warm_program::About;
pub use registry::Warm;
pub use setup::TemplateSetup;
pub use take::{ReadyChild, TemplateChild, child};

#[cfg(test)]
mod tests {
    use galgo_proto::vars::{NAMES, is_of_request};
    use regex::Regex;

    fn between<'t>(text: &'t str, start: &str, end: &str) -> &'t str {
        let (_, behind) = text.split_once(start).unwrap();
        behind.split_once(end).unwrap().0
    }

    /// If a shim did not know a request variable, its template would keep the variable absent for all requests.
    #[test]
    fn every_shim_knows_the_variables_of_requests() {
        let c = include_str!("../../../spawn/shim/early.c");
        let c = between(c, "REQUEST[] = {", "};");
        let python = include_str!("../../../spawn/shim/python.py");
        let python = between(python, "REQUESTS = (", ")").replace('"', "");
        let node = include_str!("../../../spawn/shim/node.cjs");
        // The pattern excludes HTTP_PROXY alone by a lookahead. No request has that variable.
        let node = between(node, "OF_REQUEST =", ";").replace("(?!PROXY$)", "");
        let node = Regex::new(node.trim().trim_matches('/')).unwrap();
        let of_request = NAMES.iter().filter(|name| is_of_request(name));
        for name in of_request.chain(&["REMOTE_IDENT", "REDIRECT_URL"]) {
            assert!(c.contains(&format!("\"{name}\"")), "early.c: {name}");
            assert!(node.is_match(name), "node.cjs: {name}");
            let mut starts = python.split_whitespace();
            assert!(starts.any(|s| name.starts_with(s)), "python.py: {name}");
        }
        assert!(!node.is_match("SSL_CERT_FILE") && !node.is_match("SERVER_SOFTWARE"));
    }
}
