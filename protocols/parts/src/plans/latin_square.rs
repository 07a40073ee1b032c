//! Blocks dealt by the rows of a Latin square.

use std::collections::BTreeMap;

use selvedge_words::ClientName;

use super::partitioned::Partitioned;
use crate::plan::{Card, Dealer, Position, Seat};

/// In round t of pass e, client i trains block σ_e((i + t) mod S), for a permutation σ_e drawn for each pass: every
/// client trains every block once in a pass, and S clients that keep step cover all blocks in every round.
///
/// A client that failed trains the block that it owes before it goes on, so t is counted for each client by itself; a
/// pass is over when all have been through it. Clients are numbered as they first take part.
#[derive(Debug)]
pub(super) struct LatinSquare {
    blocks: u32,
    clients: BTreeMap<ClientName, Row>,
    /// Who was dealt how many blocks in this round.
    dealt: Vec<(ClientName, u64)>,
}

/// A client's way through the square.
#[derive(Clone, Copy, Debug)]
struct Row {
    number: u64,
    /// Blocks trained so far, over all passes.
    trained: u64,
}

impl LatinSquare {
    pub(super) fn new(blocks: u32) -> Self {
        Self {
            blocks,
            clients: BTreeMap::new(),
            dealt: Vec::new(),
        }
    }

    fn row(&mut self, client: &ClientName) -> Row {
        let number = self.clients.len() as u64;
        *self.clients.entry(client.clone()).or_insert(Row { number, trained: 0 })
    }
}

impl Dealer for LatinSquare {
    fn deal(&mut self, seed: u64, _: u32, cohort: &[Seat]) -> Vec<Card> {
        self.dealt.clear();
        let blocks = u64::from(self.blocks);
        let card = |seat: &Seat| {
            let Row { number, trained } = self.row(&seat.client);
            let (pass, t) = (1 + (trained / blocks) as u32, trained % blocks);
            let order = Partitioned::shuffled(self.blocks, seed, pass);
            let count = (Partitioned::at_once(self.blocks, seat.width) as u64).min(blocks - t);
            self.dealt.push((seat.client.clone(), count));
            let block = |t: u64| order[((number + t) % blocks) as usize];
            Card::new(seed, pass, seat.width, (t..t + count).map(block).collect())
        };
        cohort.iter().map(card).collect()
    }

    fn position(&self) -> Position {
        let row = |(client, row): (&ClientName, &Row)| (client.to_string(), vec![row.number, row.trained]);
        self.clients.iter().map(row).collect()
    }

    fn resume(&mut self, position: Position) {
        let row = |(client, row): (String, Vec<u64>)| match row[..] {
            [number, trained] => Some((ClientName::new(&client).ok()?, Row { number, trained })),
            _ => None,
        };
        self.clients = position.into_iter().filter_map(row).collect();
    }

    fn settle(&mut self, trained: &[bool]) {
        for ((client, count), trained) in self.dealt.drain(..).zip(trained) {
            if let (true, Some(row)) = (*trained, self.clients.get_mut(&client)) {
                row.trained += count;
            }
        }
    }
}
