//! Page tokens: where a list goes on, bound to its filter. They hold no state of this process, so they stay good after a
//! restart, and no secret: a token opens nothing that its filter alone does not.

use crate::core::{
    hash::{ContentHash, hex, unhex},
    refusal::Fault,
};

/// Form of the token; another form is refused, not misread.
const VERSION: u8 = 1;
/// Bytes of the filter's hash in a token.
const HASH: usize = 8;

/// What a list selects. A token is good for equal filters only; the size of the page is none of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filter<'a> {
    /// Name of the RPC.
    pub rpc: &'a str,
    /// The namespace, if the list has one; as parsed, so that an empty one is the default one.
    pub namespace: &'a str,
    /// The owner as it was asked for.
    pub owner: &'a str,
    /// The verdict's number.
    pub verdict: i32,
    /// The label selector in its canonical form.
    pub labels: &'a str,
}

impl Filter<'_> {
    fn hash(&self) -> [u8; HASH] {
        let Self { rpc, namespace, owner, verdict, labels } = self;
        let mut hash = ContentHash::new("toolpulse page token 1");
        hash.text(rpc).text(namespace).text(owner).bytes(&verdict.to_be_bytes());
        // Left out where it is empty, as tokens had none at first.
        if !labels.is_empty() {
            hash.text(labels);
        }
        let mut short = [0; HASH];
        short.copy_from_slice(&hash.finish()[..HASH]);
        short
    }
}

/// The token after a page whose last entry is `last`.
pub fn encode(filter: &Filter<'_>, last: &str) -> String {
    let mut bytes = vec![VERSION];
    bytes.extend(filter.hash());
    bytes.extend(last.as_bytes());
    hex(&bytes)
}

/// The entry after which the next page begins; none for an empty token, which asks for the first page.
///
/// # Errors
/// A fault at `page_token`: not a token, or one of another filter.
pub fn decode(token: &str, filter: &Filter<'_>) -> Result<Option<String>, Fault> {
    if token.is_empty() {
        return Ok(None);
    }
    let fault = |message| Err(Fault::new("page_token", message));
    let Some((hash, last)) = parts(token) else {
        return fault("is not a page token; take next_page_token of the page before");
    };
    if hash == filter.hash() {
        Ok(Some(last))
    } else {
        fault("page_token belongs to another filter; start again without it")
    }
}

fn parts(token: &str) -> Option<([u8; HASH], String)> {
    let bytes = unhex(token)?;
    let (version, rest) = bytes.split_first()?;
    let (hash, last) = rest.split_first_chunk::<HASH>()?;
    let last = String::from_utf8(last.to_vec()).ok()?;
    (*version == VERSION).then_some((*hash, last))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FILTER: Filter<'static> =
        Filter { rpc: "ListTools", namespace: "default", owner: "", verdict: 0, labels: "" };

    #[test]
    fn a_token_is_bound_to_its_filter() {
        let token = encode(&FILTER, "search");
        assert_eq!(decode(&token, &FILTER), Ok(Some("search".to_owned())));
        for other in [
            Filter { rpc: "ListNamespaces", ..FILTER },
            Filter { namespace: "other", ..FILTER },
            Filter { owner: "default", ..FILTER },
            Filter { verdict: 1, ..FILTER },
            Filter { labels: "a", ..FILTER },
        ] {
            let message = "page_token belongs to another filter; start again without it";
            assert_eq!(decode(&token, &other), Err(Fault::new("page_token", message)));
        }
    }

    #[test]
    fn a_token_stays_good_for_ever() {
        let token = "012566285c95e9956b736561726368";
        assert_eq!(encode(&FILTER, "search"), token);
    }

    #[test]
    fn what_is_no_token_is_told_so() {
        assert_eq!(decode("", &FILTER), Ok(None));
        let token = encode(&FILTER, "search");
        for wrong in [
            "x",
            "search",
            "00",
            &token[..16],
            &token[1..],
            &token.replacen('1', "2", 1),
            "é",
            &format!("{token}ff"),
        ] {
            let message = decode(wrong, &FILTER).unwrap_err().message;
            assert!(message.starts_with("is not a page token"), "{wrong}: {message}");
        }
    }

    proptest! {
        #[test]
        fn every_key_comes_back(last in "\\PC{0,128}", junk in "\\PC{0,40}") {
            let token = encode(&FILTER, &last);
            prop_assert!(token.bytes().all(|b| b.is_ascii_alphanumeric()));
            prop_assert_eq!(decode(&token, &FILTER), Ok(Some(last)));
            let _ = decode(&junk, &FILTER);
        }
    }
}
