//! The configuration of wasmtime. The compiling and the running process must agree: the settings in
//! [`config`] are part of the compiled code; [`pooled`] adds settings that only matter at run time.

use std::hash::{DefaultHasher, Hash, Hasher};

use wasmtime::{
    Config, Enabled, Engine, InstanceAllocationStrategy, PoolingAllocationConfig, Result,
};

use crate::say;

/// The version of wasmtime, as far as it is visible from outside. It is a part of the names of cache
/// entries, together with the hash of the configuration.
const VERSION: &str = "wasmtime-48";

/// Stack of a guest in bytes. Deep recursion traps.
const STACK: usize = 1 << 20;
/// Stack of a fiber, with room for host functions that the guest calls.
const FIBER_STACK: usize = STACK + (1 << 20);
/// Limit of an instance's linear memory (32-bit memories cannot be larger).
pub(crate) const MEMORY_MOST: u64 = 4 << 30;
/// Limit of elements in one table.
const TABLE: usize = 100_000;
/// Bytes of a memory that stay resident in a slot between two instances; they are overwritten.
const RESIDENT: usize = 256 << 10;
/// Limits of core instances in a component, and of memories and tables in a module or component.
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

/// Creates an engine that compiles, but runs nothing.
pub(crate) fn create_compiler(parallel: bool) -> Result<Engine> {
    Engine::new(config().parallel_compilation(parallel))
}

/// Creates an engine that runs the output of [`compiler`], `instances` at once, in slots that are
/// reserved now. If there is not enough address space, each instance reserves its own, which is
/// slower.
pub(crate) fn create_pooled(instances: u32) -> Result<Engine> {
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
        say::write_line(&format!(
            "galgo: wasm: {e:#}; continuing without reserved slots"
        ));
        create_compiler(false)
    })
}

/// Returns a name that engines with interchangeable code share.
pub(crate) fn compatibility_tag(engine: &Engine) -> String {
    let mut hasher = DefaultHasher::new();
    engine.precompile_compatibility_hash().hash(&mut hasher);
    env!("CARGO_PKG_VERSION").hash(&mut hasher);
    format!("{VERSION}-{:016x}", hasher.finish())
}
