//! Messages that many watchers get: encoded once, however many there are.

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use bytes::Bytes;

use crate::metrics::Metrics;

/// Most bytes that are kept. Watchers who come later than that encode for themselves.
const MAX_BYTES: usize = 16 << 20;
/// Most messages that are kept.
const MAX_PARTS: usize = 8_192;

/// One message of a batch, framed.
#[derive(Clone, Debug)]
pub struct Part<P> {
    /// The frame; none: there is nothing to say.
    pub frame: Option<Bytes>,
    /// Where the next part begins; none: the batch is complete.
    pub next: Option<P>,
}

/// The parts that were encoded last, by what they lead from and to. `K` must say all that a part depends on.
pub struct Parts<K, P> {
    metrics: Metrics,
    kept: Mutex<Kept<K, P>>,
}

struct Kept<K, P> {
    by_key: HashMap<K, Arc<OnceLock<Part<P>>>>,
    /// The oldest first.
    order: VecDeque<K>,
    bytes: usize,
}

impl<K: Clone + Eq + Hash, P: Clone> Parts<K, P> {
    /// None; encodings are counted in `metrics`.
    pub fn new(metrics: Metrics) -> Self {
        let kept = Kept { by_key: HashMap::new(), order: VecDeque::new(), bytes: 0 };
        Self { metrics, kept: Mutex::new(kept) }
    }

    /// The part of a key: what `encode` makes of it, the first time that it is asked for.
    pub fn get(&self, key: K, encode: impl FnOnce() -> Part<P>) -> Part<P> {
        let cell = {
            let mut kept = self.kept();
            match kept.by_key.get(&key) {
                Some(cell) => Arc::clone(cell),
                None => {
                    let cell = Arc::<OnceLock<Part<P>>>::default();
                    kept.by_key.insert(key.clone(), Arc::clone(&cell));
                    kept.order.push_back(key.clone());
                    cell
                }
            }
        };
        let mut made = 0;
        let part = cell.get_or_init(|| {
            let part = self.encode(encode);
            made = size(&part);
            part
        });
        if made > 0 {
            self.kept().took(&key, made);
        }
        part.clone()
    }

    /// A part for one watcher alone.
    pub fn encode(&self, encode: impl FnOnce() -> Part<P>) -> Part<P> {
        let part = encode();
        if part.frame.is_some() {
            self.metrics.watch_encoding();
        }
        part
    }

    fn kept(&self) -> MutexGuard<'_, Kept<K, P>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Eq + Hash, P> Kept<K, P> {
    /// So many bytes came in; the oldest go until it is within bounds.
    fn took(&mut self, key: &K, bytes: usize) {
        // It may have had to go while it was made.
        if self.by_key.contains_key(key) {
            self.bytes += bytes;
        }
        while self.bytes > MAX_BYTES || self.order.len() > MAX_PARTS {
            let Some(key) = self.order.pop_front() else { return };
            let part = self.by_key.remove(&key);
            let gone = part.as_ref().and_then(|part| part.get()).map_or(0, size);
            self.bytes = self.bytes.saturating_sub(gone);
        }
    }
}

impl<K, P> fmt::Debug for Parts<K, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts").finish_non_exhaustive()
    }
}

/// What it costs to keep a part, beside its key.
fn size<P>(part: &Part<P>) -> usize {
    part.frame.as_ref().map_or(0, Bytes::len) + size_of::<Part<P>>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(bytes: usize) -> Part<()> {
        Part { frame: Some(vec![0; bytes].into()), next: None }
    }

    #[test]
    fn each_part_is_encoded_once_and_the_oldest_go() {
        let metrics = Metrics::new();
        let parts = Parts::new(metrics.clone());
        for _ in 0..1_000 {
            parts.get(1, || part(10));
        }
        assert!(metrics.encode().unwrap().contains("toolpulse_watch_encodings_total 1\n"));
        for key in 2..100 {
            parts.get(key, || part(1 << 20));
        }
        let kept = parts.kept();
        assert!(kept.bytes <= MAX_BYTES && kept.by_key.len() == kept.order.len());
        assert_eq!((kept.by_key.contains_key(&1), kept.by_key.contains_key(&99)), (false, true));
        assert_eq!(kept.bytes, kept.by_key.values().filter_map(|p| p.get()).map(size).sum::<usize>());
        drop(kept);
        for key in 100..20_000 {
            parts.get(key, || Part { frame: None, next: None });
        }
        assert_eq!(parts.kept().order.len(), MAX_PARTS);
        let text = metrics.encode().unwrap();
        assert!(
            text.contains("toolpulse_watch_encodings_total 99\n"),
            "what says nothing is not encoded: {text}"
        );
    }
}
