//! Steps before and after the handler of a route.

use galgo_handlers::steps::Steps;

use crate::{
    config::Config,
    config_text::{
        config_error::{Checked, ConfigText},
        raw::RawRoute,
    },
};

impl ConfigText<'_> {
    /// Returns the steps of a route; `None` if the route has none, so that they cost nothing.
    pub(crate) fn check_steps(
        &self,
        route: &RawRoute,
        config: &Config,
        warnings: &mut Vec<String>,
    ) -> Checked<Option<Box<Steps>>> {
        let steps = Steps {
            redirect: self.check_redirect(route)?,
            cors: self.check_cors(route)?,
            access: self.check_access(route)?,
            passwords: self.check_passwords(route, warnings)?,
            variables: self.check_variable_rules(route, config)?,
            tries: self.check_tries(route)?,
            headers: self.check_header_steps(route)?,
            errors: self.check_errors(&route.errors)?,
            compress: self.check_compress(route)?,
        };
        Ok((steps != Steps::default()).then(|| Box::new(steps)))
    }
}
