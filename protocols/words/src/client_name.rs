//! A client's name, which its certificate vouches for.

use std::{cmp::Ordering, fmt, sync::Arc};

use serde::{Deserialize, Serialize};

/// The name of a client: 1 to 63 lower-case letters, digits and hyphens, starting with a letter or digit.
///
/// Over the network it is the name in the client's certificate; in a simulation clients are `client-0`, `client-1`, ….
/// Names are ordered as people count: `client-2` comes before `client-10`. This order is the order in which a
/// federation's clients are listed, selected and aggregated, so it must be the same everywhere.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ClientName(Arc<str>);

/// A text that is no client name.
#[derive(Debug, thiserror::Error, PartialEq)]
#[error("{0:?} is not a client name: use 1 to 63 lower-case letters, digits and hyphens, not starting with a hyphen")]
pub struct InvalidName(String);

impl ClientName {
    /// Checks `name`.
    ///
    /// # Errors
    /// When it is not 1 to 63 lower-case letters, digits and hyphens, or starts with a hyphen.
    pub fn new(name: &str) -> Result<Self, InvalidName> {
        let allowed = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
        if name.is_empty() || name.len() > 63 || name.starts_with('-') || !name.bytes().all(allowed) {
            return Err(InvalidName(name.chars().take(80).collect()));
        }
        Ok(Self(name.into()))
    }

    /// The name of a simulation's client number `index`: `client-{index}`.
    pub fn numbered(index: usize) -> Self {
        Self(format!("client-{index}").into())
    }

    /// The number at the end of a name such as `client-7`, if that is what it is.
    pub fn number(&self) -> Option<usize> {
        let index = self.0.strip_prefix("client-")?.parse().ok()?;
        (Self::numbered(index) == *self).then_some(index)
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The text before the closing digits, and their number (`None` when there are none or too many).
    fn parts(&self) -> (&str, Option<u64>) {
        let stem = self.0.trim_end_matches(|c: char| c.is_ascii_digit());
        (stem, self.0[stem.len()..].parse().ok())
    }
}

impl Ord for ClientName {
    fn cmp(&self, other: &Self) -> Ordering {
        self.parts().cmp(&other.parts()).then_with(|| self.0.cmp(&other.0))
    }
}

impl PartialOrd for ClientName {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for ClientName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ClientName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for ClientName {
    type Error = InvalidName;
    fn try_from(name: String) -> Result<Self, InvalidName> {
        Self::new(&name)
    }
}

impl From<ClientName> for String {
    fn from(name: ClientName) -> Self {
        name.0.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_ordered_as_people_count() {
        let mut names: Vec<_> = ["client-10", "client-2", "ward-1", "client-02", "clinic"]
            .map(|name| ClientName::new(name).unwrap())
            .into();
        names.sort();
        let names: Vec<_> = names.iter().map(ClientName::as_str).collect();
        assert_eq!(names, ["client-02", "client-2", "client-10", "clinic", "ward-1"]);
    }

    #[test]
    fn a_numbered_name_gives_its_number_back() {
        assert_eq!(ClientName::numbered(12).number(), Some(12));
        assert_eq!(ClientName::new("client-012").unwrap().number(), None);
        assert_eq!(ClientName::new("clinic-12").unwrap().number(), None);
    }

    #[test]
    fn what_is_no_name_is_refused() {
        for name in ["", "-a", "A", "a b", "../x", &"a".repeat(64), "ä"] {
            assert!(ClientName::new(name).is_err(), "{name}");
        }
    }
}
