//! Proofs over HTTP that a host is ours (RFC 8555, 8.3).

use std::{collections::HashMap, sync::Mutex};

use galgo_proto::h1::Method;
use galgo_service::{
    body::{Body, Response},
    lock::lock,
    request::Request,
};

/// Where an authority asks for one.
const PATH: &[u8] = b"/.well-known/acme-challenge/";

/// The proofs that an authority may ask for now: what each token is answered by.
#[derive(Debug, Default)]
pub struct Answers(Mutex<HashMap<Vec<u8>, String>>);

impl Answers {
    /// The answer to a request that asks for a proof; `None`: it asks for something else, or for one that there is not.
    pub fn to(&self, request: &Request<'_>) -> Option<Response> {
        let token = request.head.target.path().strip_prefix(PATH)?;
        if !matches!(request.head.method, Method::Get | Method::Head) {
            return None;
        }
        let proof = lock(&self.0).get(token)?.clone();
        let response = Response::new(200).with("Content-Type", "application/octet-stream");
        Some(Response {
            body: Body::Bytes(proof.into_bytes()),
            ..response
        })
    }

    /// `token` is answered by `proof` from now on.
    pub(super) fn prove(&self, token: &str, proof: &str) {
        lock(&self.0).insert(token.into(), proof.into());
    }

    /// The authority does not ask for it any more.
    pub(super) fn proven(&self, token: &str) {
        lock(&self.0).remove(token.as_bytes());
    }
}
