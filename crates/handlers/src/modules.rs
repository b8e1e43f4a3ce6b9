//! WebAssembly modules, as their names tell.

/// Whether a file of this name is a module, where no interpreter is named for it.
pub fn is_module(name: &[u8]) -> bool {
    [&b".wasm"[..], b".wcgi"]
        .iter()
        .any(|ending| name.ends_with(ending))
}
