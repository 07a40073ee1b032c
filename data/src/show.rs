//! What each client would hold, as a table.

use std::fmt;

use serde::Serialize;

use crate::{Dataset, Partition};

/// What the clients hold: sizes over all of them, and rows for the first of them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Holdings {
    /// The number of clients.
    pub clients: usize,
    /// The number of examples over all clients.
    pub examples: usize,
    /// Clients without any example.
    pub empty_clients: usize,
    /// Examples of the smallest client.
    pub fewest: usize,
    /// Examples of the median client (the lower one of two).
    pub median: usize,
    /// Examples of the largest client.
    pub most: usize,
    /// The first clients.
    pub shown: Vec<ClientHolding>,
}

/// What one client holds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ClientHolding {
    /// The client, counted from 0.
    pub client: usize,
    /// The name of its group, in a data set with groups of which each is a client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// The number of its examples.
    pub examples: usize,
    /// For each class how many of its examples are of it; empty where targets are not classes.
    pub labels: Vec<u64>,
}

/// Describes what each client would hold, with rows for the first `rows` of them.
///
/// # Panics
/// When `dataset` is not the one that was dealt.
pub fn describe(dataset: &Dataset, partition: &Partition, rows: usize) -> Holdings {
    let mut sizes: Vec<usize> = (0..partition.clients())
        .map(|client| partition.client(client).len())
        .collect();
    let shown = (0..partition.clients().min(rows)).map(|client| ClientHolding {
        client,
        group: group_of(dataset, partition.client(client)),
        examples: partition.client(client).len(),
        labels: partition.client_histogram(client, dataset).unwrap_or_default(),
    });
    let shown = shown.collect();
    sizes.sort_unstable();
    let at = |place: usize| sizes.get(place).copied().unwrap_or(0);
    Holdings {
        clients: sizes.len(),
        examples: partition.examples(),
        empty_clients: sizes.partition_point(|&size| size == 0),
        fewest: at(0),
        median: at(sizes.len().saturating_sub(1) / 2),
        most: at(sizes.len().saturating_sub(1)),
        shown,
    }
}

/// The group that all of a client's examples come from.
fn group_of(dataset: &Dataset, examples: &[u32]) -> Option<String> {
    let groups = dataset.groups()?;
    let mut of_client = examples.iter().map(|&example| groups.of_example[example as usize]);
    let group = of_client.next()?;
    of_client
        .all(|other| other == group)
        .then(|| groups.names[group as usize].clone())
}

/// The most classes that a table has columns for; of more, only the number of classes held is shown.
const MOST_COLUMNS: usize = 20;

impl fmt::Display for Holdings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            clients,
            examples,
            empty_clients,
            fewest,
            median,
            most,
            shown,
        } = self;
        writeln!(
            f,
            "{examples} examples, {clients} clients; a client holds {fewest} to {most}, median {median}"
        )?;
        if *empty_clients > 0 {
            writeln!(f, "{empty_clients} clients hold no example")?;
        }
        let classes = shown.first().map_or(0, |first| first.labels.len());
        let columns = if classes <= MOST_COLUMNS { classes } else { 0 };
        write!(f, "\n{:>8} {:>9}", "client", "examples")?;
        if columns < classes {
            write!(f, "  classes held")?;
        }
        for class in 0..columns {
            write!(f, " {class:>6}")?;
        }
        writeln!(f)?;
        for ClientHolding {
            client,
            group,
            examples,
            labels,
        } in shown
        {
            write!(f, "{client:>8} {examples:>9}")?;
            if columns < classes {
                write!(f, "  {:>12}", labels.iter().filter(|&&count| count > 0).count())?;
            }
            for count in &labels[..columns] {
                write!(f, " {count:>6}")?;
            }
            match group {
                Some(group) => writeln!(f, "  {group}")?,
                None => writeln!(f)?,
            }
        }
        if shown.len() < *clients {
            writeln!(f, "{:>8} {} more clients", "…", clients - shown.len())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::*;
    use crate::{Groups, Inputs, PartitionDescription, Targets};

    fn dataset(classes: usize) -> Dataset {
        let targets = Targets::Classes {
            labels: vec![1, 0, 1],
            classes,
        };
        Dataset::new(Inputs::Bytes(vec![0; 3]), vec![1], targets).unwrap()
    }

    fn holdings(dataset: &Dataset, kind: PartitionDescription, clients: usize, rows: usize) -> Holdings {
        describe(
            dataset,
            &kind.deal(dataset, clients, &mut ChaCha8Rng::seed_from_u64(1)).unwrap(),
            rows,
        )
    }

    #[test]
    fn a_natural_partition_is_shown_with_its_groups_and_labels() {
        let groups = Groups::from_names(&["ann", "ben", "ann"].map(String::from));
        let dataset = dataset(2).with_groups(groups).unwrap();
        let text = holdings(&dataset, PartitionDescription::Natural {}, 2, 10).to_string();
        let expected = "\
3 examples, 2 clients; a client holds 1 to 2, median 1

  client  examples      0      1
       0         2      0      2  ann
       1         1      1      0  ben
";
        assert_eq!(text, expected);
    }

    #[test]
    fn many_clients_and_many_classes_are_cut_short() {
        let shown = holdings(&dataset(500), PartitionDescription::Iid {}, 1_000, 2);
        assert_eq!((shown.empty_clients, shown.shown.len(), shown.most), (997, 2, 1));
        let text = shown.to_string();
        assert!(text.contains("997 clients hold no example"), "{text}");
        assert!(text.contains("  classes held\n"), "{text}");
        assert!(text.ends_with("… 998 more clients\n"), "{text}");
    }

    #[test]
    fn targets_that_are_not_classes_have_no_labels_to_show() {
        let targets = Targets::Values {
            values: vec![0.5],
            width: 1,
        };
        let dataset = Dataset::new(Inputs::Bytes(vec![0]), vec![1], targets).unwrap();
        let shown = holdings(&dataset, PartitionDescription::Iid {}, 1, 5);
        assert!(shown.shown[0].labels.is_empty());
        assert!(shown.to_string().ends_with("       0         1\n"));
    }
}
