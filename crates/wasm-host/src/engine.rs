//! How wasmtime is configured. The process that compiles and the one that runs must agree: what is
//! set in [`config`] is part of the compiled code; [`pooled`] adds what only matters at run time.

use std::hash::{DefaultHasher, Hash, Hasher};

use wasmtime::{
    Config, Enabled, Engine, InstanceAllocationStrategy, PoolingAllocationConfig, Result,
};

use crate::say;

/// The version of wasmtime, as far as is visible from outside: a part of the names of cache
/// entries, beside the hash of the configuration.
const VERSION: &str = "wasmtime-48";

/// Stack of a guest, bytes. Deep recursion traps.
const STACK: usize = 1 << 20;
/// With room for what the guest calls.
const FIBER_STACK: usize = STACK + (1 << 20);
/// Linear memory of one instance, at most (32-bit memories cannot be larger).
pub(crate) const MEMORY_MOST: u64 = 4 << 30;
/// Elements of one table.
const TABLE: usize = 100_000;
/// Bytes of a memory that stay resident in a slot between two instances; they are overwritten.
const RESIDENT: usize = 256 << 10;
/// Core instances of a component, and memories and tables of either.
const CORES: u32 = 32;
const MEMORIES: u32 = 8;
const TABLES: u32 = 32;

fn config() -> Config {
    let mut config = Config::new();
    config
        .epoch_interruption(true)
        .max_wasm_stack(STACK)
        .async_stack_size(FIBER_STACK)
        .wasm_component_model(true)
        .memory_init_cow(true);
    config
}

/// Compiles; runs nothing.
pub(crate) fn compiler(parallel: bool) -> Result<Engine> {
    Engine::new(config().parallel_compilation(parallel))
}

/// Runs what [`compiler`] has made, `instances` at once, in slots that are reserved now. Where there
/// is not that much address space each instance reserves its own, which is slower.
pub(crate) fn pooled(instances: u32) -> Result<Engine> {
    let mut pool = PoolingAllocationConfig::new();
    pool.total_core_instances(instances.saturating_mul(4).saturating_add(CORES))
        .total_component_instances(instances)
        .total_memories(instances.saturating_add(MEMORIES))
        .total_tables(instances.saturating_mul(2).saturating_add(TABLES))
        .total_stacks(instances)
        .max_core_instances_per_component(CORES)
        .max_memories_per_component(MEMORIES)
        .max_tables_per_component(TABLES)
        .max_memories_per_module(MEMORIES)
        .max_tables_per_module(TABLES)
        .max_core_instance_size(16 << 20)
        .max_component_instance_size(16 << 20)
        .table_elements(TABLE)
        .max_memory_size(usize::try_from(MEMORY_MOST).unwrap_or(usize::MAX))
        .max_unused_warm_slots(instances)
        .linear_memory_keep_resident(RESIDENT)
        .table_keep_resident(RESIDENT)
        .pagemap_scan(Enabled::Auto);
    let mut config = config();
    config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
    Engine::new(&config).or_else(|e| {
        say::line(&format!(
            "galgo: wasm: {e:#}; going on without reserved slots"
        ));
        compiler(false)
    })
}

/// Names engines whose code is interchangeable.
pub(crate) fn tag(engine: &Engine) -> String {
    let mut hasher = DefaultHasher::new();
    engine.precompile_compatibility_hash().hash(&mut hasher);
    env!("CARGO_PKG_VERSION").hash(&mut hasher);
    format!("{VERSION}-{:016x}", hasher.finish())
}
