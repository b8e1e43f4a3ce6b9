//! Sends files that programs hand over in place of a body: X-Sendfile and X-Accel-Redirect.
//!
//! 1. Take the fields out of the response.
//! 2. Find the folder.
//! 3. Have the file answered.
//! 4. Add the program's own fields.

use std::os::unix::ffi::OsStrExt;

use galgo_proto::{
    Fields,
    cgi::{Reply, ReplyBody},
    fields::is_one_of,
    h1::{Head, Method},
    target::Target,
};
use galgo_service::{body::Response, fault::Fault};

use crate::files::Files;

/// The folders with files that programs may have sent in place of a body of their own.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Sendfile {
    /// For `X-Sendfile`, which names a file by its path.
    pub folders: Vec<Files>,
    /// For `X-Accel-Redirect`, which names a file by a virtual path: (`/protected/`, folder), the longest first.
    pub paths: Vec<(String, Files)>,
}

const FIELDS: [&str; 2] = ["X-Sendfile", "X-Accel-Redirect"];
/// Fields that the file's answer has better than the program's. A type from the program was already used for the file's answer.
const REPLACED: [&str; 6] = [
    "content-type",
    "content-length",
    "etag",
    "last-modified",
    "accept-ranges",
    "content-range",
];
/// A path in X-Accel-Redirect is no longer than a head may be.
const LONGEST: usize = 64 << 10;

/// Returns the fields that this route obeys.
fn honored_fields(sendfile: &Sendfile) -> impl Iterator<Item = &'static str> {
    let on = [!sendfile.folders.is_empty(), !sendfile.paths.is_empty()];
    FIELDS
        .into_iter()
        .zip(on)
        .filter_map(|(name, on)| on.then_some(name))
}

/// Returns whether the response asks for a file, so that no body of its own is waited for.
pub(super) fn asks_for_file(sendfile: &Sendfile, reply: &Reply) -> bool {
    reply.body_handling() != ReplyBody::Discard
        && honored_fields(sendfile).any(|name| reply.fields.has_field(name))
}

/// Returns the file that `reply` asks for: its folder, and the path below it. The fields are removed, unless they may be meant
/// for a server in front of galgo: `passed_on`.
///
/// # Errors
/// This program must not hand over the file.
pub(super) fn take_requested_file<'h>(
    sendfile: &'h Sendfile,
    reply: &mut Reply,
    passed_on: bool,
) -> Result<Option<(&'h Files, Vec<u8>)>, Fault> {
    let asked = asks_for_file(sendfile, reply);
    let found = asked
        .then(|| find_requested_file(sendfile, &reply.fields))
        .transpose()?;
    if passed_on {
        honored_fields(sendfile).for_each(|name| reply.fields.remove(&[name]))
    } else {
        reply.fields.remove(&FIELDS)
    }
    Ok(found)
}

/// Answers with a file that [`take_requested_file`] has found, by `send`.
///
/// # Errors
/// The file does not exist.
pub(super) async fn answer_with_file(
    (files, rest): (&Files, Vec<u8>),
    head: &Head,
    reply: &mut Reply,
    send: impl AsyncFnOnce((&Files, &Head, &[u8]), Option<String>) -> Result<Option<Response>, Fault>,
) -> Result<Response, Fault> {
    let plain = reply.status != 200 || !matches!(head.method, Method::Get | Method::Head);
    let media = reply.fields.first_value("content-type").map(<[u8]>::to_vec);
    let media = media.and_then(|m| String::from_utf8(m).ok());
    let other = plain.then(|| unconditional(head));
    let head = other.as_ref().unwrap_or(head);
    let file = send((files, head, &rest), media).await?;
    let file = file.ok_or_else(|| refusal_fault("is not a readable file"))?;
    Ok(with_reply_fields(file, reply, plain))
}

/// Returns the request without the fields that choose a part of a file or none of it: these apply to GET and HEAD, and to 200.
fn unconditional(head: &Head) -> Head {
    let method = match head.method {
        Method::Head => Method::Head,
        _ => Method::Get,
    };
    Head {
        method,
        fields: Fields::new(),
        ..head.clone()
    }
}

/// Returns the folder, and the path below it. The longest folder wins.
fn find_requested_file<'h>(
    sendfile: &'h Sendfile,
    fields: &Fields,
) -> Result<(&'h Files, Vec<u8>), Fault> {
    let mut said =
        honored_fields(sendfile).flat_map(|name| fields.all_values(name).map(move |v| (name, v)));
    let (Some((name, value)), None) = (said.next(), said.next()) else {
        return Err(refusal_fault("is named more than once"));
    };
    let found = match name {
        "X-Sendfile" => find_by_folder(sendfile, value),
        _ => find_by_path(sendfile, value),
    };
    found.ok_or_else(|| {
        refusal_fault("is in no folder that the route lists (sendfile, accel_redirect)")
    })
}

fn find_by_folder<'h>(sendfile: &'h Sendfile, path: &[u8]) -> Option<(&'h Files, Vec<u8>)> {
    let below = |files: &'h Files| {
        let folder = files.path.as_os_str().as_bytes();
        let rest = path.strip_prefix(folder)?.strip_prefix(b"/")?;
        Some((files, rest.to_vec()))
    };
    let found = sendfile.folders.iter().filter_map(below);
    found.min_by_key(|(_, rest)| rest.len())
}

fn find_by_path<'h>(sendfile: &'h Sendfile, uri: &[u8]) -> Option<(&'h Files, Vec<u8>)> {
    let target = Target::parse(uri, LONGEST).ok()?;
    sendfile.paths.iter().find_map(|(prefix, files)| {
        let rest = target.path().strip_prefix(prefix.as_bytes())?;
        Some((files, rest.to_vec()))
    })
}

/// Returns the file's answer with the program's fields. A partial answer of several parts keeps its own type.
fn with_reply_fields(mut file: Response, reply: &mut Reply, plain: bool) -> Response {
    let own = std::mem::take(&mut reply.fields);
    let failed = file.status >= 400;
    if plain {
        file.status = reply.status;
        file.reason = reply.reason.take();
    }
    for (name, value) in own.iter() {
        let about_body = is_one_of(name, &["content-encoding", "content-disposition"]);
        let dropped = is_one_of(name, &REPLACED) || failed && about_body;
        if !dropped {
            file.fields.push(name, value);
        }
    }
    file
}

/// Returns the fault without a path: the program's author knows the path, and other people read the log.
fn refusal_fault(why: &str) -> Fault {
    Fault::Script(format!(
        "the file that the program named (X-Sendfile, X-Accel-Redirect) {why}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_folder_is_meant() {
        let outer = tempfile::tempdir().unwrap();
        let inner = outer.path().join("in");
        std::fs::create_dir(&inner).unwrap();
        let open = |path: &std::path::Path| Files::open(path).unwrap();
        let sendfile = Sendfile {
            folders: vec![open(outer.path()), open(&inner)],
            paths: vec![
                ("/p/in/".into(), open(&inner)),
                ("/p/".into(), open(outer.path())),
            ],
        };
        let file = inner.join("a b");
        let (files, rest) = find_by_folder(&sendfile, file.as_os_str().as_bytes()).unwrap();
        assert_eq!(
            (files.path.as_path(), &rest[..]),
            (inner.as_path(), &b"a b"[..])
        );
        let (files, rest) = find_by_path(&sendfile, b"/p/in/a%20b").unwrap();
        assert_eq!(
            (files.path.as_path(), &rest[..]),
            (inner.as_path(), &b"a b"[..])
        );
        let beside = format!("{}x/a", outer.path().display());
        for other in [
            beside.as_bytes(),
            b"/etc/passwd",
            b"a",
            b"",
            inner.as_os_str().as_bytes(),
        ] {
            let found = find_by_folder(&sendfile, other);
            assert!(
                found.is_none_or(|(f, _)| f.path == outer.path()),
                "{other:?}"
            );
        }
        for other in [
            &b"/p/../etc"[..],
            b"/p/%2e%2e/a",
            b"/px/a",
            b"p/a",
            b"/p/a%2fb",
            b"/p/a\0",
        ] {
            assert!(find_by_path(&sendfile, other).is_none(), "{other:?}");
        }
    }
}
