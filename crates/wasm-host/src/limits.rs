//! What the processes of this crate may take of the machine (setrlimit(2)).

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Lowers limits for good. One of the server's that is even lower stays.
pub(crate) fn lower(limits: &[(Resource, u64)]) -> Result<(), String> {
    for &(resource, most) in limits {
        let most = getrlimit(resource).maximum.map_or(most, |m| m.min(most));
        let limit = Rlimit {
            current: Some(most),
            maximum: Some(most),
        };
        setrlimit(resource, limit).map_err(|e| format!("its limits: {e}"))?;
    }
    Ok(())
}

/// The most descriptors worth having.
const DESCRIPTORS: u64 = 1 << 20;
/// Descriptors of a worker besides those of its instances.
const OWN: u64 = 64;
/// Of an instance besides those it opens: its streams, the socket to the server, its thread's event
/// loop, and the same again where it waits for one of them.
const FIXED: u64 = 16;
/// What one instance may hold at most, however many descriptors there are; and at least, however few:
/// a component needs some for what is no file.
const MOST: u64 = 1024;
const LEAST: u64 = 64;

/// Raises the soft limit of descriptors to the hard one, and shares them out: how many files, folders,
/// sockets and other resources one instance may hold, such that it takes none from another.
pub(crate) fn descriptors(instances: u64) -> usize {
    let now = getrlimit(Resource::Nofile);
    let most = now.maximum.unwrap_or(DESCRIPTORS).min(DESCRIPTORS);
    let wanted = Rlimit {
        current: Some(most),
        maximum: now.maximum,
    };
    let most = match setrlimit(Resource::Nofile, wanted) {
        Ok(()) => most,
        Err(_) => now.current.unwrap_or(most),
    };
    share(most, instances)
}

fn share(descriptors: u64, instances: u64) -> usize {
    let each = descriptors.saturating_sub(OWN) / instances.max(1);
    let each = each.saturating_sub(FIXED).clamp(LEAST, MOST);
    usize::try_from(each).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instances_share_what_there_is() {
        // Few instances have plenty, many have what there is, and each has enough to work with.
        assert_eq!(share(1 << 16, 32), 1024);
        assert_eq!(share(20_000, 64), 295);
        assert_eq!(share(1024, 64), 64);
        assert_eq!(share(0, 0), 64);
    }

    #[test]
    fn limits_only_sink() {
        // Of this very process: high enough to hurt no other test.
        let before = getrlimit(Resource::Core).maximum;
        lower(&[(Resource::Core, u64::MAX - 1)]).unwrap();
        let now = getrlimit(Resource::Core);
        assert_eq!(now.maximum, before.or(Some(u64::MAX - 1)));
        assert_eq!(now.current, now.maximum);
    }
}
