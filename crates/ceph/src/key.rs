//! Keys of Ceph's authentication (cephx): types that never print them, and the key of an OSD.
//!
//! The key of an OSD is derived, not random: `osd new` may be repeated only with the key of the first time, and a
//! prepare run that was killed has no place to remember one. Derived from the bootstrap key and the OSD's UUID, so
//! that only a holder of the bootstrap key can compute it. Next to read: `config.rs` (keyrings).

use crate::Uuid;
use base64::{Engine, engine::general_purpose::STANDARD};
use sha2::{Digest, Sha256};
use std::fmt;

/// What is printed in place of a key.
pub const HIDDEN: &str = "******";

/// Text with a key in it. Debug hides it, and there is no Display.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself, for the process or file that needs it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

/// A key as Ceph writes it: base64 of type (1, AES), time of creation, length, and the secret bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key(Secret);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct KeyError(&'static str);

/// Type AES, time 0, length 16. The time is fixed: it is part of what `osd new` compares.
const HEADER: [u8; 12] = [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0];
const HEADER_LENGTH: usize = 12;
const KEY_LENGTH: usize = 16;
/// Separates this use of the bootstrap key from any other. Changing it changes the key of every OSD whose
/// preparation has not ended.
const PURPOSE: &[u8] = b"quarry osd key 1:";

impl Key {
    /// Surrounding white space is ignored: a label written by other tools may end in a line break.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let text = text.trim();
        secret_bytes(text)?;
        Ok(Self(Secret::new(text)))
    }

    /// The key of the OSD with this UUID; the same at every call.
    pub fn of_osd(bootstrap: &Key, osd: &Uuid) -> Result<Self, KeyError> {
        let message = [PURPOSE, osd.as_str().as_bytes()].concat();
        let digest = hmac_sha256(&secret_bytes(bootstrap.reveal())?, &message);
        let bytes = [&HEADER, &digest[..KEY_LENGTH]].concat();
        Ok(Self(Secret::new(STANDARD.encode(bytes))))
    }

    pub fn reveal(&self) -> &str {
        self.0.reveal()
    }
}

fn secret_bytes(text: &str) -> Result<Vec<u8>, KeyError> {
    let bytes = STANDARD.decode(text).map_err(|_| KeyError("the key is not valid base64"))?;
    let Some((header, secret)) = bytes.split_at_checked(HEADER_LENGTH) else {
        return Err(KeyError("the key is shorter than the header of a Ceph key"));
    };
    let announced = usize::from(u16::from_le_bytes([header[10], header[11]]));
    if secret.is_empty() || announced != secret.len() {
        return Err(KeyError("the key has another length than its header announces"));
    }
    Ok(secret.to_vec())
}

/// RFC 2104 with SHA-256. Its own few lines over `sha2`, in place of a dependency.
fn hmac_sha256(key: &[u8], message: &[u8]) -> [u8; 32] {
    const BLOCK: usize = 64;
    let mut block = [0; BLOCK];
    if key.len() > BLOCK {
        block[..32].copy_from_slice(&Sha256::digest(key));
    } else {
        block[..key.len()].copy_from_slice(key);
    }
    let padded = |pad: u8| block.map(|byte| byte ^ pad);
    let inner = Sha256::new().chain_update(padded(0x36)).chain_update(message).finalize();
    Sha256::new().chain_update(padded(0x5c)).chain_update(inner).finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOOTSTRAP: &str = "AQAAAAAAAAAAABAAAAECAwQFBgcICQoLDA0ODw==";

    fn uuid(text: &str) -> Uuid {
        text.parse().unwrap()
    }

    #[test]
    fn hmac_agrees_with_rfc_4231() {
        let hex = |bytes: [u8; 32]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
        assert_eq!(
            hex(hmac_sha256(&[0x0b; 20], b"Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"
        );
        assert_eq!(
            hex(hmac_sha256(b"Jefe", b"what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
        let long = b"Test Using Larger Than Block-Size Key - Hash Key First";
        assert_eq!(
            hex(hmac_sha256(&[0xaa; 131], long)),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"
        );
    }

    #[test]
    fn key_of_an_osd_is_derived_and_valid() {
        let bootstrap = Key::parse(BOOTSTRAP).unwrap();
        let one = uuid("0b0f1f9e-3c1c-4a5e-8e0e-0123456789ab");
        let key = Key::of_osd(&bootstrap, &one).unwrap();
        assert_eq!(key, Key::of_osd(&bootstrap, &one).unwrap());
        assert_eq!(Key::parse(key.reveal()).as_ref(), Ok(&key));
        // Of what exists: another value would lock out every OSD whose preparation was interrupted.
        assert_eq!(key.reveal(), "AQAAAAAAAAAAABAAfhS5cqL/MtytIKVQjZQ/eg==");
        let other = uuid("0b0f1f9e-3c1c-4a5e-8e0e-0123456789ac");
        assert_ne!(key, Key::of_osd(&bootstrap, &other).unwrap());
        let rotated = Key::parse("AQAAAAAAAAAAABAADwECAwQFBgcICQoLDA0ODw==").unwrap();
        assert_ne!(key, Key::of_osd(&rotated, &one).unwrap());
    }

    #[test]
    fn debug_never_shows_a_key() {
        let key = Key::parse(BOOTSTRAP).unwrap();
        assert_eq!(format!("{key:?}"), "Key(******)");
        assert_eq!(format!("{:?}", Secret::new(BOOTSTRAP)), "******");
    }

    #[test]
    fn what_is_no_key_is_refused_without_quoting_it() {
        for text in ["", "not base64", "AQAAAAAAAAAA", "AQAAAAAAAAAAABAA", "AQAAAAAAAAAAABAAAAEC"] {
            let error = Key::parse(text).unwrap_err().to_string();
            assert!(text.is_empty() || !error.contains(text), "{error}");
        }
        assert!(Key::parse(&format!(" {BOOTSTRAP}\n")).is_ok());
    }
}
