//! What can be chosen beside what comes with Selvedge.

use std::{any::Any, cell::RefCell, fmt, sync::Arc};

use super::{Choosable, Entry, ImplementedBy, Settings};

/// Algorithms, rules of aggregation, server steps, filters, plans and split methods of one's own, by their kinds. A
/// description that is read with it it can choose them.
///
/// Coordinator and clients each need them: what travels is the description, not code.
#[derive(Clone, Default)]
pub struct Registry {
    registered: Vec<Registered>,
}

#[derive(Clone)]
struct Registered {
    what: &'static str,
    kind: &'static str,
    /// An `Entry<T>`.
    entry: Arc<dyn Any + Send + Sync>,
}

/// A kind is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is an {what} `{kind}` already: give yours another kind")]
pub struct AlreadyKnown {
    /// Of what.
    pub what: &'static str,
    /// The kind.
    pub kind: &'static str,
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
    pub fn with<T: Choosable + ImplementedBy<S> + ?Sized, S: Settings>(mut self) -> Result<Self, AlreadyKnown> {
        let (what, kind) = (T::WHAT, S::KIND);
        let is_its = |known: &Registered| (known.what, known.kind) == (what, kind);
        if self.registered.iter().any(is_its) || T::built_in().iter().any(|entry| entry.kind == kind) {
            return Err(AlreadyKnown { what, kind });
        }
        let entry = Arc::new(Entry::<T>::of::<S>());
        self.registered.push(Registered { what, kind, entry });
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
        let known = self.registered.iter().map(|known| (known.what, known.kind));
        f.debug_map().entries(known).finish()
    }
}

thread_local! {
    /// The registry of the description that this thread is reading just now: serde has no way to hand one down.
    static LENT: RefCell<Option<Registry>> = const { RefCell::new(None) };
}

/// All that can be chosen as a `T` just now.
pub(super) fn entries<T: Choosable + ?Sized>() -> Vec<Entry<T>> {
    let mut entries = T::built_in();
    LENT.with_borrow(|lent| {
        let registered = lent.iter().flat_map(|registry| &registry.registered);
        let of_kind = registered.filter(|known| known.what == T::WHAT);
        entries.extend(of_kind.filter_map(|known| known.entry.downcast_ref::<Entry<T>>().map(Entry::again)));
    });
    entries
}
