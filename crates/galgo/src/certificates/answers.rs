//! Proofs over HTTP that a host is ours (RFC 8555, 8.3).

use std::{collections::HashMap, sync::Mutex};

use galgo_proto::h1::Method;
use galgo_service::{
    body::{Body, Response},
    lock::lock,
    request::Request,
};

/// Path below which an authority asks for a proof.
const PATH: &[u8] = b"/.well-known/acme-challenge/";

/// The proofs that an authority may ask for now: the answer to each token.
#[derive(Debug, Default)]
pub struct Answers(Mutex<HashMap<Vec<u8>, String>>);

impl Answers {
    /// Returns the answer to a request for a proof. `None`: the request asks for something else, or there is no such
    /// proof.
    pub fn answer_challenge(&self, request: &Request<'_>) -> Option<Response> {
        let token = request.head.target.path().strip_prefix(PATH)?;
        if !matches!(request.head.method, Method::Get | Method::Head) {
            return None;
        }
        let proof = lock(&self.0).get(token)?.clone();
        let response = Response::new(200).with_field("Content-Type", "application/octet-stream");
        Some(Response {
            body: Body::Bytes(proof.into_bytes()),
            ..response
        })
    }

    /// Answers requests for `token` with `proof` from now on.
    pub(super) fn add_proof(&self, token: &str, proof: &str) {
        lock(&self.0).insert(token.into(), proof.into());
    }

    /// Forgets the proof: the authority does not ask for `token` any more.
    pub(super) fn remove_proof(&self, token: &str) {
        lock(&self.0).remove(token.as_bytes());
    }
}
