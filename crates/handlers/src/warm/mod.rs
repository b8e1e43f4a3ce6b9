//! Warm starts: programs kept loaded, stopped before their first line, and forked for each request; or
//! parked, for one request each.
//!
//! [`galgo_spawn::template`] is the mechanism: it starts a program with the shim preloaded, looks whether the program can be
//! forked, asks for a child and hands the child a request. This module is the policy: when to load and retire templates, and for
//! which programs there is room. A template is of a program, its user and its route. One of php-cgi serves all scripts that it runs
//! there, because a request names its script. If a helper starts a program, the mechanism runs there (`spawn::owners::warm`): the
//! helper checks each order, watches the files and judges what was learned.
//!
//! 1. `take`: a child for this request, or none: then the program is started cold, at once
//! 2. `program`: one program, and which of its templates is next; `state`: what is known of it, under its lock
//! 3. `live`: a loaded template or a parked process, its share of what is bounded
//! 4. `keeper`: loads, replaces and lets go of a program's templates, off the path of requests
//! 5. `learned`: the modules that children say they loaded
//! 6. `owned`: templates that a helper loads, for programs of other users
//! 7. `registry`: all programs, and whether files that templates were made from have changed; `bounds`: what their templates may take together

mod bounds;
mod failure;
mod keeper;
mod learned;
mod live;
mod order;
mod owned;
mod program;
pub mod registry;
pub(crate) mod setup;
mod state;
mod streams;
mod take;

pub use program::About;
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

    /// A template whose shim does not know a variable would keep for all requests that it was not there.
    #[test]
    fn every_shim_knows_the_variables_of_requests() {
        let c = include_str!("../../../spawn/shim/early.c");
        let c = between(c, "REQUEST[] = {", "};");
        let python = include_str!("../../../spawn/shim/python.py");
        let python = between(python, "REQUESTS = (", ")").replace('"', "");
        let node = include_str!("../../../spawn/shim/node.cjs");
        // It is looked ahead for HTTP_PROXY alone, which no request has.
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
