//! The environment of a preview 1 command, byte for byte: wasmtime-wasi can only hand over UTF-8,
//! and a PATH_INFO need not be UTF-8.

use wasmtime::{Caller, Extern, Linker, Memory, Result};

use super::state::InstanceState;

const MODULE: &str = "wasi_snapshot_preview1";
/// `errno` of WASI.
const SUCCESS: i32 = 0;
const FAULT: i32 = 21;

pub(super) fn add_to_linker(linker: &mut Linker<InstanceState>) -> Result<()> {
    linker.allow_shadowing(true);
    linker.func_wrap(MODULE, "environ_sizes_get", environ_sizes_get)?;
    linker.func_wrap(MODULE, "environ_get", environ_get)?;
    linker.allow_shadowing(false);
    Ok(())
}

fn guest_memory(caller: &mut Caller<'_, InstanceState>) -> Option<Memory> {
    match caller.get_export("memory")? {
        Extern::Memory(memory) => Some(memory),
        _ => None,
    }
}

fn environ_sizes_get(mut caller: Caller<'_, InstanceState>, count_at: i32, bytes_at: i32) -> i32 {
    let env = &caller.data().env;
    let (count, bytes) = (env.iter().filter(|&&b| b == 0).count(), env.len());
    let put = || {
        let memory = guest_memory(&mut caller)?;
        let mut put = |at: i32, n: usize| {
            let n = u32::try_from(n).ok()?.to_le_bytes();
            memory.write(&mut caller, guest_offset(at), &n).ok()
        };
        put(count_at, count)?;
        put(bytes_at, bytes)
    };
    errno_from_result(put)
}

fn environ_get(mut caller: Caller<'_, InstanceState>, pointers_at: i32, bytes_at: i32) -> i32 {
    let put = || {
        let memory = guest_memory(&mut caller)?;
        let (data, state) = memory.data_and_store_mut(&mut caller);
        let bytes = data.get_mut(guest_offset(bytes_at)..)?;
        bytes
            .get_mut(..state.env.len())?
            .copy_from_slice(&state.env);
        let starts = state.env.iter().enumerate().filter(|(_, b)| **b == 0);
        let starts = [0].into_iter().chain(starts.map(|(at, _)| at + 1));
        let count = state.env.iter().filter(|&&b| b == 0).count();
        for (index, start) in starts.take(count).enumerate() {
            let at = guest_offset(pointers_at).checked_add(index.checked_mul(4)?)?;
            let start = u32::try_from(guest_offset(bytes_at) + start).ok()?;
            data.get_mut(at..at.checked_add(4)?)?
                .copy_from_slice(&start.to_le_bytes());
        }
        Some(())
    };
    errno_from_result(put)
}

fn guest_offset(at: i32) -> usize {
    at.cast_unsigned() as usize
}

fn errno_from_result(put: impl FnOnce() -> Option<()>) -> i32 {
    put().map_or(FAULT, |()| SUCCESS)
}
