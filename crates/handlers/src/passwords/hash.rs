//! Makes password hashes for htpasswd files, and checks passwords against them.
//!
//! crypt(3) without `$`, yescrypt and passwords in the clear are not supported.

use argon2::{Argon2, PasswordHasher, PasswordVerifier};
use base64::prelude::{BASE64_STANDARD, Engine};
use md5::{Digest, Md5};
use sha_crypt::ShaCrypt;
use sha1::Sha1;

/// A scheme to hash passwords.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum HashScheme {
    Bcrypt,
    Argon2,
    /// SHA-512-crypt and SHA-256-crypt.
    ShaCrypt,
    /// Apache's apr1, and md5-crypt.
    Md5,
    Sha1,
}

impl HashScheme {
    /// Finds the scheme by the beginning of a hash; `None` if galgo does not support it.
    pub fn from_hash(hash: &str) -> Option<Self> {
        const BEGINS: [(&str, HashScheme); 12] = [
            ("$2y$", HashScheme::Bcrypt),
            ("$2b$", HashScheme::Bcrypt),
            ("$2a$", HashScheme::Bcrypt),
            ("$argon2id$", HashScheme::Argon2),
            ("$argon2i$", HashScheme::Argon2),
            ("$argon2d$", HashScheme::Argon2),
            ("$6$", HashScheme::ShaCrypt),
            ("$5$", HashScheme::ShaCrypt),
            (APR1, HashScheme::Md5),
            (MD5, HashScheme::Md5),
            (SHA, HashScheme::Sha1),
            ("{sha}", HashScheme::Sha1),
        ];
        let found = BEGINS.iter().find(|(begin, _)| hash.starts_with(begin));
        found.map(|(_, kind)| *kind)
    }

    /// Returns whether the scheme is weak: an attacker with the file can find passwords by trying millions a second.
    pub fn is_weak(self) -> bool {
        matches!(self, Self::Md5 | Self::Sha1)
    }
}

const APR1: &str = "$apr1$";
const MD5: &str = "$1$";
const SHA: &str = "{SHA}";

/// Returns the part of a hash that tells how long verifying takes: its scheme and parameters, without salt and digest.
pub(super) fn cost_prefix(hash: &str) -> &str {
    let parts = match HashScheme::from_hash(hash) {
        Some(HashScheme::Sha1) => return SHA,
        // Keep only the cost: the letter of the version before it does not change the time.
        Some(HashScheme::Bcrypt) => {
            return hash[3..].rsplit_once('$').map_or(hash, |(cost, _)| cost);
        }
        _ => hash.rsplitn(3, '$').nth(2),
    };
    parts.unwrap_or(hash)
}

/// Returns whether the password fits the hash. Verifying takes as long as the hash demands, for any password: do not call it on
/// an event loop.
pub fn verify_password(password: &[u8], hash: &str) -> bool {
    match HashScheme::from_hash(hash) {
        // Bytes after the 72nd do not count, as in other servers. `galgo passwd` makes no hash of a longer password.
        Some(HashScheme::Bcrypt) => bcrypt::verify(password, hash).unwrap_or(false),
        Some(HashScheme::Argon2) => Argon2::default().verify_password(password, hash).is_ok(),
        Some(HashScheme::ShaCrypt) => ShaCrypt::default().verify_password(password, hash).is_ok(),
        Some(HashScheme::Md5) => {
            md5_crypt(password, hash).is_some_and(|own| equals_in_constant_time(&own, hash))
        }
        Some(HashScheme::Sha1) => {
            let own = BASE64_STANDARD.encode(Sha1::digest(password));
            equals_in_constant_time(&own, &hash[SHA.len()..])
        }
        None => false,
    }
}

/// Cost of new hashes: 2^10 rounds, some 50 ms.
const BCRYPT_COST: u32 = 10;
/// Bytes of a password that bcrypt uses.
const BCRYPT_LONGEST: usize = 72;

/// Hashes a new password with a random salt: by bcrypt, which other servers can read, too, or by argon2id.
///
/// # Errors
/// In words: bcrypt would ignore a part of the password, or the system gives no random numbers.
pub fn hash_password(password: &[u8], argon2: bool) -> Result<String, String> {
    if argon2 {
        let made = Argon2::default().hash_password(password);
        return made.map(|hash| hash.to_string()).map_err(|e| e.to_string());
    }
    if password.len() > BCRYPT_LONGEST || password.contains(&0) {
        return Err(format!(
            "bcrypt takes {BCRYPT_LONGEST} bytes and no NUL: choose a shorter password, or --argon2"
        ));
    }
    // The crate's function that refuses long passwords counts the NUL after the password, too, which is not part of it.
    let made = bcrypt::hash_with_result(password, BCRYPT_COST);
    let made = made.map_err(|e| e.to_string())?;
    // Name the version as Apache does: older Apache releases know no other name for the same scheme.
    Ok(made.format_for_version(bcrypt::Version::TwoY))
}

fn equals_in_constant_time(a: &str, b: &str) -> bool {
    let differ = a.bytes().zip(b.bytes()).fold(0, |all, (a, b)| all | a ^ b);
    a.len() == b.len() && differ == 0
}

/// Hashes the password with the salt of `hash` by Poul-Henning Kamp's md5-crypt, which Apache uses under another name.
fn md5_crypt(password: &[u8], hash: &str) -> Option<String> {
    const ROUNDS: usize = 1000;
    let magic = if hash.starts_with(APR1) { APR1 } else { MD5 };
    let (salt, _) = hash.strip_prefix(magic)?.split_once('$')?;
    let salt = salt.get(..salt.len().min(8))?;
    let inner = Md5::new().chain_update(password).chain_update(salt);
    let inner = inner.chain_update(password).finalize();
    let mut outer = Md5::new()
        .chain_update(password)
        .chain_update(magic)
        .chain_update(salt);
    for piece in password.chunks(inner.len()) {
        outer.update(&inner[..piece.len()]);
    }
    let mut bits = password.len();
    while bits > 0 {
        match bits & 1 {
            1 => outer.update([0]),
            _ => outer.update(password.get(..1).unwrap_or_default()),
        }
        bits >>= 1;
    }
    let mut sum = outer.finalize();
    for round in 0..ROUNDS {
        let mut next = Md5::new();
        let odd = round % 2 == 1;
        next.update(if odd { password } else { &sum });
        if round % 3 != 0 {
            next.update(salt);
        }
        if round % 7 != 0 {
            next.update(password);
        }
        next.update(if odd { &sum[..] } else { password });
        sum = next.finalize();
    }
    Some(format!("{magic}{salt}${}", encode_digest(&sum.into())))
}

/// Encodes a sum in the base64 of crypt(3), in md5-crypt's order of bytes.
fn encode_digest(sum: &[u8; 16]) -> String {
    const LETTERS: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let mut text = String::with_capacity(22);
    let mut push = |mut bits: usize, letters: usize| {
        for _ in 0..letters {
            text.push(char::from(LETTERS[bits % 64]));
            bits /= 64;
        }
    };
    for i in 0..5 {
        let third = if i == 4 { 5 } else { 12 + i };
        let of = |at: usize| usize::from(sum[at]);
        push(of(i) << 16 | of(6 + i) << 8 | of(third), 4);
    }
    push(usize::from(sum[11]), 2);
    text
}

#[cfg(test)]
mod tests {
    use crate::passwords::hash::*;

    /// The hashes were made by `openssl passwd`, `htpasswd` and `mkpasswd`.
    #[test]
    fn hashes_of_others() {
        for (password, hash) in [
            ("secret", "$apr1$abcdefgh$h9FWgUz3n9YxylKLlR5SQ/"),
            ("secret", "$1$abcdefgh$cHJi5PXp/ki/ktXzqlk6I1"),
            ("", "$apr1$x$tMwYqBfQwi3FYAr0aJc8M/"),
            (
                "secret",
                "$6$abcdefgh$ltjgWl6579NluT/Vi1nwEvcil.G5Nbc4NiXZaNGStk8PSwGfQv72N2CKPPrVACtLtip/cZ/1GM/O6IND4WQhG.",
            ),
            ("secret", "{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ="),
        ] {
            assert!(verify_password(password.as_bytes(), hash), "{hash}");
            assert!(!verify_password(b"Secret", hash), "{hash}");
        }
    }

    #[test]
    fn own_hashes() {
        for argon2 in [false, true] {
            let hash = hash_password(b"secret", argon2).unwrap();
            assert!(
                verify_password(b"secret", &hash) && !verify_password(b"secre", &hash),
                "{hash}"
            );
            assert!(!HashScheme::from_hash(&hash).unwrap().is_weak());
            assert_ne!(hash, hash_password(b"secret", argon2).unwrap());
        }
        assert!(hash_password(&[b'x'; 73], false).is_err());
        let longest = hash_password(&[b'x'; 72], false).unwrap();
        assert!(verify_password(&[b'x'; 72], &longest) && !verify_password(&[b'x'; 71], &longest));
        let long = hash_password(&[b'x'; 73], true).unwrap();
        assert!(verify_password(&[b'x'; 73], &long) && !verify_password(&[b'x'; 72], &long));
    }

    #[test]
    fn what_is_no_hash_fits_nothing() {
        for hash in [
            "",
            "secret",
            "rqXexS6ZhobKA",
            "$y$j9T$x$y",
            "$2y$",
            "$6$",
            "$5$x",
            "$1$",
            "$apr1$a",
            "$apr1$\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}$",
            "$argon2id$v=19",
            "{SHA}",
        ] {
            for password in ["", "secret"] {
                assert!(!verify_password(password.as_bytes(), hash), "{hash}");
            }
        }
    }
}
