//! Reads the decision of an authorizer (FastCGI, 6.3): whether the request may be answered, and variables to add. A CGI program
//! answers in the same way.
//!
//! Only a whole answer lets a request in. Its status must be 200, or any 2xx from a CGI program. An answer with any defect
//! makes the request fail.

use std::ops::RangeInclusive;

use galgo_proto::{
    Fields,
    cgi::{Reply, ReplyKind},
    vars,
};
use galgo_service::{fault::Fault, producer::Producer};
use galgo_spawn::{Status, words::describe_status};

use crate::{
    backend::Backend,
    context::Answer,
    reply::{Answering, Trouble},
    variables::USER,
};

/// Prefix of fields that set a variable.
const VARIABLE: &[u8] = b"variable-";
/// Bytes that an authorizer may print after the head that lets a request in. They are ignored.
const MOST_IGNORED: usize = 1 << 20;

impl Answering<'_, '_, '_> {
    /// Reads the answer of an authorizer. The statuses `grants` let the request in. `Ok(None)`: the request may be answered.
    pub(super) async fn judge_reply(
        &mut self,
        mut backend: Backend,
        grants: RangeInclusive<u16>,
    ) -> Result<Option<Answer>, Fault> {
        let judged = match self.scan_head(&mut backend).await {
            Ok(reply) if is_granted(&reply, &grants) => {
                match self.read_granted_variables(&mut backend, &reply).await {
                    Ok(granted) => {
                        // The authorizer has the last word, also over variables that a password has set.
                        let before = &mut self.request.granted;
                        before.retain(|(name, _)| !granted.iter().any(|(new, _)| new == name));
                        before.extend(granted);
                        self.finish_program(backend);
                        return Ok(None);
                    }
                    Err(trouble) => Err(trouble),
                }
            }
            Ok(mut denied) => {
                denied
                    .fields
                    .retain(|name, _| variable_name(name).is_none());
                self.warn_untyped(&mut backend, &denied)
                    .await
                    .map(|()| denied)
            }
            Err(trouble) => Err(trouble),
        };
        self.make_answer(backend, judged).await.map(Some)
    }

    /// Reads a granting answer to its end. If the answer is cut short, the request is not let in.
    async fn read_granted_variables(
        &mut self,
        backend: &mut Backend,
        reply: &Reply,
    ) -> Result<Vec<(String, Vec<u8>)>, Trouble> {
        let mut ignored = 0;
        while !backend.has_output_ended() {
            ignored += backend.pending_len();
            backend.pending_output().clear_seen();
            if ignored > MOST_IGNORED {
                let words = "the authorizer let the request in, but then printed more than 1M";
                return Err(Fault::Script(words.into()).into());
            }
            self.await_next_output(backend).await?;
        }
        let fault = match backend {
            Backend::Program(_) => authorizer_fault(backend).await,
            Backend::Exchange(exchange) => exchange.verdict(),
        };
        match fault {
            Some(fault) => Err(fault.into()),
            None => Ok(granted_variables(&reply.fields)?),
        }
    }
}

fn is_granted(reply: &Reply, grants: &RangeInclusive<u16>) -> bool {
    matches!(reply.kind, ReplyKind::Document) && grants.contains(&reply.status)
}

/// Returns a fault if the program failed. Its exit status has the last word: a program that fails after its head lets no
/// request in.
async fn authorizer_fault(program: &mut Backend) -> Option<Fault> {
    let (exit, _) = program.post_mortem(false).await;
    match exit.map(|exit| exit.status) {
        Some(Status::Code(0)) => None,
        Some(status) => Some(Fault::Script(format!(
            "the authorizer let the request in, but ended {}",
            describe_status(status)
        ))),
        None => Some(Fault::Script(
            "the authorizer let the request in, but does not end".into(),
        )),
    }
}

fn variable_name(field: &[u8]) -> Option<&[u8]> {
    let (start, name) = field.split_at_checked(VARIABLE.len())?;
    start.eq_ignore_ascii_case(VARIABLE).then_some(name)
}

/// Returns the variables that a granting answer sets. All other fields of the answer are ignored.
fn granted_variables(fields: &Fields) -> Result<Vec<(String, Vec<u8>)>, Fault> {
    let mut found: Vec<(String, Vec<u8>)> = Vec::new();
    for (name, value) in fields.iter() {
        let Some(name) = variable_name(name) else {
            continue;
        };
        // Apache replaces `-` in the same way.
        let text = String::from_utf8_lossy(name).replace('-', "_");
        let name = text.as_bytes();
        let good = name.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'_')
            && !name.first().is_none_or(u8::is_ascii_digit);
        let why = if !good {
            "which is not a valid name: use letters, digits and \"_\""
        } else if found.iter().any(|(n, _)| *n == text) {
            "twice"
        } else if vars::is_computed(&text) && !USER.contains(&text.as_str()) {
            "which galgo computes for each request: an authorizer cannot set it"
        } else {
            found.push((text, value.to_vec()));
            continue;
        };
        return Err(Fault::Script(format!(
            "the authorizer sets the variable {text:?}, {why}"
        )));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_sets_variables_that_are_its_to_set() {
        let said = |lines: &[(&str, &str)]| {
            let mut fields = Fields::new();
            for (name, value) in lines {
                fields.push(name, value);
            }
            granted_variables(&fields).map_err(|f| f.to_string())
        };
        let found = said(&[
            ("Variable-REMOTE_USER", "ada"),
            ("Content-Type", "a/b"),
            ("vArIaBlE-colour_2", "red, or blue"),
            ("Variable-X-Foo", "a"),
            ("Variables-X", "1"),
        ]);
        let wanted = [
            ("REMOTE_USER", "ada"),
            ("colour_2", "red, or blue"),
            ("X_Foo", "a"),
        ];
        let wanted = wanted.map(|(n, v)| (n.to_owned(), v.as_bytes().to_vec()));
        assert_eq!(found.unwrap(), wanted);
        for (name, why) in [
            ("Variable-", "not a valid name"),
            ("Variable-2A", "not a valid name"),
            ("Variable-A.B", "not a valid name"),
            ("Variable-HTTP-PROXY", "computes"),
            ("Variable-PATH", "computes"),
            ("Variable-SCRIPT_FILENAME", "computes"),
            ("Variable-HTTP_PROXY", "computes"),
            ("Variable-REMOTE_IDENT", "computes"),
            ("Variable-REMOTE_ADDR", "computes"),
        ] {
            let words = said(&[(name, "x")]).unwrap_err();
            assert!(words.contains(why), "{name}: {words}");
        }
        for names in [
            ["Variable-A", "Variable-A"],
            ["Variable-A-B", "Variable-A_B"],
        ] {
            let twice = said(&names.map(|name| (name, "1")));
            assert!(twice.unwrap_err().contains("twice"));
        }
    }
}
