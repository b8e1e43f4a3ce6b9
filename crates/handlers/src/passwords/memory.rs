//! Remembers passwords that were right before, by a keyed hash: neither passwords nor anything that reveals them is kept.

use std::{collections::HashSet, sync::Mutex};

use blake2::{
    Blake2sMac256,
    digest::{FixedOutput, KeyInit, Mac},
};
use galgo_service::lock::lock;
use rustix::rand::{GetRandomFlags, getrandom};

/// Limit for remembered marks.
const MOST: usize = 4096;

/// Digest of a user, the hash in the file, and a password.
pub(super) type CredentialDigest = [u8; 32];

/// Marks of passwords that were right before. Such a password never waits for other clients' attempts, and is verified again only
/// after its hash in the file has changed. The key is made at the start and never leaves the process: a mark reveals nothing
/// without the key.
#[derive(Debug)]
pub(super) struct VerifiedPasswords {
    key: [u8; 32],
    right: Mutex<HashSet<CredentialDigest>>,
}

impl VerifiedPasswords {
    pub(super) fn new() -> std::io::Result<Self> {
        let mut key = [0; 32];
        // getrandom(2) always fills 32 bytes in one call.
        getrandom(&mut key, GetRandomFlags::empty())?;
        Ok(Self {
            key,
            right: Mutex::default(),
        })
    }

    /// Returns the mark of these credentials. A changed hash in the file makes another mark: the old password is forgotten at
    /// once.
    pub(super) fn digest_credentials(
        &self,
        user: &str,
        hash: &str,
        password: &[u8],
    ) -> CredentialDigest {
        let mut mac = Blake2sMac256::new(&self.key.into());
        for part in [user.as_bytes(), hash.as_bytes(), password] {
            mac.update(&(part.len() as u64).to_le_bytes());
            mac.update(part);
        }
        mac.finalize_fixed().into()
    }

    pub(super) fn is_verified(&self, mark: &CredentialDigest) -> bool {
        lock(&self.right).contains(mark)
    }

    pub(super) fn keep_verified(&self, mark: CredentialDigest) {
        let mut right = lock(&self.right);
        if right.len() >= MOST {
            right.clear();
        }
        right.insert(mark);
    }
}

#[cfg(test)]
mod tests {
    use crate::passwords::memory::*;

    #[test]
    fn each_part_counts() {
        let memory = VerifiedPasswords::new().unwrap();
        let mark = memory.digest_credentials("ada", "$2y$x", b"secret");
        memory.keep_verified(mark);
        assert!(memory.is_verified(&memory.digest_credentials("ada", "$2y$x", b"secret")));
        for other in [
            memory.digest_credentials("ad", "a$2y$x", b"secret"),
            memory.digest_credentials("ada", "$2y$xs", b"ecret"),
            memory.digest_credentials("ada", "$2y$y", b"secret"),
            memory.digest_credentials("ada", "$2y$x", b"Secret"),
            VerifiedPasswords::new()
                .unwrap()
                .digest_credentials("ada", "$2y$x", b"secret"),
        ] {
            assert!(!memory.is_verified(&other));
        }
    }

    #[test]
    fn it_does_not_grow_without_end() {
        let memory = VerifiedPasswords::new().unwrap();
        for n in 0..3 * MOST {
            memory.keep_verified(memory.digest_credentials("a", "b", &n.to_le_bytes()));
        }
        assert!(memory.right.lock().unwrap().len() <= MOST);
    }
}
