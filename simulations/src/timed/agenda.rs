//! What is due when, in virtual time.

use std::{collections::BTreeMap, time::Duration};

use selvedge_coordinator::Trial;
use selvedge_protocols::ClientName;

/// Something that happens at a virtual time.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Due {
    /// The coordinator has evaluated something.
    Tested(u32, Trial),
    /// A client says that it has an update ready.
    Offer,
    /// What a client has to send is there.
    Delivery,
    /// A client goes, after so many times that it was there.
    Leaving { cycle: u32 },
    /// A client is there again, after so many times that it was away.
    Return { cycle: u32 },
    /// A client leaves for good.
    End,
}

/// When something is due: the time, whose it is (first what is nobody's), and a number that tells it from others.
pub(super) type Entry = (Duration, Option<ClientName>, u64);

/// What is due, in the order of the times, of equal ones of the clients' names.
#[derive(Default)]
pub(super) struct Agenda {
    entries: BTreeMap<Entry, Due>,
    numbers: u64,
}

impl Agenda {
    /// Adds what is due at a time.
    pub(super) fn add(&mut self, at: Duration, client: Option<&ClientName>, due: Due) -> Entry {
        self.numbers += 1;
        let entry = (at, client.cloned(), self.numbers);
        self.entries.insert(entry.clone(), due);
        entry
    }

    pub(super) fn cancel(&mut self, entry: &Entry) {
        self.entries.remove(entry);
    }

    /// What is due first.
    pub(super) fn first(&self) -> Option<(&Entry, &Due)> {
        self.entries.first_key_value()
    }

    pub(super) fn take_first(&mut self) -> Option<(Entry, Due)> {
        self.entries.pop_first()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_come_first_then_names_then_the_order_in_which_things_were_added() {
        let mut agenda = Agenda::default();
        let (early, late) = (Duration::from_secs(1), Duration::from_secs(2));
        let names = [2, 10].map(ClientName::numbered);
        agenda.add(late, Some(&names[1]), Due::Offer);
        agenda.add(late, Some(&names[0]), Due::Offer);
        agenda.add(late, Some(&names[0]), Due::Delivery);
        agenda.add(early, Some(&names[1]), Due::Delivery);
        agenda.add(late, None, Due::End);
        let cancelled = agenda.add(Duration::ZERO, None, Due::End);
        agenda.cancel(&cancelled);
        let order: Vec<_> = std::iter::from_fn(|| agenda.take_first())
            .map(|((at, client, _), due)| (at.as_secs(), client.and_then(|client| client.number()), due))
            .collect();
        assert_eq!(
            order,
            [
                (1, Some(10), Due::Delivery),
                (2, None, Due::End),
                (2, Some(2), Due::Offer),
                (2, Some(2), Due::Delivery),
                (2, Some(10), Due::Offer),
            ]
        );
    }
}
