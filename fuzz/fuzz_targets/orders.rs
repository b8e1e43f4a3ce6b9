//! What server, spawner and helpers say to each other: whatever comes is read or refused.
#![no_main]

use galgo_spawn::owners::read_all;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| read_all(data));
