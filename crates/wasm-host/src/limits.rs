//! Resource limits of the processes of this crate (setrlimit(2)).

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Lowers limits for good. A lower limit of the server stays.
pub(crate) fn lower_limits(limits: &[(Resource, u64)]) -> Result<(), String> {
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

/// Upper limit of descriptors: more would be useless.
const DESCRIPTORS: u64 = 1 << 20;
/// Descriptors of a worker itself, without its instances.
const OWN: u64 = 64;
/// Descriptors of an instance besides its own files: its streams, the socket to the server, and its
/// thread's event loop. A wait for any of these needs as many again.
const FIXED: u64 = 16;
/// Upper and lower bound of an instance's share, however many or few descriptors there are. A
/// component needs some for resources that are no files.
const MOST: u64 = 1024;
const LEAST: u64 = 64;

/// Raises the soft limit of descriptors to the hard one. Returns the share of one instance, so that no
/// instance takes descriptors from another: its limit of files, folders, sockets and other resources.
pub(crate) fn raise_descriptor_limit(instances: u64) -> usize {
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
    instance_share(most, instances)
}

fn instance_share(descriptors: u64, instances: u64) -> usize {
    let each = descriptors.saturating_sub(OWN) / instances.max(1);
    let each = each.saturating_sub(FIXED).clamp(LEAST, MOST);
    usize::try_from(each).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instances_share_what_there_is() {
        // A few instances have plenty, many have a share, and each has enough to work with.
        assert_eq!(instance_share(1 << 16, 32), 1024);
        assert_eq!(instance_share(20_000, 64), 295);
        assert_eq!(instance_share(1024, 64), 64);
        assert_eq!(instance_share(0, 0), 64);
    }

    #[test]
    fn limits_only_sink() {
        // The test lowers a limit of this very process, which stays high enough to hurt no other test.
        let before = getrlimit(Resource::Core).maximum;
        lower_limits(&[(Resource::Core, u64::MAX - 1)]).unwrap();
        let now = getrlimit(Resource::Core);
        assert_eq!(now.maximum, before.or(Some(u64::MAX - 1)));
        assert_eq!(now.current, now.maximum);
    }
}
