//! A cache bounded by the bytes of what it holds; in a model run a locked map.

use crate::sync::Arc;
use std::fmt;
use std::hash::Hash;

/// A concurrent map that forgets what was used least when its items weigh more than its bound.
///
/// It is cut into shards by the key's hash, each with its part of the bound; a hit takes its shard's lock
/// shared, so hits do not wait for each other. Values are given out as clones: put an `Arc` in.
pub struct Cache<K, V> {
    inner: inner::Map<K, V>,
}

impl<K, V> fmt::Debug for Cache<K, V> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Cache")
    }
}

impl<K, V> Cache<K, V>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    /// A cache of at most `capacity_bytes`, whose items weigh about `item_bytes` (which only sizes its
    /// tables), each as much as `weigh` says. The weight of an item must not change, and one of weight 0 is
    /// never forgotten by itself.
    pub fn new(
        capacity_bytes: u64,
        item_bytes: u64,
        weigh: impl Fn(&K, &V) -> u64 + Send + Sync + 'static,
    ) -> Self {
        Self { inner: inner::new(capacity_bytes, item_bytes, Arc::new(weigh)) }
    }

    /// The value, if it is there; it counts as used.
    pub fn get(&self, key: &K) -> Option<V> {
        self.inner.get(key)
    }

    /// The value, if it is there; it does not count as used.
    pub fn peek(&self, key: &K) -> Option<V> {
        self.inner.peek(key)
    }

    /// Puts a value in, in place of the key's former one. A value heavier than a shard's part of the bound is
    /// not kept.
    pub fn insert(&self, key: K, value: V) {
        self.inner.insert(key, value);
    }

    /// Takes a value out.
    pub fn remove(&self, key: &K) -> Option<V> {
        self.inner.remove(key).map(|(_, value)| value)
    }

    /// Forgets every item for which `keep` is false.
    pub fn retain(&self, keep: impl Fn(&K, &V) -> bool) {
        self.inner.retain(keep);
    }

    /// Forgets everything.
    pub fn clear(&self) {
        self.inner.clear();
    }

    /// Sets another bound, and forgets what is beyond it. The memory of what was forgotten lately, by which
    /// it is known again as used often, shrinks with each rounding: go to and fro between a bound and its
    /// half, which rounds once.
    pub fn set_capacity_bytes(&self, capacity_bytes: u64) {
        self.inner.set_capacity(capacity_bytes);
    }

    /// How many items are there.
    pub fn len(&self) -> usize {
        self.inner.len()
    }

    /// Whether nothing is there.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What the items weigh together.
    pub fn weight_bytes(&self) -> u64 {
        self.inner.weight()
    }
}

type Weigh<K, V> = Arc<dyn Fn(&K, &V) -> u64 + Send + Sync>;

#[cfg(not(feature = "shuttle"))]
mod inner {
    use super::{Hash, Weigh};
    use crate::sync::Arc;
    use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};

    pub struct Weigher<K, V>(Weigh<K, V>);

    impl<K, V> Clone for Weigher<K, V> {
        fn clone(&self) -> Self {
            Self(Arc::clone(&self.0))
        }
    }

    impl<K, V> Weighter<K, V> for Weigher<K, V> {
        fn weight(&self, key: &K, value: &V) -> u64 {
            (self.0)(key, value)
        }
    }

    pub type Map<K, V> = quick_cache::sync::Cache<K, V, Weigher<K, V>>;

    pub fn new<K: Eq + Hash, V: Clone>(
        capacity_bytes: u64,
        item_bytes: u64,
        weigh: Weigh<K, V>,
    ) -> Map<K, V> {
        let items = usize::try_from(capacity_bytes / item_bytes.max(1)).unwrap_or(usize::MAX);
        let options = OptionsBuilder::new()
            .weight_capacity(capacity_bytes)
            // quick_cache sizes its tables by this number before any item comes.
            .estimated_items_capacity(items.clamp(1, 1 << 20))
            .build()
            .expect("both capacities are set");
        let hasher = DefaultHashBuilder::default();
        Map::with_options(options, Weigher(weigh), hasher, Default::default())
    }
}

#[cfg(feature = "shuttle")]
mod inner {
    use super::{Hash, Weigh};
    use crate::sync::Mutex;
    use std::collections::{HashMap, VecDeque};

    /// Forgets in the order of insertion, which is the same in every run.
    pub struct Map<K, V> {
        state: Mutex<MapState<K, V>>,
        weigh: Weigh<K, V>,
    }

    struct MapState<K, V> {
        items: HashMap<K, V>,
        order: VecDeque<K>,
        weight_bytes: u64,
        capacity_bytes: u64,
    }

    pub fn new<K, V>(capacity_bytes: u64, _item_bytes: u64, weigh: Weigh<K, V>) -> Map<K, V> {
        let state =
            MapState { items: HashMap::new(), order: VecDeque::new(), weight_bytes: 0, capacity_bytes };
        Map { state: Mutex::new(state), weigh }
    }

    impl<K: Eq + Hash + Clone, V: Clone> Map<K, V> {
        pub fn get(&self, key: &K) -> Option<V> {
            self.state.lock().items.get(key).cloned()
        }

        pub fn peek(&self, key: &K) -> Option<V> {
            self.get(key)
        }

        pub fn insert(&self, key: K, value: V) {
            let mut state = self.state.lock();
            self.take(&mut state, &key);
            state.weight_bytes += (self.weigh)(&key, &value);
            state.order.push_back(key.clone());
            state.items.insert(key, value);
            self.shrink(&mut state);
        }

        fn shrink(&self, state: &mut MapState<K, V>) {
            while state.weight_bytes > state.capacity_bytes {
                let Some(oldest) = state.order.front().cloned() else { break };
                self.take(state, &oldest);
            }
        }

        pub fn set_capacity(&self, capacity_bytes: u64) {
            let mut state = self.state.lock();
            state.capacity_bytes = capacity_bytes;
            self.shrink(&mut state);
        }

        fn take(&self, state: &mut MapState<K, V>, key: &K) -> Option<(K, V)> {
            let (key, value) = state.items.remove_entry(key)?;
            state.weight_bytes -= (self.weigh)(&key, &value);
            state.order.retain(|other| *other != key);
            Some((key, value))
        }

        pub fn remove(&self, key: &K) -> Option<(K, V)> {
            self.take(&mut self.state.lock(), key)
        }

        pub fn retain(&self, keep: impl Fn(&K, &V) -> bool) {
            let mut state = self.state.lock();
            let dropped: Vec<K> = state
                .items
                .iter()
                .filter(|(key, value)| !keep(key, value))
                .map(|(key, _)| key.clone())
                .collect();
            for key in dropped {
                self.take(&mut state, &key);
            }
        }

        pub fn clear(&self) {
            self.retain(|_, _| false);
        }

        pub fn len(&self) -> usize {
            self.state.lock().items.len()
        }

        pub fn weight(&self) -> u64 {
            self.state.lock().weight_bytes
        }
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    #[test]
    fn the_bound_is_in_bytes_and_holds_while_used_items_stay() {
        let cache: Cache<u64, Arc<Vec<u8>>> =
            Cache::new(1 << 20, 4096, |_, value: &Arc<Vec<u8>>| value.len() as u64);
        for key in 0..10_000_u64 {
            let length = 1024 + (key as usize % 7) * 1024;
            cache.insert(key, Arc::new(vec![key as u8; length]));
            assert!(cache.weight_bytes() <= 1 << 20);
        }
        assert!(cache.len() > 100, "{} items", cache.len());
        for key in 0..10_000_u64 {
            if let Some(value) = cache.get(&key) {
                assert_eq!(value[0], key as u8);
            }
        }
    }

    #[test]
    fn a_smaller_bound_holds_at_once_and_a_larger_one_leaves_room() {
        let cache: Cache<u64, u64> = Cache::new(1 << 20, 4096, |_, _| 4096);
        let fill = || (0..1000).for_each(|key| cache.insert(key, key));
        for _ in 0..3 {
            fill();
            assert!(cache.weight_bytes() > 3 << 18, "{}", cache.weight_bytes());
            cache.set_capacity_bytes(1 << 19);
            assert!(cache.weight_bytes() <= 1 << 19);
            fill();
            assert!(cache.weight_bytes() <= 1 << 19);
            cache.set_capacity_bytes(1 << 20);
        }
    }

    #[test]
    fn replacing_removing_and_clearing_keep_the_weight_right() {
        let cache: Cache<u8, Arc<[u8]>> = Cache::new(1 << 16, 64, |_, value: &Arc<[u8]>| value.len() as u64);
        cache.insert(1, Arc::from([0; 100]));
        cache.insert(1, Arc::from([1; 40]));
        cache.insert(2, Arc::from([2; 60]));
        cache.insert(3, Arc::from([3; 10]));
        assert_eq!((cache.len(), cache.weight_bytes()), (3, 110));
        assert_eq!(cache.remove(&1).unwrap()[0], 1);
        assert_eq!(cache.remove(&1), None);
        cache.retain(|key, _| *key == 2);
        assert_eq!((cache.len(), cache.weight_bytes()), (1, 60));
        assert!(cache.peek(&2).is_some() && cache.get(&3).is_none());
        cache.clear();
        assert!(cache.is_empty());
    }
}
