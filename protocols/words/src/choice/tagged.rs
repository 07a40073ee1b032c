//! A table that says by one of its keys what it is.

use std::{fmt, marker::PhantomData};

use serde::{
    Deserializer,
    de::{DeserializeSeed, Error, MapAccess, Visitor},
};
use toml::Table;

use super::{Choosable, kinds};

/// Reads a table that says by `tag` which `T` it is: its kind, one of those that are known, and its other keys. What is wrong
/// with the kind is said at that key.
///
/// # Errors
/// When it is no table, or has no kind that is known.
pub fn tagged<'de, T: Choosable + ?Sized, D: Deserializer<'de>>(
    from: D,
    tag: &'static str,
) -> Result<(String, Table), D::Error> {
    from.deserialize_map(Tagged::<T>(tag, PhantomData))
}

struct Tagged<T: ?Sized>(&'static str, PhantomData<T>);

impl<'de, T: Choosable + ?Sized> Visitor<'de> for Tagged<T> {
    type Value = (String, Table);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a table with the key `{}`, which says what {} it is",
            self.0,
            T::WHAT
        )
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (mut kind, mut keys) = (None, Table::new());
        while let Some(key) = map.next_key::<String>()? {
            match key == self.0 {
                true => kind = Some(map.next_value_seed(Known::<T>(PhantomData))?),
                false => drop(keys.insert(key, map.next_value()?)),
            }
        }
        Ok((kind.ok_or_else(|| A::Error::missing_field(self.0))?, keys))
    }
}

/// A kind that is known.
struct Known<T: ?Sized>(PhantomData<T>);

impl<'de, T: Choosable + ?Sized> DeserializeSeed<'de> for Known<T> {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<String, D::Error> {
        from.deserialize_identifier(self)
    }
}

impl<T: Choosable + ?Sized> Visitor<'_> for Known<T> {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a kind, which is text")
    }

    fn visit_str<E: Error>(self, kind: &str) -> Result<String, E> {
        let known = kinds::<T>();
        if known.contains(&kind) {
            return Ok(kind.to_owned());
        }
        let known: Vec<String> = known.iter().map(|kind| format!("`{kind}`")).collect();
        let known = known.join(", ");
        // In serde's words.
        Err(E::custom(format!("unknown variant `{kind}`, expected one of {known}")))
    }
}
