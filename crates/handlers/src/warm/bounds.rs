//! Count and memory that all templates share on this machine.

use std::sync::{
    Arc,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

use crate::template_settings::TemplateSettings;

/// Counts the templates that are loaded or being loaded, and the memory that they hold.
#[derive(Debug, Default)]
pub(super) struct TemplateUsage {
    count: AtomicUsize,
    /// Memory in bytes.
    memory: AtomicU64,
}

#[derive(Debug)]
pub(super) struct TemplateShare {
    bounds: Arc<TemplateUsage>,
    memory: u64,
}

impl TemplateUsage {
    /// Returns whether there is no room for another template.
    pub(super) fn is_full(&self, limits: &TemplateSettings) -> bool {
        self.count.load(Ordering::Relaxed) >= limits.count
            || self.memory.load(Ordering::Relaxed) >= limits.memory
    }

    /// Says in words how near the templates are to their limits.
    pub(super) fn held(&self, limits: &TemplateSettings) -> String {
        format!(
            "in all {} of {} templates, {} of {} MiB",
            self.count.load(Ordering::Relaxed),
            limits.count,
            self.memory.load(Ordering::Relaxed) >> 20,
            limits.memory >> 20,
        )
    }
}

impl TemplateShare {
    /// Counts a template that is about to be loaded.
    pub(super) fn of(bounds: &Arc<TemplateUsage>) -> Self {
        bounds.count.fetch_add(1, Ordering::Relaxed);
        Self {
            bounds: bounds.clone(),
            memory: 0,
        }
    }

    /// Adds the memory, in bytes, that the loaded template turned out to hold.
    pub(super) fn holds(&mut self, memory: u64) {
        self.bounds.memory.fetch_add(memory, Ordering::Relaxed);
        self.memory += memory;
    }
}

impl Drop for TemplateShare {
    fn drop(&mut self) {
        self.bounds.count.fetch_sub(1, Ordering::Relaxed);
        self.bounds.memory.fetch_sub(self.memory, Ordering::Relaxed);
    }
}
