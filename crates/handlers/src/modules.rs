//! WebAssembly modules, recognized by their names.

/// Returns whether a file of this name is a module, if no interpreter is set for it.
pub fn is_module(name: &[u8]) -> bool {
    [&b".wasm"[..], b".wcgi"]
        .iter()
        .any(|ending| name.ends_with(ending))
}
