//! A server without WebAssembly.

use std::{convert::Infallible, path::Path, sync::Arc, time::Duration};

use galgo_spawn::Exit;

use crate::{
    admission::Permit,
    config::{Cgi, Config},
    fault::Fault,
    log::Logs,
    route::Found,
    sock::Sock,
};

const WITHOUT: &str =
    "is a WebAssembly module, and this galgo was built without them (Cargo feature `wasm`)";

/// There is none.
pub type Code = Infallible;

/// Refuses modules.
#[derive(Debug)]
pub struct Wasm;

#[allow(missing_docs)]
impl Wasm {
    pub fn next(_config: &Config, _logs: &Logs, _before: Option<&Arc<Self>>) -> Arc<Self> {
        Arc::new(Self)
    }

    pub fn begins(&self, _script: &Found<'_>) -> bool {
        false
    }

    pub fn close(&self) {}

    pub fn prepare(&self, _config: &Config) {}

    /// # Errors
    /// Always.
    #[allow(clippy::unused_async)] // as with the feature
    pub async fn code(&self, script: &Found<'_>) -> Result<Code, Fault> {
        let file = script.script_filename.to_string_lossy();
        Err(Fault::Refused(format!("{file:?} {WITHOUT}")))
    }

    /// # Errors
    /// Never called.
    #[allow(clippy::unused_async)]
    pub async fn connect(
        &self,
        code: Code,
        _permit: Permit,
        _home: usize,
        _wait: Duration,
    ) -> Result<(Sock, Seat), Fault> {
        match code {}
    }

    #[allow(clippy::unused_async)]
    pub async fn replaced(&self, _worker: usize) {}

    pub fn run(&self, code: Code, _cgi: &Cgi, _name: &[u8]) -> Vec<u8> {
        match code {}
    }
}

/// There is none.
#[derive(Debug)]
pub struct Seat(Infallible);

#[allow(missing_docs)]
impl Seat {
    pub const MORE: usize = 0;

    pub fn ended(&self, _more: &[u8]) -> Exit {
        match self.0 {}
    }

    pub fn gone(&self) -> Exit {
        match self.0 {}
    }

    pub fn worker(&self) -> usize {
        match self.0 {}
    }

    pub fn give_back(self, _conn: Sock) {
        match self.0 {}
    }
}

/// Nothing is kept.
pub fn prepare_cache(_config: &Config) {}

/// # Errors
/// Always.
pub fn examine(_file: &Path) -> Result<(), String> {
    Err(format!("it {WITHOUT}"))
}

#[allow(missing_docs)]
pub fn descriptors(_config: &Config) -> usize {
    0
}

#[cfg(test)]
mod tests {
    use super::*;
    use galgo_proto::target::UrlPath;

    use crate::{config::CgiRoot, route};

    #[test]
    fn a_module_is_refused_with_a_sentence_and_never_shown() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a.wasm"), b"\0asm").unwrap();
        let cgi = Cgi::new(CgiRoot::open(dir.path()).unwrap(), dir.path().to_owned());
        let found = route::program(&cgi, "/", UrlPath::plain(b"/a.wasm")).unwrap();
        assert!(found.module);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let refused = runtime.block_on(Wasm.code(&found)).unwrap_err();
        assert_eq!(refused.status(), 403);
        assert!(
            refused.to_string().contains("Cargo feature `wasm`"),
            "{refused}"
        );
    }
}
