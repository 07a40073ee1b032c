//! The duty in the test's own hands: what is under way ends when the test says so. Whatever the test does, the hands watch
//! that what they are told can be done.

mod any_order;
mod odd_orders;
mod rounds;

use std::sync::Arc;

use bytes::Bytes;
use selvedge_data::{Dataset, Inputs, Targets};
use selvedge_models::{Coordinates, SubModel, Weights};
use selvedge_protocols::{
    Broadcast, Card, ClientName, Description, Memory, Parts, Rejection, Shape, Width,
    message::{Evaluation, Task, ToCoordinator},
    update::TrainingReport,
    wire::{BlobReference, Partial, WireError},
};

use super::{
    super::{
        assignment::{Assignment, kept_before},
        event::{Action, Event},
        outcome::{Outcome, PackedUpdate},
    },
    Duty,
};
use crate::{Examples, Front, kept::Kept};

const DESCRIPTION: &str = r#"
    rounds = 3
    clients = 1
    data = { source = "fashion-mnist-small" }
    model = { input = [4], layers = [{ kind = "dense", units = 5 }, { kind = "relu" }, { kind = "dense", units = 3 }] }
    training = { steps = 1, batch_size = 8, optimiser = { kind = "sgd", learning_rate = 0.3 } }
    split = { method = { kind = "parallel" }, cut = 2 }
"#;

/// What the coordinator may ask.
const TASKS: [Task; 3] = [Task::Train, Task::Calibrate, Task::Evaluate];
/// The most bytes that a broadcast may have, and how many it has.
const LARGEST: u64 = 100;
const BYTES: u64 = 80;

/// Does what the duty says.
struct Hands {
    duty: Duty,
    fronts: Fronts,
    /// Whether the model is cut, and whether the client has a front of its own.
    is_cut: bool,
    front_is_kept: bool,
    kept: Kept,
    /// What was proposed last.
    proposed: Option<(u32, Memory)>,
    /// The work that ended last, and the one whose update is held.
    done: Option<Work>,
    held: Option<Work>,
    /// What was asked on this connection.
    asked: Option<Assignment>,
    connection: u64,
    /// How often the coordinator has begun anew, and what became of the run since.
    beginning: u64,
    timeline: u8,
    pulls: Vec<Pull>,
    works: Vec<Work>,
}

struct Pull {
    number: u64,
    partial: Partial,
    connection: u64,
    is_stopped: bool,
}

struct Work {
    number: u64,
    assignment: Assignment,
    /// With which beginning of the coordinator it was begun.
    beginning: u64,
    is_stopped: bool,
}

/// How a pull ends.
#[derive(Clone, Copy, Debug)]
enum Pulled {
    Whole,
    Broken,
    NotHeld,
    Damaged,
}

/// How work ends. Of what is not made in steps, no connection is lost.
#[derive(Clone, Copy, Debug)]
enum Worked {
    Done,
    Failed,
    Panicked,
    Broken,
}

impl Hands {
    /// A client that is connected.
    fn connected() -> Self {
        let mut hands = Self::new(false);
        hands.connect();
        hands
    }

    /// A client whose model is cut, and that is connected.
    fn cut() -> Self {
        let mut hands = Self::new(true);
        hands.connect();
        hands
    }

    fn new(is_cut: bool) -> Self {
        Self {
            duty: Duty::new(LARGEST),
            fronts: Fronts::new(),
            is_cut,
            front_is_kept: false,
            kept: Kept::open(None, "run", &ClientName::numbered(0), &model(), None).unwrap(),
            proposed: None,
            done: None,
            held: None,
            asked: None,
            connection: 0,
            beginning: 0,
            timeline: 0,
            pulls: Vec::new(),
            works: Vec::new(),
        }
    }

    fn connect(&mut self) -> Vec<String> {
        self.asked = None;
        self.connection += 1;
        self.hear(Event::Connected { is_anew: false })
    }

    /// Connects to a coordinator that has begun anew. What it broadcasts is another from round 2 on in another timeline.
    fn connect_anew(&mut self, timeline: u8) -> Vec<String> {
        self.asked = None;
        self.connection += 1;
        self.beginning += 1;
        self.timeline = timeline;
        self.hear(Event::Connected { is_anew: true })
    }

    fn ask(&mut self, round: u32, task: Task) -> Vec<String> {
        self.ask_with(round, task, BYTES)
    }

    /// Asks with a broadcast of so many bytes.
    fn ask_with(&mut self, round: u32, task: Task, bytes: u64) -> Vec<String> {
        let mut card = Card::new(0, 0, Width::WHOLE, Vec::new());
        card.cut = self.fronts.card.cut.filter(|_| self.is_cut);
        let assignment = Assignment {
            round,
            task,
            card,
            sections: Vec::new(),
            blob: BlobReference {
                bytes,
                ..broadcast(round, task, self.timeline)
            },
            kept: self.kept.round_for(kept_before(round, task)),
        };
        self.asked = Some(assignment.clone());
        self.hear(Event::Asked {
            assignment,
            front_is_kept: self.front_is_kept,
        })
    }

    /// The first pull that is under way ends.
    fn pulled(&mut self, how: Pulled) -> Vec<String> {
        self.end_pull(0, how)
    }

    fn end_pull(&mut self, at: usize, how: Pulled) -> Vec<String> {
        let Pull { number, partial, .. } = self.pulls.remove(at);
        let (peer, blob) = ("coordinator".to_owned(), partial.reference());
        let result = match how {
            Pulled::Whole => Ok(Bytes::copy_from_slice(&blob.hash)),
            Pulled::Broken => Err(lost()),
            Pulled::NotHeld => Err(WireError::BlobNotHeld { peer, blob }),
            Pulled::Damaged => Err(WireError::BlobTooLong { peer, blob }),
        };
        self.hear(Event::Pulled {
            number,
            partial,
            result,
        })
    }

    /// The first work that is under way ends.
    fn worked(&mut self, how: Worked) -> Vec<String> {
        self.end_work(0, how)
    }

    fn end_work(&mut self, at: usize, how: Worked) -> Vec<String> {
        let work = self.works.remove(at);
        let (number, round, task) = (work.number, work.assignment.round, work.assignment.task);
        let is_of_steps = work.assignment.is_of_steps();
        self.done = Some(work);
        let update = PackedUpdate {
            report: TrainingReport::default(),
            sections: Vec::new(),
            bytes: Bytes::from_static(b"update"),
        };
        self.hear(match how {
            Worked::Broken if is_of_steps => Event::Broken {
                number,
                front: self.fronts.of(round),
                error: lost(),
            },
            Worked::Done | Worked::Broken => Event::Worked {
                number,
                result: Ok(match task {
                    Task::Train => {
                        let kept = Some(left(number as f32));
                        Outcome::Trained { update, kept }
                    }
                    Task::Calibrate => Outcome::Trained { update, kept: None },
                    Task::Evaluate => Outcome::Evaluated(Evaluation::default()),
                }),
            },
            Worked::Failed => Event::Worked {
                number,
                result: Err("no memory".into()),
            },
            Worked::Panicked => Event::Panicked { number },
        })
    }

    fn accepted(&mut self, round: u32) -> Vec<String> {
        let resumable = Vec::new();
        self.hear(Event::Accepted { round, resumable })
    }

    fn rejected(&mut self, round: u32, reason: Rejection) -> Vec<String> {
        self.hear(Event::Rejected { round, reason })
    }

    /// Tells the duty, does what it says, and says what that was.
    fn hear(&mut self, event: Event) -> Vec<String> {
        let actions = self.duty.handle(event);
        let speaks = |action: &Action| matches!(action, Action::Offer | Action::Say(_) | Action::HangUp(_));
        let spoken = actions.iter().position(speaks);
        assert!(
            spoken.is_none_or(|at| at + 1 == actions.len()),
            "what is said comes last, once"
        );
        actions.into_iter().map(|action| self.act(action)).collect()
    }

    fn act(&mut self, action: Action) -> String {
        match action {
            Action::Pull { number, partial } => {
                let asked = self.asked.as_ref().expect("nothing was asked on this connection");
                let (round, task) = (asked.round, asked.task);
                assert_eq!(partial.reference(), asked.blob, "another was asked");
                assert!(!self.pulls.iter().any(|pull| self.is_live(pull)), "two pulls");
                self.pulls.push(Pull {
                    number,
                    partial,
                    connection: self.connection,
                    is_stopped: false,
                });
                format!("pull {round} {task:?}")
            }
            Action::StopPulling => {
                let live = self.pulls.iter().position(|pull| self.is_live(pull));
                self.pulls[live.expect("nothing is pulled")].is_stopped = true;
                "stop pulling".into()
            }
            Action::Work {
                number,
                assignment,
                broadcast,
            } => {
                assert!(!assignment.is_of_steps());
                assert_eq!(broadcast, assignment.blob.hash[..], "another was broadcast");
                let said = format!("work {} {:?}", assignment.round, assignment.task);
                self.begin(number, assignment);
                said
            }
            Action::BeginSteps {
                number,
                assignment,
                broadcast,
            } => {
                assert!(assignment.is_of_steps());
                let is_its = broadcast == assignment.blob.hash[..] || broadcast.is_empty() && self.front_is_kept;
                assert!(is_its, "another was broadcast");
                let said = format!("begin steps {}", assignment.round);
                self.begin(number, assignment);
                said
            }
            Action::ResumeSteps { number, front } => {
                let asked = self.asked.clone().expect("nothing was asked");
                assert!(
                    asked.is_of_steps() && asked.round == front.round(),
                    "other steps were asked"
                );
                self.begin(number, asked);
                format!("resume steps {}", front.round())
            }
            Action::StopSteps => {
                let live = |work: &&mut Work| work.assignment.is_of_steps() && !work.is_stopped;
                let steps = self.works.iter_mut().find(live);
                steps.expect("no steps are made").is_stopped = true;
                "stop steps".into()
            }
            Action::Propose { round, kept } => {
                self.proposed = Some((round, kept.clone()));
                self.kept.propose(round, kept).unwrap();
                format!("propose {round}")
            }
            Action::Accept { round, resumable } => {
                let before = self.kept.memory_for(round + 1).clone();
                self.kept.accept(round, &resumable).unwrap();
                if *self.kept.memory_for(round + 1) != before {
                    let accepted = Some((round, self.kept.memory_for(round + 1).clone()));
                    assert_eq!(accepted, self.proposed.take(), "it was not proposed for this round");
                }
                format!("accept {round}")
            }
            Action::Hold { round, task, .. } => {
                let done = self.done.take().filter(|done| done.assignment.is(round, task));
                assert_eq!(self.held(), None, "two updates are held");
                self.held = Some(done.expect("nothing was done"));
                format!("hold {round} {task:?}")
            }
            Action::Offer => {
                let held = self.held.as_ref().expect("no update is held");
                let asked = self.asked.as_ref().expect("nothing was asked on this connection");
                match asked.is_of_steps() {
                    true => {
                        assert_eq!((held.assignment.round, held.assignment.task), (asked.round, asked.task));
                        assert_eq!(held.beginning, self.beginning, "the steps were another coordinator's");
                    }
                    false => assert_eq!(held.assignment, *asked, "it was not asked, or not of this"),
                }
                format!("offer {} {:?}", asked.round, asked.task)
            }
            Action::LetGo => {
                self.held.take().expect("no update is held");
                "let go".into()
            }
            Action::Say(ToCoordinator::Failed { round, task, .. }) => format!("say failed {round} {task:?}"),
            Action::Say(ToCoordinator::Evaluated { round, .. }) => {
                let asked = self.asked.as_ref();
                assert!(
                    asked.is_some_and(|asked| asked.is(round, Task::Evaluate)),
                    "it was not asked"
                );
                format!("say evaluated {round}")
            }
            Action::Say(other) => panic!("this is not a duty's to say: {other:?}"),
            Action::Tell(moment) => format!("tell {moment}"),
            Action::HangUp(_) => "hang up".into(),
        }
    }

    fn begin(&mut self, number: u64, assignment: Assignment) {
        assert_eq!(self.asked.as_ref(), Some(&assignment), "it was not asked");
        assert!(self.works.iter().all(|work| work.is_stopped), "two works");
        self.works.push(Work {
            number,
            assignment,
            beginning: self.beginning,
            is_stopped: false,
        });
    }

    /// Of what an update is held.
    fn held(&self) -> Option<(u32, Task)> {
        self.held
            .as_ref()
            .map(|held| (held.assignment.round, held.assignment.task))
    }

    /// Whether a pull is awaited.
    fn is_live(&self, pull: &Pull) -> bool {
        !pull.is_stopped && pull.connection == self.connection
    }
}

/// What is broadcast for a task of a round, in this timeline.
fn broadcast(round: u32, task: Task, timeline: u8) -> BlobReference {
    let mut hash = [0; 32];
    let timeline = if round == 1 { 0 } else { timeline };
    (hash[0], hash[1], hash[2]) = (round as u8, task as u8, timeline);
    BlobReference { hash, bytes: BYTES }
}

/// A model of one parameter.
fn model() -> SubModel {
    SubModel {
        units: vec![],
        parameters: Coordinates::all(1),
        buffers: Coordinates::all(0),
    }
}

/// What training left.
fn left(value: f32) -> Memory {
    let mut memory = Memory::new();
    let kept = memory.of_mut("algorithm");
    kept.insert("control", Shape::Parameters, vec![value]);
    memory
}

fn lost() -> WireError {
    WireError::Lost {
        peer: "coordinator".into(),
        detail: "the cable is cut".into(),
    }
}

/// Makes fronts.
struct Fronts {
    description: Arc<Description>,
    parts: Parts,
    card: Card,
    examples: Dataset,
}

impl Fronts {
    fn new() -> Self {
        let description = Arc::new(Description::parse(DESCRIPTION, "test", &[]).unwrap());
        let mut card = Card::new(0, 0, Width::WHOLE, Vec::new());
        card.cut = description.cuts().of(&ClientName::numbered(0));
        let targets = Targets::Classes {
            labels: vec![0],
            classes: 3,
        };
        Self {
            parts: description.parts().unwrap(),
            description,
            card,
            examples: Dataset::new(Inputs::Floats(vec![0.0; 4]), vec![4], targets).unwrap(),
        }
    }

    fn of(&self, round: u32) -> Box<Front> {
        let part = self.parts.part(&self.card).unwrap();
        let broadcast = Broadcast::bare(Weights::zeros(self.parts.layout()));
        let broadcast = part.extract(&Arc::new(broadcast));
        let examples = Examples {
            dataset: &self.examples,
            indices: &[0],
        };
        let (client, kept) = (ClientName::numbered(0), Default::default());
        let front = Front::new(&self.description, &part, &client, round, &broadcast, examples, &kept);
        Box::new(front.unwrap())
    }
}
