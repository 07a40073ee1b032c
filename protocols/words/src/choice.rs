//! A part of a run that its description chooses by name: `kind = "fedprox"`, then the settings, which are the fields of
//! the part's own type.
//!
//! What there is to choose from is declared in one form, the macro `choices!`, for algorithms, rules of aggregation, server
//! steps, filters, plans and split methods; a crate outside adds its own to a [`Registry`] before a description is read.

mod registry;
mod tagged;

pub use registry::{AlreadyKnown, Named, Registry, kinds, named, names};
pub use tagged::tagged;

use std::{fmt, ops::Deref, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::DeserializeOwned, de::Error as _};
use toml::Value;

/// Settings that a description can name.
pub trait Settings: Serialize + DeserializeOwned + Send + Sync + 'static {
    /// The `kind` that a description writes.
    const KIND: &'static str;
}

/// Whose settings can be chosen as this: `dyn Algorithm: ImplementedBy<FedProx>`. Holds for all [`Settings`] that
/// implement the trait in question.
pub trait ImplementedBy<S: Settings> {
    /// The settings as what they are chosen as.
    fn part(settings: &S) -> &Self;
}

/// A trait whose implementations a description chooses among: `dyn Algorithm`, `dyn Filter`, ….
pub trait Choosable: Send + Sync + 'static {
    /// What one of them is called: `algorithm`.
    const WHAT: &'static str;

    /// Those that come with Selvedge.
    fn built_in() -> Vec<Entry<Self>>;

    /// The kinds of all that come with Selvedge, which no other can have.
    fn kinds() -> Vec<&'static str> {
        Self::built_in().iter().map(|entry| entry.kind).collect()
    }
}

/// A trait of which one implementation is chosen where a description does not say which.
pub trait DefaultChoice: Choosable {
    /// That one.
    fn default_choice() -> Choice<Self>;
}

/// One of the implementations that a description can choose.
pub struct Entry<T: ?Sized> {
    kind: &'static str,
    read: fn(Value) -> Result<Choice<T>, Misread>,
}

/// Why settings cannot be read: where in them, and what is wrong.
struct Misread {
    path: String,
    message: String,
}

impl<T: Choosable + ?Sized> Entry<T> {
    /// The entry of these settings.
    pub fn of<S: Settings>() -> Self
    where
        T: ImplementedBy<S>,
    {
        let read = |value| {
            serde_path_to_error::deserialize::<_, S>(value).map(Choice::of).map_err(
                |error: serde_path_to_error::Error<toml::de::Error>| Misread {
                    path: error.path().to_string(),
                    message: error.into_inner().message().to_owned(),
                },
            )
        };
        Self { kind: S::KIND, read }
    }

    fn again(&self) -> Self {
        let &Self { kind, read } = self;
        Self { kind, read }
    }
}

/// What a description has chosen: an implementation of `T`, with its settings.
pub struct Choice<T: ?Sized> {
    kind: &'static str,
    chosen: Arc<dyn Chosen<T>>,
}

/// Settings whose type is no longer known.
trait Chosen<T: ?Sized>: Send + Sync {
    fn part(&self) -> &T;
    fn settings(&self) -> &dyn erased_serde::Serialize;
}

impl<T: ImplementedBy<S> + ?Sized, S: Settings> Chosen<T> for S {
    fn part(&self) -> &T {
        T::part(self)
    }

    fn settings(&self) -> &dyn erased_serde::Serialize {
        self
    }
}

impl<T: Choosable + ?Sized> Choice<T> {
    /// The choice of these settings.
    pub fn of<S: Settings>(settings: S) -> Self
    where
        T: ImplementedBy<S>,
    {
        Self {
            kind: S::KIND,
            chosen: Arc::new(settings),
        }
    }

    /// The `kind` that a description writes.
    pub fn kind(&self) -> &'static str {
        self.kind
    }

    /// Whether these settings' kind was chosen.
    pub fn is<S: Settings>(&self) -> bool
    where
        T: ImplementedBy<S>,
    {
        self.kind == S::KIND
    }

    fn to_toml(&self) -> String {
        toml::to_string(self).unwrap_or_default()
    }
}

impl<T: DefaultChoice + ?Sized> Default for Choice<T> {
    fn default() -> Self {
        T::default_choice()
    }
}

impl<T: ?Sized> Clone for Choice<T> {
    fn clone(&self) -> Self {
        Self {
            kind: self.kind,
            chosen: self.chosen.clone(),
        }
    }
}

impl<T: ?Sized> Deref for Choice<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.chosen.part()
    }
}

impl<T: Choosable + ?Sized> PartialEq for Choice<T> {
    /// Whether both would be written alike.
    fn eq(&self, other: &Self) -> bool {
        self.kind == other.kind && self.to_toml() == other.to_toml()
    }
}

impl<T: Choosable + ?Sized> fmt::Debug for Choice<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_toml().trim_end().replace('\n', ", "))
    }
}

impl<T: ?Sized> Serialize for Choice<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Written<'a> {
            kind: &'a str,
            #[serde(flatten)]
            settings: &'a dyn erased_serde::Serialize,
        }
        let (kind, settings) = (self.kind, self.chosen.settings());
        Written { kind, settings }.serialize(serializer)
    }
}

/// What is wrong where a kind stands instead of its table.
pub fn misplaced_kind(kind: &str) -> String {
    format!("where \"{kind}\" stands, a table with a kind is needed: write {{ kind = \"{kind}\" }}")
}

/// Stands between the path of an error inside settings and its message, until both are put to those of the description.
pub const INSIDE: char = '\u{1f}';

impl<'de, T: Choosable + ?Sized> Deserialize<'de> for Choice<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut settings = match Value::deserialize(deserializer)? {
            Value::Table(settings) => settings,
            Value::String(kind) => {
                return Err(D::Error::custom(misplaced_kind(&kind)));
            }
            other => {
                let message = format!("invalid type: {}, expected a table with a kind", other.type_str());
                return Err(D::Error::custom(message));
            }
        };
        let kind = match settings.remove("kind") {
            Some(Value::String(kind)) => kind,
            Some(other) => {
                let message = format!("kind{INSIDE}invalid type: {}, expected a string", other.type_str());
                return Err(D::Error::custom(message));
            }
            None => return Err(D::Error::missing_field("kind")),
        };
        let entries = registry::entries::<T>();
        let Some(entry) = entries.iter().find(|entry| entry.kind == kind) else {
            let known: Vec<String> = entries.iter().map(|entry| format!("`{}`", entry.kind)).collect();
            let known = known.join(", ");
            return Err(D::Error::custom(format!(
                "unknown variant `{kind}`, expected one of {known}"
            )));
        };
        (entry.read)(Value::Table(settings)).map_err(|Misread { path, message }| {
            // An unknown key is a fault of the table that it is in.
            let table = match message.starts_with("unknown field") {
                true => path.rsplit_once('.').map_or("", |(table, _)| table),
                false => path.trim_start_matches('.'),
            };
            D::Error::custom(match table {
                "" => message,
                table => format!("{table}{INSIDE}{message}"),
            })
        })
    }
}

/// Declares the implementations of a trait that a description can choose among, each with its module, its settings' type
/// and its `kind`.
#[macro_export]
macro_rules! choices {
    (dyn $Trait:ident, $what:literal: $($module:ident::$Settings:ident = $kind:literal,)*) => {
        $(
            mod $module;
            pub use $module::$Settings;

            impl $crate::choice::Settings for $Settings {
                const KIND: &'static str = $kind;
            }
        )*

        impl $crate::choice::Choosable for dyn $Trait {
            const WHAT: &'static str = $what;

            fn built_in() -> Vec<$crate::choice::Entry<Self>> {
                vec![$($crate::choice::Entry::of::<$Settings>(),)*]
            }
        }

        impl<S: $crate::choice::Settings + $Trait> $crate::choice::ImplementedBy<S> for dyn $Trait {
            fn part(settings: &S) -> &Self {
                settings
            }
        }
    };
}
