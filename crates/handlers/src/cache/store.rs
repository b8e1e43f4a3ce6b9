//! The answers that a route keeps, within a limit, and the requests that are making an answer now.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, Weak},
    time::Duration,
};

use galgo_proto::{Fields, h1::Head};
use galgo_service::{
    body::{Body, Response},
    lock::lock,
};
use tokio::{sync::watch, time::Instant};

use super::rules;

/// Limit of one route's kept answers in bytes, with their keys and fields. The oldest make room.
pub const ROOM: usize = 16 << 20;
/// Limit of a kept body in bytes.
pub const BODY: usize = 1 << 20;
/// Upper bound of an answer's memory besides its key, fields and body.
const AROUND: usize = 512;
/// Limit of the answers to one key, which Vary tells apart.
const VARIANTS: usize = 16;

/// A kept answer.
#[derive(Debug)]
pub struct Kept {
    /// Status.
    pub status: u16,
    /// Reason phrase.
    pub reason: Option<String>,
    /// Header fields.
    pub fields: Fields,
    /// Body.
    pub body: Arc<[u8]>,
}

/// The facts about the requests of a key that have the same values in the fields that `vary` names.
#[derive(Debug)]
struct AnswerVariant {
    vary: Vec<String>,
    values: Vec<Vec<u8>>,
    made: Instant,
    until: Instant,
    /// `None`: the answer could not be kept, and each request makes its own.
    kept: Option<Kept>,
    cost: usize,
}

/// The answers of one route. Two caches are equal if they are configured equally.
#[derive(Debug)]
pub struct AnswerCache {
    most: Duration,
    state: Mutex<CacheState>,
}

#[derive(Debug, Default)]
struct CacheState {
    entries: HashMap<Arc<[u8]>, Entry>,
    /// Keys and answers in the order in which the answers were made.
    order: VecDeque<(Arc<[u8]>, Weak<AnswerVariant>)>,
    bytes: usize,
    variants: usize,
}

#[derive(Debug, Default)]
struct Entry {
    variants: Vec<Arc<AnswerVariant>>,
    /// Closed when the request that makes an answer has got the answer, or has given up.
    making: Option<watch::Receiver<()>>,
    /// The answer that is being made may date from before a change, so it is not kept.
    is_stale: bool,
}

/// The result of a search for a request's answer.
#[derive(Debug)]
pub enum Found {
    /// An answer, with its age.
    Hit(Response),
    /// Another request is making the answer.
    Wait(watch::Receiver<()>),
    /// No request is making the answer: the caller is to make it.
    Make(Making),
    /// No answer can be shared.
    Own,
}

/// The duty of a request to make an answer. When it is dropped, the waiting requests look again.
#[derive(Debug)]
pub struct Making {
    cache: Arc<AnswerCache>,
    key: Arc<[u8]>,
    _done: watch::Sender<()>,
}

impl PartialEq for AnswerCache {
    fn eq(&self, other: &Self) -> bool {
        self.most == other.most
    }
}

impl AnswerCache {
    /// Creates a cache that keeps answers for at most this long.
    pub fn new(most: Duration) -> Self {
        Self {
            most,
            state: Mutex::default(),
        }
    }

    /// Returns how long answers are kept at most.
    pub fn max_lifetime(&self) -> Duration {
        self.most
    }

    /// Forgets all answers whose keys begin with `resource`, because it has changed. Answers that are being made are
    /// not kept.
    pub fn forget(&self, resource: &[u8]) {
        lock(&self.state).forget(resource);
    }

    /// Looks for the answer to a request with this key. With `makes`, the request is to make the answer if no other
    /// request does.
    pub fn find_answer(self: &Arc<Self>, key: &[u8], head: &Head, makes: bool) -> Found {
        let now = Instant::now();
        let mut state = lock(&self.state);
        let known = state.entries.get(key);
        let fits = |variant: &&Arc<AnswerVariant>| {
            now < variant.until && rules::vary_values(head, &variant.vary) == variant.values
        };
        if let Some(variant) = known.and_then(|entry| entry.variants.iter().find(fits)) {
            let variant = variant.clone();
            drop(state);
            return match &variant.kept {
                Some(kept) => Found::Hit(kept.response(now.duration_since(variant.made))),
                None => Found::Own,
            };
        }
        match known.and_then(|entry| entry.making.clone()) {
            Some(making) => return Found::Wait(making),
            None if !makes => return Found::Own,
            None => {}
        }
        let key: Arc<[u8]> = match state.entries.get_key_value(key) {
            Some((key, _)) => key.clone(),
            None => key.into(),
        };
        let (done, making) = watch::channel(());
        let entry = state.entries.entry(key.clone()).or_default();
        (entry.making, entry.is_stale) = (Some(making), false);
        Found::Make(Making {
            cache: self.clone(),
            key,
            _done: done,
        })
    }
}

impl Kept {
    fn response(&self, age: Duration) -> Response {
        let mut fields = self.fields.clone();
        let age = age + rules::received_age(&fields);
        fields.remove(&["age"]);
        fields.push("Age", age.as_secs().to_string());
        fields.push("X-Cache", "hit");
        Response {
            status: self.status,
            reason: self.reason.clone(),
            fields,
            body: Body::Shared(self.body.clone()),
        }
    }

    fn memory_cost(&self) -> usize {
        let fields: usize = self
            .fields
            .iter()
            .map(|(n, v)| n.len() + v.len() + 16)
            .sum();
        self.body.len() + fields
    }
}

impl Making {
    /// Returns how long answers are kept at most.
    pub fn max_lifetime(&self) -> Duration {
        self.cache.most
    }

    /// Keeps the answer for this `long`. It depends on the fields `vary` of its `head`.
    pub fn keep_answer(self, head: &Head, vary: Vec<String>, long: Duration, kept: Kept) {
        let values = rules::vary_values(head, &vary);
        self.insert_variant(vary, values, long, Some(kept));
    }

    /// Notes that the answer cannot be shared: for a while no request waits for the answer of another.
    pub fn mark_uncacheable(self) {
        let most = self.cache.most;
        self.insert_variant(Vec::new(), Vec::new(), most, None);
    }

    fn insert_variant(
        &self,
        vary: Vec<String>,
        values: Vec<Vec<u8>>,
        long: Duration,
        kept: Option<Kept>,
    ) {
        let made = Instant::now();
        let named: usize = vary.iter().map(String::len).sum();
        let valued: usize = values.iter().map(Vec::len).sum();
        let own = kept.as_ref().map_or(0, Kept::memory_cost) + named + valued;
        let variant = Arc::new(AnswerVariant {
            vary,
            values,
            made,
            until: made + long,
            kept,
            cost: own + self.key.len() + AROUND,
        });
        lock(&self.cache.state).insert_variant(self.key.clone(), variant, made);
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        let mut state = lock(&self.cache.state);
        if let Some(entry) = state.entries.get_mut(&self.key) {
            entry.making = None;
        }
        state.remove_if_empty(&self.key);
    }
}

impl CacheState {
    fn forget(&mut self, resource: &[u8]) {
        let (bytes, variants) = (&mut self.bytes, &mut self.variants);
        self.entries.retain(|key, entry| {
            if !key.starts_with(resource) {
                return true;
            }
            for variant in entry.variants.drain(..) {
                *bytes -= variant.cost;
                *variants -= 1;
            }
            entry.is_stale = true;
            entry.making.is_some()
        });
        self.drop_what_is_gone();
    }

    fn insert_variant(&mut self, key: Arc<[u8]>, variant: Arc<AnswerVariant>, now: Instant) {
        let alike = |old: &AnswerVariant| {
            let same = (&old.vary, &old.values) == (&variant.vary, &variant.values);
            same || old.kept.is_some() != variant.kept.is_some()
        };
        let entry = self.entries.entry(key.clone()).or_default();
        if entry.is_stale {
            return;
        }
        let (bytes, variants) = (&mut self.bytes, &mut self.variants);
        let mut left = VARIANTS - 1;
        entry.variants.retain(|old| {
            let stays = left > 0 && !alike(old);
            left -= usize::from(stays);
            if !stays {
                *bytes -= old.cost;
                *variants -= 1;
            }
            stays
        });
        self.bytes += variant.cost;
        self.variants += 1;
        self.order.push_back((key, Arc::downgrade(&variant)));
        // The search goes from the newest to the oldest.
        entry.variants.insert(0, variant);
        let stale = |one: &Weak<AnswerVariant>| one.upgrade().is_none_or(|one| one.until <= now);
        while let Some((_, oldest)) = self.order.front()
            && (stale(oldest) || self.bytes > ROOM)
        {
            self.drop_oldest();
        }
        self.drop_what_is_gone();
    }

    /// Shortens the order if most of its answers are gone.
    fn drop_what_is_gone(&mut self) {
        if self.order.len() > 2 * self.variants + VARIANTS {
            self.order.retain(|(_, variant)| variant.strong_count() > 0);
        }
    }

    fn drop_oldest(&mut self) {
        let Some((key, oldest)) = self.order.pop_front() else {
            return;
        };
        let (Some(entry), Some(oldest)) = (self.entries.get_mut(&key), oldest.upgrade()) else {
            return;
        };
        entry
            .variants
            .retain(|variant| !Arc::ptr_eq(variant, &oldest));
        self.bytes -= oldest.cost;
        self.variants -= 1;
        self.remove_if_empty(&key);
    }

    /// Forgets a key without facts.
    fn remove_if_empty(&mut self, key: &[u8]) {
        let empty = |entry: &Entry| entry.variants.is_empty() && entry.making.is_none();
        if self.entries.get(key).is_some_and(empty) {
            self.entries.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use galgo_proto::h1::HeadLimits;

    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    fn head(language: usize) -> Head {
        let text = format!("GET / HTTP/1.1\r\nHost: a\r\nAccept-Language: {language}\r\n\r\n");
        Head::parse(text.as_bytes(), &HeadLimits::default()).unwrap()
    }

    fn kept(bytes: usize) -> Kept {
        Kept {
            status: 200,
            reason: None,
            fields: Fields::new(),
            body: vec![0; bytes].into(),
        }
    }

    fn make(cache: &Arc<AnswerCache>, key: &[u8], head: &Head) -> Making {
        match cache.find_answer(key, head, true) {
            Found::Make(making) => making,
            found => panic!("{found:?}"),
        }
    }

    #[test]
    fn the_oldest_make_room() {
        let cache = Arc::new(AnswerCache::new(LONG));
        let one = head(0);
        for n in 0..100_usize {
            make(&cache, &n.to_ne_bytes(), &one).keep_answer(&one, vec![], LONG, kept(BODY));
            make(&cache, &[&n.to_ne_bytes()[..], b"x"].concat(), &one).mark_uncacheable();
        }
        let state = lock(&cache.state);
        assert!(state.bytes <= ROOM && state.entries.len() <= 2 * ROOM / BODY);
        assert_eq!(state.order.len(), state.variants);
        drop(state);
        let newest = cache.find_answer(&99_usize.to_ne_bytes(), &one, true);
        assert!(matches!(newest, Found::Hit(_)), "{newest:?}");
        drop(make(&cache, &0_usize.to_ne_bytes(), &one));
        // Answers that vary by ever more languages.
        for n in 0..1000 {
            let vary = vec!["accept-language".to_owned()];
            make(&cache, b"k", &head(n)).keep_answer(&head(n), vary, LONG, kept(9));
        }
        assert_eq!(
            lock(&cache.state).entries[&b"k"[..]].variants.len(),
            VARIANTS
        );
        // Nothing is left of answers that were not kept.
        for n in 1000..2000_usize {
            drop(make(&cache, &n.to_ne_bytes(), &one));
        }
        let state = lock(&cache.state);
        assert!(
            state.entries.len() <= 2 * ROOM / BODY,
            "{}",
            state.entries.len()
        );
        assert!(state.order.len() <= 2 * state.variants + VARIANTS);
        let counted: usize = state
            .entries
            .values()
            .map(|entry| entry.variants.len())
            .sum();
        assert_eq!(state.variants, counted);
        let costs = state.entries.values().flat_map(|entry| &entry.variants);
        assert_eq!(
            state.bytes,
            costs.map(|variant| variant.cost).sum::<usize>()
        );
    }

    #[test]
    fn what_has_changed_is_forgotten() {
        let cache = Arc::new(AnswerCache::new(LONG));
        let one = head(0);
        for key in [b"ab", b"ac", b"bc"] {
            make(&cache, key, &one).keep_answer(&one, vec![], LONG, kept(9));
        }
        let making = make(&cache, b"ad", &one);
        cache.forget(b"a");
        // The answer was asked for before the change.
        making.keep_answer(&one, vec![], LONG, kept(9));
        for key in [b"ab", b"ac", b"ad"] {
            drop(make(&cache, key, &one));
        }
        let other = cache.find_answer(b"bc", &one, true);
        assert!(matches!(other, Found::Hit(_)), "{other:?}");
        make(&cache, b"ad", &one).keep_answer(&one, vec![], LONG, kept(9));
        let again = cache.find_answer(b"ad", &one, true);
        assert!(matches!(again, Found::Hit(_)), "{again:?}");
        cache.forget(b"");
        let state = lock(&cache.state);
        assert_eq!(
            (state.bytes, state.variants, state.entries.len()),
            (0, 0, 0)
        );
    }

    #[test]
    fn who_waits_looks_again() {
        let cache = Arc::new(AnswerCache::new(LONG));
        let one = head(0);
        let making = make(&cache, b"k", &one);
        assert!(matches!(
            cache.find_answer(b"k", &one, true),
            Found::Wait(_)
        ));
        // The request has left: the next request makes the answer.
        drop(making);
        let making = make(&cache, b"k", &one);
        // A request for another answer does not make this one.
        assert!(matches!(
            cache.find_answer(b"k", &one, false),
            Found::Wait(_)
        ));
        assert!(matches!(cache.find_answer(b"l", &one, false), Found::Own));
        making.mark_uncacheable();
        assert!(matches!(cache.find_answer(b"k", &one, true), Found::Own));
    }
}
