//! The steps of split learning, exchange by exchange: the engine and the clients' fronts, with whatever is said between them
//! in the test's own hands.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // What cannot go on must fail.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use rand::{Rng, SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use selvedge_client::{Examples, Front, Said};
use selvedge_coordinator::{Action, Engine, Event, Roster, RoundRecord, engine::Inspector};
use selvedge_data::{Dataset, TrainAndTest};
use selvedge_models::Weights;
use selvedge_protocols::{
    Card, ClientName, Description, Memory, Purpose, ServerState,
    message::Task,
    sections::{Section, packed_bytes},
    split::{Exchange, FromClient, FromServer},
    update::SealedUpdate,
};

const DESCRIPTION: &str = r#"
    rounds = 1
    clients = 4
    data = { source = "fashion-mnist-small" }
    evaluation = { every = 1 }
    split = { method = { kind = "parallel" }, cut = 2, step_seconds = 10.0 }
    [model]
    input = [1, 28, 28]
    layers = [
        { kind = "average-pool2d", kernel = 4 },
        { kind = "conv2d", channels = 2, kernel = 3 },
        { kind = "relu" },
        { kind = "flatten" },
        { kind = "dense", units = 8 },
        { kind = "relu" },
        { kind = "dense", units = 10 },
    ]
    [training]
    steps = 3
    batch_size = 4
    optimiser = { kind = "sgd", learning_rate = 0.1 }
"#;

/// What a client says, on its way.
#[derive(Clone)]
struct Letter {
    client: usize,
    message: FromClient,
    payload: Vec<u8>,
}

/// A round that is under way.
struct Round {
    engine: Engine,
    now: Duration,
    description: Arc<Description>,
    data: Dataset,
    shares: Vec<Vec<u32>>,
    fronts: BTreeMap<usize, Front>,
    /// What clients have said and the engine has not heard.
    up: VecDeque<Letter>,
    /// Everything that clients have said.
    said: Vec<Letter>,
    /// What each client was told in its steps.
    told: Vec<(usize, FromServer, Vec<u8>)>,
    /// The updates of those that have made their last step.
    offered: BTreeMap<usize, SealedUpdate>,
    receive: Vec<(ClientName, Arc<Inspector>)>,
    record: Option<RoundRecord>,
}

fn name(client: usize) -> ClientName {
    ClientName::numbered(client)
}

impl Round {
    fn open(set: &[&str]) -> Self {
        let set: Vec<_> = set.iter().map(|text| text.parse().unwrap()).collect();
        let description = Arc::new(Description::parse(DESCRIPTION, "test", &set).unwrap());
        let split: TrainAndTest = description.data.load("".as_ref()).unwrap();
        let dealt = description.deal(&split.train).unwrap();
        let parts = Arc::new(description.parts().unwrap());
        let mut random = description.seed.stream(Purpose::Initialisation);
        let initial = Weights::drawn(parts.layout(), &mut random);
        let roster = Roster::Joined(Default::default());
        let mut round = Self {
            engine: Engine::new(description.clone(), parts, initial, roster, 8),
            now: Duration::ZERO,
            shares: (0..description.clients)
                .map(|client| dealt.shares.client(client).to_vec())
                .collect(),
            description,
            data: split.train,
            fronts: BTreeMap::new(),
            up: VecDeque::new(),
            said: Vec::new(),
            told: Vec::new(),
            offered: BTreeMap::new(),
            receive: Vec::new(),
            record: None,
        };
        for client in 0..round.description.clients {
            let client = name(client);
            round.event(Event::Joined { client, width: None });
        }
        round
    }

    fn event(&mut self, event: Event) {
        for action in self.engine.handle(self.now, event) {
            match action {
                Action::Ask {
                    client,
                    round,
                    card,
                    model,
                    ..
                } => {
                    let part = model.part(Some(&card)).unwrap();
                    let broadcast = model.broadcast(&part);
                    let number = client.number().unwrap();
                    assert!(broadcast.weights.parameters.len() == part.coordinates.parameters.count());
                    let examples = Examples {
                        dataset: &self.data,
                        indices: &self.shares[number],
                    };
                    let kept = Memory::new();
                    let front =
                        Front::new(&self.description, &part, &client, round, &broadcast, examples, &kept).unwrap();
                    let said = front.enter();
                    self.fronts.insert(number, front);
                    self.say(number, said);
                }
                Action::Step {
                    client,
                    message,
                    payload,
                } => {
                    let number = client.number().unwrap();
                    self.told.push((number, message.clone(), payload.clone()));
                    let examples = Examples {
                        dataset: &self.data,
                        indices: &self.shares[number],
                    };
                    // One whose connection is lost hears nothing.
                    if let Some(front) = self.fronts.get_mut(&number) {
                        let said = front.hear(examples, message, &payload).unwrap();
                        self.say(number, said);
                    }
                }
                Action::Receive { client, inspector, .. } => self.receive.push((client, inspector)),
                Action::Record(record) => self.record = Some(*record),
                // Nobody takes the run up again.
                Action::Snapshot(_) => {}
                Action::Test { round, trial, .. } => {
                    self.event(Event::Tested {
                        round,
                        trial,
                        evaluation: Ok(None),
                    });
                }
                Action::Answer { .. } | Action::Finish(_) => {}
            }
        }
    }

    fn say(&mut self, client: usize, said: Said) {
        match said {
            Said::Message(message, payload) => {
                let letter = Letter {
                    client,
                    message,
                    payload,
                };
                self.said.push(letter.clone());
                self.up.push_back(letter);
            }
            Said::Nothing => {}
            Said::Finished => {
                let front = self.fronts.remove(&client).unwrap();
                match front.finish() {
                    Ok((update, _)) => drop(self.offered.insert(client, update)),
                    Err(error) => self.event(Event::Failed {
                        client: name(client),
                        round: 1,
                        task: Task::Train,
                        reason: error.to_string(),
                    }),
                }
            }
        }
    }

    fn deliver(&mut self, letter: Letter) {
        let Letter {
            client,
            message,
            payload,
        } = letter;
        self.event(Event::Stepped {
            client: name(client),
            message,
            payload,
        });
    }

    fn wait(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
        self.event(Event::Tick);
    }

    /// Delivers what is on its way in an order of the seed's, until nobody says anything more.
    fn deliver_all(&mut self, seed: u64) {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        while !self.up.is_empty() {
            let at = random.random_range(0..self.up.len());
            let letter = self.up.remove(at).unwrap();
            self.deliver(letter);
        }
    }

    /// Hands in the updates, in an order of the seed's, and ends the round.
    fn end(&mut self, seed: u64) -> (ServerState, RoundRecord) {
        let mut offered: Vec<_> = std::mem::take(&mut self.offered).into_iter().collect();
        offered.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
        let mut updates = BTreeMap::new();
        for (client, update) in offered {
            let sections: Vec<_> = update.sections.iter().map(Section::header).collect();
            let bytes = packed_bytes(&sections).unwrap();
            let report = update.report.clone();
            updates.insert(name(client), update);
            self.event(Event::Offered {
                client: name(client),
                round: 1,
                task: Task::Train,
                report,
                sections,
                bytes,
            });
            while let Some((client, inspector)) = self.receive.pop() {
                let update = inspector.open(updates.remove(&client).unwrap());
                self.event(Event::Received {
                    client,
                    round: 1,
                    task: Task::Train,
                    update,
                });
            }
        }
        let mut record = self.record.take().unwrap();
        record.seconds = 0.0;
        record.steps.as_mut().unwrap().seconds = None;
        (self.engine.state().clone(), record)
    }
}

type Alteration = Box<dyn Fn(&Letter) -> Letter>;

/// A letter with another payload.
fn altered(letter: &Letter, payload: Vec<u8>) -> Letter {
    Letter {
        payload,
        ..letter.clone()
    }
}

const METHODS: [&str; 6] = [
    "split={ method = { kind = 'parallel' }, cut = 2 }",
    "split={ method = { kind = 'parallel', last_layer_aggregation = 0.5 }, cut = 2, batches = 'global' }",
    "split={ method = { kind = 'splitfed-v1' }, cut = [{ after = 2, share = 0.5 }, { after = 4, share = 0.5 }] }",
    "split={ method = { kind = 'splitfed-v2' }, cut = 2, labels = 'u-shape' }",
    "split={ method = { kind = 'gapsl', refresh = 2, sketch = 4 }, cut = 2 }",
    "split={ method = { kind = 'gapsl', towards = { kind = 'regulariser' } }, cut = 2 }",
];

#[test]
fn whatever_the_order_in_which_clients_are_heard_the_bytes_are_the_same() {
    for method in METHODS {
        let set = match method.contains("global") {
            true => vec![
                method,
                "training={ epochs = 1, batch_size = 250, optimiser = { kind = 'sgd', learning_rate = 0.1 } }",
            ],
            false => vec![method],
        };
        let run = |seed| {
            let mut round = Round::open(&set);
            round.deliver_all(seed);
            let mut told = round.told.clone();
            told.sort_by_key(|(client, ..)| *client);
            (told, round.end(seed))
        };
        let (told, (state, record)) = run(0);
        assert!(record.steps.as_ref().unwrap().made >= 3, "{method}: {record:?}");
        assert!(record.steps.as_ref().unwrap().lost.is_empty(), "{method}: {record:?}");
        for seed in 1..8 {
            let (other_told, (other, other_record)) = run(seed);
            assert!(other_told == told, "{method}: told something else");
            assert!(other == state, "{method}");
            assert_eq!(other_record, record, "{method}");
        }
    }
}

/// A round in which all have entered, and the first letters of step 1 are on their way; client 1's is taken out.
fn in_step_1(set: &[&str]) -> (Round, Letter) {
    let mut round = Round::open(set);
    for _ in 0..4 {
        let letter = round.up.pop_front().unwrap();
        round.deliver(letter);
    }
    let at = round.up.iter().position(|letter| letter.client == 1).unwrap();
    let letter = round.up.remove(at).unwrap();
    (round, letter)
}

/// How the steps of a round end in which client 1 says this instead of its part of step 1.
fn with_bad_step(letter: impl Fn(&Letter) -> Letter) -> (RoundRecord, Vec<(usize, FromServer, Vec<u8>)>) {
    let (mut round, honest) = in_step_1(&[]);
    round.deliver(letter(&honest));
    round.deliver_all(1);
    let told = round.told.clone();
    (round.end(1).1, told)
}

fn lost(record: &RoundRecord) -> Vec<(&str, usize)> {
    let lost = &record.steps.as_ref().unwrap().lost;
    lost.iter().map(|(reason, count)| (reason.as_str(), *count)).collect()
}

#[test]
fn what_cannot_be_of_a_step_is_counted_and_the_step_goes_on_without_the_client() {
    let not_finite = |letter: &Letter| {
        let mut payload = letter.payload.clone();
        let end = payload.len();
        payload[end - 4..].copy_from_slice(&f32::NAN.to_le_bytes());
        altered(letter, payload)
    };
    let too_long = |letter: &Letter| altered(letter, [&letter.payload[..], &[0; 4]].concat());
    let too_short = |letter: &Letter| altered(letter, letter.payload[..letter.payload.len() - 4].to_vec());
    let no_class = |letter: &Letter| {
        let mut payload = letter.payload.clone();
        payload[..4].copy_from_slice(&10u32.to_le_bytes());
        altered(letter, payload)
    };
    let of_examples = |count: u32| {
        move |letter: &Letter| {
            let FromClient::Send {
                round, step, exchange, ..
            } = letter.message
            else {
                panic!("it was about to send");
            };
            Letter {
                message: FromClient::Send {
                    round,
                    step,
                    exchange,
                    examples: count,
                },
                ..letter.clone()
            }
        }
    };
    let cases: [(&str, Alteration); 7] = [
        ("not-finite", Box::new(not_finite)),
        ("wrong-size", Box::new(too_long)),
        ("wrong-size", Box::new(too_short)),
        ("not-finite", Box::new(no_class)),
        ("wrong-shape", Box::new(of_examples(0))),
        ("wrong-shape", Box::new(of_examples(u32::MAX))),
        ("wrong-size", Box::new(of_examples(3))),
    ];
    for (reason, letter) in cases {
        let (record, told) = with_bad_step(letter);
        assert_eq!(lost(&record), [(reason, 1)]);
        // Client 1 is told at which step it goes on, and does; nobody else loses anything.
        let skipped: Vec<_> = told
            .iter()
            .filter(|(_, message, _)| matches!(message, FromServer::Skipped { .. }))
            .collect();
        assert!(
            matches!(skipped[..], [(1, FromServer::Skipped { step: 2, .. }, _)]),
            "{skipped:?}"
        );
        assert_eq!(
            (record.completed, record.steps.as_ref().unwrap().made),
            (4, 3),
            "{reason}"
        );
    }
}

#[test]
fn what_belongs_to_no_step_that_is_under_way_is_counted_and_ignored() {
    let with = |letter: &dyn Fn(&Letter) -> Letter| {
        let (mut round, honest) = in_step_1(&[]);
        round.deliver(letter(&honest));
        round.up.push_back(honest);
        round.deliver_all(2);
        round.end(2).1
    };
    let of = |step: u32, exchange: Exchange, round: u32| {
        move |letter: &Letter| Letter {
            message: FromClient::Send {
                round,
                step,
                exchange,
                examples: 4,
            },
            ..letter.clone()
        }
    };
    let honest = with(&|letter| Letter {
        message: FromClient::Enter { round: 7, examples: 1 },
        ..letter.clone()
    });
    assert_eq!(lost(&honest), [("wrong-round", 1)]);
    for (reason, step, exchange, round) in [
        ("wrong-step", 0, Exchange::Smashed, 1),
        ("wrong-step", 9, Exchange::Smashed, 1),
        ("wrong-step", 1, Exchange::Head, 1),
        ("wrong-step", 1, Exchange::Gradient, 1),
        ("wrong-round", 1, Exchange::Smashed, 2),
    ] {
        let record = with(&of(step, exchange, round));
        assert_eq!(lost(&record), [(reason, 1)]);
        assert_eq!((record.completed, record.steps.as_ref().unwrap().made), (4, 3));
    }
    // A second copy of its part, while the step is under way and when it is over.
    let (mut round, letter) = in_step_1(&[]);
    round.deliver(letter.clone());
    round.deliver(letter.clone());
    round.deliver_all(3);
    round.deliver(letter);
    let record = round.end(3).1;
    assert_eq!(lost(&record), [("duplicate", 1), ("wrong-step", 1)]);
    assert_eq!((record.completed, record.steps.as_ref().unwrap().made), (4, 3));
    // One who has no part in the steps at all.
    let (mut round, letter) = in_step_1(&[]);
    round.deliver(Letter {
        client: 17,
        ..letter.clone()
    });
    round.up.push_back(letter);
    round.deliver_all(4);
    assert_eq!(lost(&round.end(4).1), [("not-selected", 1)]);
}

#[test]
fn a_client_that_is_late_costs_its_part_of_the_step() {
    let (mut round, letter) = in_step_1(&[]);
    while let Some(letter) = round.up.pop_front() {
        round.deliver(letter);
    }
    assert!(round.up.is_empty(), "all wait for client 1");
    round.wait(9);
    assert!(round.up.is_empty());
    round.wait(2);
    assert!(!round.up.is_empty(), "the others go on without it");
    // What it has to say comes when step 1 is over.
    round.deliver(letter);
    round.deliver_all(5);
    let record = round.end(5).1;
    assert_eq!(lost(&record), [("deadline", 1)]);
    assert_eq!((record.completed, record.steps.as_ref().unwrap().made), (4, 3));
}

#[test]
fn with_fewer_than_the_quorum_nothing_comes_of_a_step() {
    let (mut round, _) = in_step_1(&["split.step_quorum=1.0"]);
    while let Some(letter) = round.up.pop_front() {
        round.deliver(letter);
    }
    round.wait(11);
    round.deliver_all(6);
    let record = round.end(6).1;
    assert_eq!(lost(&record), [("deadline", 1), ("not-applied", 3)]);
    assert_eq!((record.completed, record.steps.as_ref().unwrap().made), (4, 2));
}

#[test]
fn a_client_that_is_lost_in_the_middle_of_a_step_costs_the_others_nothing_and_comes_back() {
    for method in [
        "split={ method = { kind = 'parallel' }, cut = 2 }",
        METHODS[3],
        METHODS[4],
        METHODS[5],
    ] {
        let (mut round, letter) = in_step_1(&[method, "training.steps=5"]);
        round.deliver(letter);
        let gone = round.fronts.remove(&1).unwrap();
        round.up.retain(|letter| letter.client != 1);
        round.event(Event::Left {
            client: name(1),
            for_good: false,
        });
        // It is there again before the others have gone far, with the front that it had.
        for _ in 0..4 {
            if let Some(letter) = round.up.pop_front() {
                round.deliver(letter);
            }
        }
        let enter = gone.enter();
        round.fronts.insert(1, gone);
        round.engine.handle(
            round.now,
            Event::Joined {
                client: name(1),
                width: None,
            },
        );
        round.say(1, enter);
        round.deliver_all(7);
        assert_eq!(
            round.offered.len(),
            4,
            "{method}: {:?}",
            round
                .told
                .iter()
                .rev()
                .take(8)
                .map(|(c, m, _)| (c, m))
                .collect::<Vec<_>>()
        );
        let record = round.end(7).1;
        let steps = record.steps.as_ref().unwrap();
        assert_eq!((record.completed, steps.made), (4, 5), "{method}: {steps:?}");
        assert!(steps.lost.values().sum::<usize>() <= 1, "{method}: {steps:?}");
    }
}

#[test]
fn one_that_never_comes_back_holds_nobody_up() {
    let (mut round, _) = in_step_1(&["network.idle_seconds=5.0"]);
    round.fronts.remove(&1);
    round.event(Event::Left {
        client: name(1),
        for_good: false,
    });
    round.deliver_all(8);
    round.wait(6);
    let record = round.end(8).1;
    assert_eq!((record.completed, record.steps.as_ref().unwrap().made), (3, 3));
    assert_eq!(record.failed.get("disconnected"), Some(&1));
}

#[test]
fn no_label_leaves_a_client_whose_model_has_the_shape_of_a_u_and_no_back_reaches_any() {
    let u_shape = "split={ method = { kind = 'splitfed-v2' }, cut = 2, labels = 'u-shape' }";
    let mut round = Round::open(&[u_shape]);
    round.deliver_all(9);
    let labels: Vec<u32> = {
        let mut labels = Vec::new();
        round.data.gather_classes(&round.shares[0], &mut labels).unwrap();
        labels
    };
    assert!(labels.len() > 4);
    // Smashed data have 2 x 5 x 5 values an example, the head's input 8: the payloads are those and nothing else.
    for Letter { message, payload, .. } in &round.said {
        match message {
            FromClient::Enter { .. } => assert!(payload.is_empty()),
            FromClient::Send {
                exchange: Exchange::Smashed,
                examples,
                ..
            } => {
                assert_eq!(payload.len(), *examples as usize * 2 * 5 * 5 * 4);
            }
            FromClient::Send {
                exchange: Exchange::Head,
                examples,
                ..
            } => {
                assert_eq!(payload.len(), *examples as usize * 8 * 4);
            }
            other => panic!("{other:?}"),
        }
    }
    // And with other labels, what is sent before any gradient has come back is the same.
    let smashed = |round: &Round| {
        let first = |letter: &&Letter| {
            matches!(
                letter.message,
                FromClient::Send {
                    step: 1,
                    exchange: Exchange::Smashed,
                    ..
                }
            )
        };
        round
            .said
            .iter()
            .filter(first)
            .map(|letter| letter.payload.clone())
            .collect::<Vec<_>>()
    };
    let sent = Round::open(&["split={ method = { kind = 'splitfed-v2' }, cut = 2 }"]);
    let mut sent = sent;
    sent.deliver_all(9);
    for (at_home, sent) in smashed(&round).iter().zip(smashed(&sent)) {
        assert_eq!(at_home[..], sent[4 * 4..]);
    }
    // What a client is sent of the model: its front and its head.
    let parts = round.description.parts().unwrap();
    let card = Card {
        seed: 0,
        version: 0,
        width: selvedge_protocols::Width::WHOLE,
        blocks: vec![],
        cut: round.description.cuts().of(&name(0)),
    };
    let part = parts.part(&card).unwrap();
    let layout = parts.layout();
    for entry in &layout.parameters {
        let is_of_client = entry.name.starts_with("1.") || entry.name.starts_with("6.");
        let places = part.coordinates.parameters.ranges();
        let is_sent = places
            .iter()
            .any(|range| range.start <= entry.offset && entry.range().end <= range.end);
        assert_eq!(is_sent, is_of_client, "{}", entry.name);
    }
    // And in its steps: rows of the head's input and of the cut, never as many values as the back has.
    let back: usize = layout
        .parameters
        .iter()
        .filter(|entry| entry.name.starts_with("4."))
        .map(|entry| entry.size())
        .sum();
    assert!(round.told.iter().all(|(_, _, payload)| payload.len() < 4 * back));
}

#[test]
fn where_clients_take_turns_one_that_is_lost_or_silent_costs_its_turn_and_one_that_comes_back_goes_on() {
    let sequential = "split={ method = { kind = 'sequential' }, cut = 2, step_seconds = 10.0 }";
    let set = [sequential, "network.idle_seconds=5.0", "cohort.deadline_seconds=1000.0"];
    let whole = {
        let mut round = Round::open(&set);
        end_turns(&mut round, &[]);
        round
    };
    let record = whole.record.as_ref().unwrap();
    assert_eq!((record.completed, record.steps.as_ref().unwrap().made), (4, 12));
    // Client 1 never says a word: its time passes, and the next one goes on with what client 0 has left.
    let mut round = Round::open(&set);
    round.up.retain(|letter| letter.client != 1);
    round.wait(11);
    end_turns(&mut round, &[1]);
    let record = round.record.as_ref().unwrap();
    assert_eq!(
        (record.completed, record.steps.as_ref().unwrap().made),
        (3, 9),
        "{record:?}"
    );
    assert_eq!(record.failed.get("deadline"), Some(&1), "{record:?}");
    // And the one after that with what that one has left, to the end.
    let handed_on = |client: usize| {
        let is_go = |told: &&(usize, FromServer, Vec<u8>)| told.0 == client && matches!(told.1, FromServer::Go { .. });
        round
            .told
            .iter()
            .find(is_go)
            .map(|(_, _, payload)| payload.clone())
            .unwrap()
    };
    let last: Vec<u8> = round.engine.state().weights.parameters[..20]
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    let fronts = [handed_on(2), handed_on(3), last];
    assert!(fronts.iter().all(|front| front.len() == 20 * 4));
    assert!(fronts[0] != fronts[1] && fronts[1] != fronts[2] && fronts[0] != fronts[2]);
    // Client 1 is lost in the middle of its turn, and back at once: it goes on with the front that it has.
    let mut round = Round::open(&set);
    let mut is_lost = false;
    while round.record.is_none() {
        let Some(letter) = round.up.pop_front() else {
            hand_in(&mut round);
            if round.up.is_empty() && round.record.is_none() {
                round.wait(11);
            }
            continue;
        };
        if letter.client == 1 && matches!(letter.message, FromClient::Send { step: 2, .. }) && !is_lost {
            is_lost = true;
            let client = name(1);
            round.event(Event::Left {
                client,
                for_good: false,
            });
            let front = round.fronts.remove(&1).unwrap();
            let enter = front.enter();
            round.engine.handle(
                round.now,
                Event::Joined {
                    client: name(1),
                    width: None,
                },
            );
            round.fronts.insert(1, front);
            round.say(1, enter);
            continue;
        }
        round.deliver(letter);
    }
    let record = round.record.as_ref().unwrap();
    let steps = record.steps.as_ref().unwrap();
    assert_eq!(record.completed, 4, "{record:?}");
    assert!(is_lost && steps.made >= 11, "{record:?}");
}

#[test]
fn where_clients_take_turns_a_front_on_its_way_is_waited_for_and_none_that_nobody_trained_counts() {
    let sequential = "split={ method = { kind = 'sequential' }, cut = 2, step_seconds = 10.0 }";
    // Client 0 has made its steps, and what it hands in takes longer than a turn may.
    let mut round = Round::open(&[sequential]);
    while let Some(letter) = round.up.pop_front() {
        round.deliver(letter);
    }
    let update = round.offered.remove(&0).unwrap();
    let sections: Vec<_> = update.sections.iter().map(Section::header).collect();
    let bytes = packed_bytes(&sections).unwrap();
    round.event(Event::Offered {
        client: name(0),
        round: 1,
        task: Task::Train,
        report: update.report.clone(),
        sections,
        bytes,
    });
    let (client, inspector) = round.receive.pop().unwrap();
    for _ in 0..5 {
        round.wait(11);
    }
    let update = inspector.open(update);
    round.event(Event::Received {
        client,
        round: 1,
        task: Task::Train,
        update,
    });
    end_turns(&mut round, &[]);
    assert_eq!(round.record.as_ref().unwrap().completed, 4, "{:?}", round.record);
    // All say what cannot be: they hand on what they were given, and the model stays as it was.
    let mut round = Round::open(&[sequential, "algorithm.kind=fedadam"]);
    let before = round.engine.state().clone();
    while round.record.is_none() {
        match round.up.pop_front() {
            Some(letter) if matches!(letter.message, FromClient::Send { .. }) => {
                let payload = [
                    &letter.payload[..16],
                    &1e20f32.to_le_bytes().repeat(letter.payload.len() / 4 - 4),
                ]
                .concat();
                round.deliver(altered(&letter, payload));
            }
            Some(letter) => round.deliver(letter),
            None if !round.offered.is_empty() => hand_in(&mut round),
            None => round.wait(11),
        }
    }
    let record = round.record.as_ref().unwrap();
    assert!(
        !record.applied && round.engine.state().weights == before.weights,
        "{record:?}"
    );
    assert!(
        record
            .note
            .as_ref()
            .is_some_and(|note| note.contains("no step was made")),
        "{record:?}"
    );
}

#[test]
fn global_batches_are_dealt_once_somebody_is_there() {
    let training = "training={ epochs = 1, batch_size = 250, optimiser = { kind = 'sgd', learning_rate = 0.1 } }";
    let mut round = Round::open(&[METHODS[1], training]);
    for _ in 0..3 {
        round.wait(31);
    }
    round.deliver_all(1);
    let record = round.end(1).1;
    let steps = record.steps.as_ref().unwrap();
    assert_eq!((record.completed, steps.made), (4, 10), "{record:?}");
}

/// Hands in the updates that are there.
fn hand_in(round: &mut Round) {
    let offered: Vec<_> = std::mem::take(&mut round.offered).into_iter().collect();
    for (client, update) in offered {
        let sections: Vec<_> = update.sections.iter().map(Section::header).collect();
        let bytes = packed_bytes(&sections).unwrap();
        let mut update = Some(update);
        round.event(Event::Offered {
            client: name(client),
            round: 1,
            task: Task::Train,
            report: update.as_ref().unwrap().report.clone(),
            sections,
            bytes,
        });
        while let Some((client, inspector)) = round.receive.pop() {
            let update = inspector.open(update.take().unwrap());
            round.event(Event::Received {
                client,
                round: 1,
                task: Task::Train,
                update,
            });
        }
    }
}

/// Goes on to the end of a round in which clients take turns, without these.
fn end_turns(round: &mut Round, without: &[usize]) {
    for _ in 0..10_000 {
        if round.record.is_some() {
            return;
        }
        match round.up.pop_front() {
            Some(letter) if without.contains(&letter.client) => {}
            Some(letter) => round.deliver(letter),
            None if !round.offered.is_empty() => hand_in(round),
            None => round.wait(11),
        }
    }
    panic!("the round does not end");
}

#[test]
fn a_client_slower_than_a_step_is_waited_for_once_and_not_in_every_step() {
    let (mut round, _) = in_step_1(&["training.steps=50"]);
    let slow = 1;
    while let Some(letter) = round.up.pop_front() {
        round.deliver(letter);
    }
    round.wait(11);
    // From now on all is there at once but what the slow one says, which never comes, however often it enters anew.
    let enter = round.fronts[&slow].enter();
    round.say(slow, enter);
    let enter = round.up.pop_back().unwrap();
    round.deliver(enter);
    while let Some(letter) = round.up.pop_front() {
        if letter.client != slow {
            round.deliver(letter);
        }
    }
    assert_eq!(
        round.offered.len(),
        3,
        "the others have made all steps without another wait"
    );
    assert_eq!(round.now, Duration::from_secs(11));
}

#[test]
fn a_slow_client_that_has_caught_up_takes_part_again() {
    let (mut round, letter) = in_step_1(&["training.steps=6"]);
    while let Some(letter) = round.up.pop_front() {
        round.deliver(letter);
    }
    round.wait(11);
    // What it has for step 1 comes too late; what it then has for a later step comes before the others' is complete.
    round.deliver(letter);
    round.deliver_all(3);
    let record = round.end(3).1;
    let steps = record.steps.as_ref().unwrap();
    assert_eq!((record.completed, steps.made), (4, 6));
    assert_eq!(steps.lost.get("deadline"), Some(&1), "{steps:?}");
    let answered = |client: usize| {
        let answers = round
            .told
            .iter()
            .filter(|(other, message, _)| *other == client && matches!(message, FromServer::Answer { .. }));
        answers.count()
    };
    assert!(answered(1) >= 3, "it has taken part in {} steps", answered(1));
    assert_eq!(answered(0), 6);
    let missed: Vec<_> = steps
        .missed
        .iter()
        .map(|(client, steps)| (client.clone(), *steps))
        .collect();
    assert_eq!(missed, [(name(1), 6 - answered(1) as u64)]);
}

#[test]
fn a_back_that_has_diverged_loses_steps_and_ends_the_round() {
    // After the first step, values are as large as can be, or are none.
    let set = ["training={ steps = 3, batch_size = 4, optimiser = { kind = 'sgd', learning_rate = 3e38 } }"];
    for method in &METHODS[2..5] {
        let mut round = Round::open(&[set[0], method]);
        let mut random = ChaCha8Rng::seed_from_u64(1);
        while !round.up.is_empty() {
            let at = random.random_range(0..round.up.len());
            let letter = round.up.remove(at).unwrap();
            round.deliver(letter);
        }
        hand_in(&mut round);
        let record = round.record.as_ref().unwrap();
        assert!(round.engine.state().is_finite(), "{method}: {record:?}");
        let lost = lost(record);
        assert!(
            !lost.is_empty()
                && lost
                    .iter()
                    .all(|(reason, _)| ["not-finite", "too-large"].contains(reason)),
            "{method}: {record:?}"
        );
    }
}

#[test]
fn a_client_whose_values_are_beyond_all_bounds_spoils_nothing_for_the_others() {
    let huge = |letter: &Letter| {
        let mut payload = letter.payload.clone();
        let (classes, _) = (4 * 4, ());
        payload[classes..]
            .chunks_exact_mut(4)
            .for_each(|value| value.copy_from_slice(&3e38f32.to_le_bytes()));
        altered(letter, payload)
    };
    let (record, told) = with_bad_step(huge);
    assert_eq!(lost(&record), [("too-large", 1)]);
    assert_eq!((record.completed, record.steps.as_ref().unwrap().made), (4, 3));
    let finite = |payload: &[u8]| {
        let mut values = payload.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes));
        values.all(|value| value.is_finite())
    };
    assert!(told.iter().all(|(_, _, payload)| finite(payload)));
}

#[test]
fn the_regulariser_follows_the_derivative_of_the_cosine() {
    // A step of learning rate 1 with and without the regulariser: their difference is its gradient. It is compared with
    // that of a cosine that is differentiated by much smaller and by larger differences.
    let front = |distance: f64| {
        let method = format!(
            "split={{ method = {{ kind = 'gapsl', lambda = 0.5, towards = {{ kind = 'regulariser', distance = {distance} }} }}, cut = 4 }}"
        );
        let model = "model={ input = [1, 28, 28], layers = [{ kind = 'average-pool2d', kernel = 7 }, { kind = 'flatten' }, \
                     { kind = 'dense', units = 4 }, { kind = 'tanh' }, { kind = 'dense', units = 6 }, { kind = 'tanh' }, \
                     { kind = 'dense', units = 10 }] }";
        let training = "training={ steps = 2, batch_size = 4, optimiser = { kind = 'sgd', learning_rate = 0.5 } }";
        let mut round = Round::open(&[model, &method, training]);
        round.deliver_all(1);
        let Some(Section {
            values: selvedge_protocols::sections::Values::F32(values),
            ..
        }) = round.offered[&0].sections.first().cloned()
        else {
            panic!("a front was to be sent");
        };
        values
    };
    let (near, nearer) = (front(0.02), front(0.01));
    let difference = |one: &[f32], other: &[f32]| -> f64 {
        one.iter()
            .zip(other)
            .map(|(a, b)| f64::from(a - b).powi(2))
            .sum::<f64>()
            .sqrt()
    };
    // If the back had moved between the two gradients, their quotient by the distance would double with each halving.
    assert!(difference(&near, &nearer) < 0.02, "{}", difference(&near, &nearer));
}

#[test]
fn when_all_are_late_they_go_on_where_they_are_and_say_nothing_twice() {
    for method in METHODS.into_iter().filter(|method| !method.contains("global")) {
        let mut round = Round::open(&[method, "training.steps=5"]);
        round.deliver_all_but_late();
        let said = round.said.len();
        assert!(said < 300, "{method}: {said} messages");
        assert_eq!(round.offered.len(), 4, "{method}");
        let record = round.end(1).1;
        assert_eq!(record.completed, 4, "{method}: {record:?}");
    }
    let sequential = "split={ method = { kind = 'sequential' }, cut = 2, step_seconds = 10.0 }";
    let mut round = Round::open(&[sequential, "training.steps=5"]);
    for _ in 0..200 {
        if round.record.is_some() {
            break;
        }
        round.deliver_all_but_late();
        hand_in(&mut round);
        round.wait(11);
    }
    assert!(round.said.len() < 300 && round.record.is_some());
}

impl Round {
    /// Delivers what is on its way, but each third letter only when the time of its step is over.
    fn deliver_all_but_late(&mut self) {
        let mut count = 0;
        while let Some(letter) = self.up.pop_front() {
            count += 1;
            assert!(count < 2000, "they go on for ever");
            if count % 3 == 0 {
                self.wait(11);
            }
            self.deliver(letter);
        }
    }
}
