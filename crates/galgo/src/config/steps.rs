//! Steps before and after the handler of a route.

use galgo_handlers::steps::Steps;

use super::{
    checked::Config,
    error::{Checked, ConfigText},
    raw::RawRoute,
};

impl ConfigText<'_> {
    /// Returns the steps of a route; `None` if the route has none, so that they cost nothing.
    pub(super) fn steps(
        &self,
        route: &RawRoute,
        config: &Config,
        warnings: &mut Vec<String>,
    ) -> Checked<Option<Box<Steps>>> {
        let steps = Steps {
            redirect: self.redirect(route)?,
            cors: self.cors(route)?,
            access: self.access(route)?,
            passwords: self.passwords(route, warnings)?,
            variables: self.variable_rules(route, config)?,
            tries: self.tries(route)?,
            headers: self.header_steps(route)?,
            errors: self.errors(&route.errors)?,
            compress: self.compress(route)?,
        };
        Ok((steps != Steps::default()).then(|| Box::new(steps)))
    }
}
