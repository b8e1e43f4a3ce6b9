//! Variables that programs get for some requests: `env_rules`.

use galgo_handlers::steps::{
    rewrite::path_pattern,
    variables::{Pattern, VariableRule},
};
use toml::Spanned;

use crate::{
    config::Config,
    config_text::{
        config_error::{Checked, ConfigText},
        raw::{self, RawRoute, RawVariableRule, Typed, each_typed, where_typed},
    },
    route_check::{environment::computed, fields::is_token},
};

impl ConfigText<'_> {
    pub(crate) fn check_variable_rules(
        &self,
        route: &RawRoute,
        config: &Config,
    ) -> Checked<Vec<VariableRule>> {
        let rules = each_typed(&route.env_rules, |rule| self.check_variable_rule(rule))?;
        let helped = route.user.is_some() || config.runs_as.is_some();
        if let (Some(at), true) = (&route.env_rules, helped) {
            let named = |name: &String| {
                let env = route.env.as_ref().map(Spanned::get_ref);
                env.is_some_and(|env| env.keys().any(|key| key.get_ref() == name))
            };
            let names = rules.iter().flat_map(|rule| &rule.set);
            if let Some((name, _)) = names.into_iter().find(|(name, _)| !named(name)) {
                let message = format!(
                    "add {name} to `env`, too: programs with `user` get only the variables of `env`"
                );
                return Err(self.error_at(at.span(), message));
            }
        }
        Ok(rules)
    }

    fn check_variable_rule(&self, typed: &Spanned<RawVariableRule>) -> Checked<VariableRule> {
        let raw = typed.get_ref();
        let mut headers = Vec::new();
        for (name, value) in raw.headers.iter().flat_map(|map| map.get_ref()) {
            if !is_token(name.get_ref()) {
                let message = format!("env_rules: {:?} is not the name of a field", name.get_ref());
                return Err(self.keyless_error(name.span(), message));
            }
            headers.push((name.get_ref().clone(), self.check_pattern(value)?));
        }
        if let Some(path) = &raw.path {
            self.require_first_slash(path)?;
        }
        let rule = VariableRule {
            headers,
            path: self.check_optional_pattern(&raw.path)?,
            query: self.check_optional_pattern(&raw.query)?,
            methods: self.check_methods(&raw.methods)?,
            host: self.check_hosts(&raw.host)?,
            from: where_typed(&raw.from, |_| self.check_addresses(&raw.from))?,
            set: Vec::new(),
        };
        if rule == VariableRule::default() {
            let message = "env_rules: this rule has no condition: name one of `headers`, `path`, `query`, `methods`, `host`, `from`, or write the variables into `env`";
            return Err(self.keyless_error(typed.span(), message));
        }
        let set = self.check_variables("env_rules", &raw.set, computed)?;
        if set.is_empty() {
            let message = "env_rules: this rule sets nothing: add set = { NAME = \"value\" }";
            return Err(self.keyless_error(typed.span(), message));
        }
        Ok(VariableRule { set, ..rule })
    }

    fn check_optional_pattern(&self, typed: &Typed<String>) -> Checked<Option<Pattern>> {
        where_typed(typed, |typed| self.check_pattern(typed))
    }

    fn check_pattern(&self, typed: &raw::Text) -> Checked<Pattern> {
        self.parse_regex(typed, path_pattern).map(Pattern)
    }
}
