//! Responses that are kept, in memory and within bounds: the oldest give way.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use serde_json::Value as Json;

use crate::config::Limits;

/// An item that may be kept.
#[derive(Debug)]
pub struct Item {
    /// The item.
    pub json: Json,
    /// How many bytes it has as JSON, once that was asked for: most items are never kept.
    bytes: OnceLock<usize>,
}

impl Item {
    /// The item `json`.
    pub fn new(json: Json) -> Arc<Item> {
        Arc::new(Item { json, bytes: OnceLock::new() })
    }

    /// Its bytes as JSON.
    pub fn bytes(&self) -> usize {
        *self.bytes.get_or_init(|| self.json.to_string().len())
    }

    /// Its id.
    pub fn id(&self) -> Option<&str> {
        self.json.get("id").and_then(Json::as_str)
    }
}

/// A response and what it answers.
#[derive(Clone, Debug)]
pub struct Stored {
    /// Its id.
    pub id: String,
    /// The whole object.
    pub response: Arc<Item>,
    /// The items that it answers, those of earlier responses first.
    pub input: Vec<Arc<Item>>,
    /// The items of its answer.
    pub output: Vec<Arc<Item>>,
}

impl Stored {
    /// The items with which a request that continues it begins.
    pub fn context(&self) -> Vec<Arc<Item>> {
        self.input.iter().chain(&self.output).cloned().collect()
    }

    /// How many bytes it holds, written as JSON. Items that it shares with others count in full, so
    /// that the whole is never more than the sum.
    fn bytes(&self) -> usize {
        let items = self.input.iter().chain(&self.output);
        self.response.bytes() + items.map(|item| item.bytes()).sum::<usize>()
    }
}

/// The responses that are kept.
#[derive(Debug)]
pub struct Store {
    most: usize,
    most_bytes: usize,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    /// With the bytes of each, the oldest first.
    responses: VecDeque<(Stored, usize)>,
    bytes: usize,
}

impl Store {
    /// A store of the bounds in `limits`.
    pub fn new(limits: &Limits) -> Arc<Store> {
        let (most, most_bytes) = (limits.stored_responses, limits.stored_bytes);
        Arc::new(Store { most, most_bytes, kept: Mutex::default() })
    }

    /// Returns true when it keeps responses at all.
    pub fn keeps(&self) -> bool {
        self.most > 0 && self.most_bytes > 0
    }

    /// Keeps `stored`. One that is larger than all that may be kept is not.
    pub fn put(&self, stored: Stored) {
        let bytes = stored.bytes();
        if bytes > self.most_bytes {
            return;
        }
        let mut kept = self.lock();
        kept.bytes += bytes;
        kept.responses.push_back((stored, bytes));
        while kept.responses.len() > self.most || kept.bytes > self.most_bytes {
            let Some((_, bytes)) = kept.responses.pop_front() else { return };
            kept.bytes -= bytes;
        }
    }

    /// The response `id`.
    pub fn get(&self, id: &str) -> Option<Stored> {
        let kept = self.lock();
        kept.responses.iter().rev().find(|(stored, _)| stored.id == id).map(|(s, _)| s.clone())
    }

    /// The items of any responses that have these ids, by id; of several with the same one, the
    /// newest.
    pub fn items<'a>(&self, ids: &BTreeSet<&'a str>) -> BTreeMap<&'a str, Arc<Item>> {
        let mut found = BTreeMap::new();
        if ids.is_empty() {
            return found;
        }
        let kept = self.lock();
        for (stored, _) in kept.responses.iter().rev() {
            for item in stored.output.iter().chain(&stored.input) {
                if let Some(id) = item.id().and_then(|id| ids.get(id)) {
                    found.entry(*id).or_insert_with(|| Arc::clone(item));
                }
            }
        }
        found
    }

    /// Forgets the response `id`; whether it was there.
    pub fn remove(&self, id: &str) -> bool {
        let mut kept = self.lock();
        let Some(at) = kept.responses.iter().position(|(stored, _)| stored.id == id) else {
            return false;
        };
        if let Some((_, bytes)) = kept.responses.remove(at) {
            kept.bytes -= bytes;
        }
        true
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::{Item, Store, Stored};
    use crate::config::Limits;

    fn stored(id: &str, text: &str) -> Stored {
        let item = Item::new(json!({"id": format!("msg_{id}"), "text": text}));
        let response = Item::new(json!({"id": id}));
        Stored { id: id.to_owned(), response, input: vec![Arc::clone(&item)], output: vec![item] }
    }

    fn item(store: &Store, id: &'static str) -> Option<Arc<Item>> {
        store.items(&[id].into()).remove(id)
    }

    fn store(most: usize, most_bytes: usize) -> Arc<Store> {
        let limits =
            Limits { stored_responses: most, stored_bytes: most_bytes, ..Limits::default() };
        Store::new(&limits)
    }

    #[test]
    fn the_oldest_give_way_to_the_count() {
        let store = store(2, 1 << 20);
        ["a", "b", "c"].into_iter().for_each(|id| store.put(stored(id, "")));
        assert!(store.get("a").is_none() && item(&store, "msg_a").is_none());
        assert_eq!(store.get("b").unwrap().context().len(), 2);
        assert_eq!(item(&store, "msg_c").unwrap().id(), Some("msg_c"));
        assert!(store.remove("b") && !store.remove("b"));
        assert!(store.get("b").is_none() && store.get("c").is_some());
    }

    #[test]
    fn the_oldest_give_way_to_the_bytes() {
        let store = store(100, 5000);
        let text = "x".repeat(1000);
        ["a", "b", "c"].into_iter().for_each(|id| store.put(stored(id, &text)));
        assert!(store.get("a").is_none() && store.get("b").is_some());
        // One that never fits leaves the others alone.
        store.put(stored("d", &"x".repeat(5000)));
        assert!(store.get("d").is_none() && store.get("b").is_some() && store.get("c").is_some());
        assert!(store.remove("b") && store.remove("c"));
        assert_eq!(store.lock().bytes, 0);
    }
}
