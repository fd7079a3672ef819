//! Hashes of content: equal content is an equal hash, on every server and after every restart.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

/// SHA-256 over a list of parts. Each part is prefixed with its length, so that no two lists look alike.
#[derive(Clone, Debug)]
pub struct ContentHash(Sha256);

impl ContentHash {
    /// A hash for one purpose; hashes of different purposes never meet.
    pub fn new(purpose: &str) -> Self {
        let mut hash = Self(Sha256::new());
        hash.text(purpose);
        hash
    }

    /// Adds one part.
    pub fn bytes(&mut self, part: &[u8]) -> &mut Self {
        self.0.update((part.len() as u64).to_be_bytes());
        self.0.update(part);
        self
    }

    /// Adds a text.
    pub fn text(&mut self, part: &str) -> &mut Self {
        self.bytes(part.as_bytes())
    }

    /// Adds a number.
    pub fn number(&mut self, part: u128) -> &mut Self {
        self.bytes(&part.to_be_bytes())
    }

    /// The 32 bytes.
    pub fn finish(self) -> [u8; 32] {
        self.0.finalize().into()
    }

    /// The 32 bytes as 64 lower-case hex digits.
    pub fn finish_hex(self) -> String {
        hex(&self.finish())
    }
}

/// Bytes as lower-case hex digits.
pub fn hex(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing to a String can't fail.
        let _ = write!(out, "{byte:02x}");
    }
    out
}

/// The bytes behind lower-case hex digits; none if they are not such.
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |b: u8| match b {
        b'0'..=b'9' => Some(b - b'0'),
        b'a'..=b'f' => Some(b - b'a' + 10),
        _ => None,
    };
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(parts: &[&str]) -> String {
        let mut hash = ContentHash::new("test");
        for part in parts {
            hash.text(part);
        }
        hash.finish_hex()
    }

    #[test]
    fn parts_do_not_run_into_each_other() {
        assert_ne!(of(&["ab", "c"]), of(&["a", "bc"]));
        assert_ne!(of(&["ab"]), of(&["ab", ""]));
        assert_ne!(of(&[]), ContentHash::new("other").finish_hex());
    }

    #[test]
    fn hex_goes_both_ways() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(unhex(&hex(&all)), Some(all));
        for wrong in ["0", "0g", "0A", "é", "é0"] {
            assert_eq!(unhex(wrong), None, "{wrong}");
        }
    }
}
