//! What can be chosen beside what comes with Selvedge.

use std::{any::Any, cell::RefCell, fmt, sync::Arc};

use super::{Choosable, Entry, ImplementedBy, Settings};

/// Algorithms, rules of aggregation, server steps, filters, plans, split methods, layers and sources of data of one's own, by
/// their kinds, and what else a description can name. A description that is read with it can choose them.
///
/// Coordinator and clients each need them: what travels is the description, not code.
#[derive(Clone, Default)]
pub struct Registry {
    registered: Vec<Registered>,
}

#[derive(Clone)]
struct Registered {
    what: &'static str,
    name: String,
    /// An `Entry<T>`, or a value.
    entry: Arc<dyn Any + Send + Sync>,
}

/// A kind or a name is taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` is a known {what} already: give yours another name")]
pub struct AlreadyKnown {
    /// Of what.
    pub what: &'static str,
    /// The kind or the name.
    pub name: String,
}

/// A value that is made in a program, and that a description can only name.
pub trait Named: Clone + Send + Sync + 'static {
    /// What one of them is called: `module`.
    const WHAT: &'static str;
}

impl Registry {
    /// Nothing beside what comes with Selvedge.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds settings that can be chosen as a `T`: `registry.with::<dyn Algorithm, Mine>()`.
    ///
    /// # Errors
    /// When there is one of that kind already.
    pub fn with<T: Choosable + ImplementedBy<S> + ?Sized, S: Settings>(self) -> Result<Self, AlreadyKnown> {
        match T::kinds().contains(&S::KIND) {
            true => Err(AlreadyKnown {
                what: T::WHAT,
                name: S::KIND.into(),
            }),
            false => self.adding(T::WHAT, S::KIND, Arc::new(Entry::<T>::of::<S>())),
        }
    }

    /// Adds a value under a name.
    ///
    /// # Errors
    /// When there is one of that name already.
    pub fn with_named<V: Named>(self, name: &str, value: V) -> Result<Self, AlreadyKnown> {
        self.adding(V::WHAT, name, Arc::new(value))
    }

    fn adding(
        mut self,
        what: &'static str,
        name: &str,
        entry: Arc<dyn Any + Send + Sync>,
    ) -> Result<Self, AlreadyKnown> {
        let name = name.to_owned();
        if self
            .registered
            .iter()
            .any(|known| known.what == what && known.name == name)
        {
            return Err(AlreadyKnown { what, name });
        }
        self.registered.push(Registered { what, name, entry });
        Ok(self)
    }

    /// Does something in which what is registered here can be chosen.
    pub fn lend<R>(&self, f: impl FnOnce() -> R) -> R {
        /// Puts back what was lent before, also when `f` does not return.
        struct Before(Option<Registry>);
        impl Drop for Before {
            fn drop(&mut self) {
                LENT.set(self.0.take());
            }
        }
        let _before = Before(LENT.replace(Some(self.clone())));
        f()
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = self.registered.iter().map(|known| (known.what, &known.name));
        f.debug_map().entries(known).finish()
    }
}

thread_local! {
    /// The registry of the description that this thread is reading just now: serde has no way to hand one down.
    static LENT: RefCell<Option<Registry>> = const { RefCell::new(None) };
}

/// What of this sort is registered just now, in the order in which it was.
fn lent<V: Any, R>(what: &str, each: impl Fn(&str, &V) -> R) -> Vec<R> {
    LENT.with_borrow(|lent| {
        let registered = lent.iter().flat_map(|registry| &registry.registered);
        let of_sort = registered.filter(|known| known.what == what);
        of_sort
            .filter_map(|known| Some(each(&known.name, known.entry.downcast_ref()?)))
            .collect()
    })
}

/// All that can be chosen as a `T` just now.
pub(super) fn entries<T: Choosable + ?Sized>() -> Vec<Entry<T>> {
    let mut entries = T::built_in();
    entries.extend(lent(T::WHAT, |_, entry: &Entry<T>| entry.again()));
    entries
}

/// The kinds of all that a description that is being read just now can choose as a `T`.
pub fn kinds<T: Choosable + ?Sized>() -> Vec<&'static str> {
    let mut kinds = T::kinds();
    kinds.extend(lent(T::WHAT, |_, entry: &Entry<T>| entry.kind));
    kinds
}

/// The value that a description that is being read just now means by a name.
pub fn named<V: Named>(name: &str) -> Option<V> {
    let known = lent(V::WHAT, |known, value: &V| (known == name).then(|| value.clone()));
    known.into_iter().flatten().next()
}

/// The names that a description that is being read just now can use.
pub fn names<V: Named>() -> Vec<String> {
    lent(V::WHAT, |name, _: &V| name.to_owned())
}
