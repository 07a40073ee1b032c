//! Clients that are let in and then lie, written with the wire alone.

use std::{collections::BTreeMap, future::pending};

use selvedge_coordinator::Outcome;
use selvedge_models::SubModel;
use selvedge_protocols::{
    Description, Rejection,
    message::{Task, ToClient, ToCoordinator},
    sections::{Section, SectionHeader, pack},
    update::{TrainingReport, expected_sections},
    wire::{BlobReference, BlobStore, Credentials, Held, Limits, connect, serve_streams},
};

use tokio::{join, sync::oneshot};

use crate::federation::{Federation, Run, all_finished};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Lie {
    NaN,
    Infinity,
    WrongShape,
    TooFewBytesAnnounced,
    TooFewBytes,
    TooManyBytes,
    NotHeld,
    ImpossibleReport,
    EarlierRound,
    Twice,
    BeforeTheFirstRound,
}

/// An update of zeros, but for the lie.
fn offer(lie: Lie, round: u32, description: &Description, store: &BlobStore) -> (ToCoordinator, Option<Held>) {
    let whole = SubModel::whole(&description.model.layout().unwrap());
    let expected = expected_sections(&whole, &*description.algorithm, &description.filters);
    let mut values = vec![0.0; whole.parameters.count()];
    match lie {
        Lie::NaN => values[5] = f32::NAN,
        Lie::Infinity => values[5] = f32::NEG_INFINITY,
        Lie::WrongShape => drop(values.pop()),
        _ => {}
    }
    let sections = [Section::new("parameters", values)];
    let headers: Vec<SectionHeader> = sections.iter().map(Section::header).collect();
    assert_eq!(headers == expected, lie != Lie::WrongShape);
    let mut bytes = pack(&sections);
    let whole = BlobReference::of(&bytes);
    match lie {
        Lie::TooFewBytes => drop(bytes.pop()),
        Lie::TooManyBytes => bytes.push(0),
        _ => {}
    }
    let held = store.hold(bytes.clone().into()).unwrap();
    let mut blob = held.reference();
    match lie {
        // The right size, for content that has another: the store sends what it has under this hash.
        Lie::TooFewBytes | Lie::TooManyBytes => blob.bytes = whole.bytes,
        Lie::TooFewBytesAnnounced => blob.bytes -= 1,
        Lie::NotHeld => blob.hash = [7; 32],
        Lie::BeforeTheFirstRound if round == 0 => blob.hash = [7; 32],
        _ => {}
    }
    let report = TrainingReport {
        examples: if lie == Lie::ImpossibleReport { 0 } else { 10 },
        steps: 1,
        loss: Some(0.5),
        ..TrainingReport::default()
    };
    let offer = ToCoordinator::Offer {
        round,
        task: Task::Train,
        report,
        sections: headers,
        blob,
    };
    (offer, Some(held))
}

/// Answers every task with a lie, and gives what the coordinator said to it.
async fn lie(
    address: String,
    credentials: Credentials,
    lie: Lie,
    is_in: oneshot::Sender<()>,
) -> Vec<(u32, Result<(), Rejection>)> {
    let (link, mut control) = connect(&address, &credentials, Limits::default()).await.unwrap();
    let software = "a liar".into();
    control
        .writer
        .write(&ToCoordinator::Join {
            software,
            resources: Default::default(),
            keeps_model: false,
        })
        .await
        .unwrap();
    let welcome = control.reader.read::<ToClient>().await.unwrap();
    let ToClient::Welcome { description, .. } = welcome else {
        panic!("{welcome:?}");
    };
    let description = Description::parse(&description, "test", &[]).unwrap();
    let store = BlobStore::new(1 << 20);
    let mut held = None;
    let mut answers = Vec::new();
    if lie == Lie::BeforeTheFirstRound {
        let (offer, _) = offer(lie, 0, &description, &store);
        control.writer.write(&offer).await.unwrap();
        let ToClient::Rejected { round, reason } = control.reader.read().await.unwrap() else {
            panic!("an offer for no round was not turned down");
        };
        answers.push((round, Err(reason)));
    }
    is_in.send(()).unwrap();
    let mut serving = None;
    loop {
        let message = control.reader.read::<ToClient>().await.unwrap();
        match message {
            ToClient::Task {
                round,
                task: Task::Train,
                ..
            } => {
                let (offer, blob) = offer(lie, round, &description, &store);
                held = blob.or(held);
                let mut said = vec![offer.clone()];
                match (lie, offer) {
                    (Lie::Twice, offer) => said.push(offer),
                    (
                        Lie::EarlierRound,
                        ToCoordinator::Offer {
                            round,
                            task,
                            report,
                            sections,
                            blob,
                        },
                    ) => said.insert(
                        0,
                        ToCoordinator::Offer {
                            round: round - 1,
                            task,
                            report,
                            sections,
                            blob,
                        },
                    ),
                    _ => {}
                }
                for message in said {
                    control.writer.write(&message).await.unwrap();
                }
                if lie == Lie::Twice {
                    // Nothing can be fetched before the second answer was turned down: it comes while the first is
                    // being received.
                    let reason = Rejection::Duplicate;
                    let expected = ToClient::Rejected { round, reason };
                    assert_eq!(control.reader.read::<ToClient>().await.unwrap(), expected);
                    answers.push((round, Err(Rejection::Duplicate)));
                }
                serving.get_or_insert_with(|| {
                    let (link, store) = (link.clone(), store.clone());
                    tokio::spawn(async move { serve_streams(&link, &store, None).await })
                });
            }
            ToClient::Accepted { round, .. } => answers.push((round, Ok(()))),
            ToClient::Rejected { round, reason } => answers.push((round, Err(reason))),
            ToClient::Finished { .. } => {
                link.close("done").await;
                return answers;
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Two honest clients and a liar: the run, and what the liar heard.
async fn run_with(lie_: Lie) -> (Run, Vec<(u32, Result<(), Rejection>)>) {
    let federation = Federation::new(&["rounds=2"]);
    let (listener, address) = federation.listen();
    let (is_in, liar_is_in) = oneshot::channel();
    let liar = tokio::spawn(lie(address.clone(), federation.credentials("client-1"), lie_, is_in));
    let honest = async {
        liar_is_in.await.unwrap();
        federation.agents(&address, [0, 2])
    };
    let (run, honest) = join!(federation.serve(listener, pending(), |_| {}), honest);
    all_finished(honest).await;
    assert_eq!(run.outcome, Outcome::Completed);
    assert_eq!(run.records.len(), 2);
    for record in &run.records {
        assert!(record.applied && record.test_accuracy.is_some(), "{record:?}");
    }
    (run, liar.await.unwrap())
}

async fn is_rejected(lie: Lie, code: &str) {
    let (run, answers) = run_with(lie).await;
    for record in &run.records {
        assert_eq!(record.completed, 2, "{record:?}");
        let expected = BTreeMap::from([(code.to_owned(), 1)]);
        assert_eq!(record.failed, expected, "{record:?}");
        assert_eq!(record.failures[0].client.as_str(), "client-1");
        assert!(record.stray.is_empty(), "{record:?}");
    }
    let rounds: Vec<_> = answers.iter().map(|(round, _)| *round).collect();
    assert_eq!(rounds, [1, 2]);
    for (_, answer) in answers {
        assert_eq!(answer.unwrap_err().code(), code);
    }
}

macro_rules! rejected {
    ($($name:ident: $lie:ident is $code:literal;)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            is_rejected(Lie::$lie, $code).await;
        }
    )*};
}

rejected! {
    not_a_number: NaN is "not-finite";
    infinity: Infinity is "not-finite";
    a_wrong_shape: WrongShape is "wrong-shape";
    too_few_bytes_announced: TooFewBytesAnnounced is "wrong-size";
    too_few_bytes: TooFewBytes is "wrong-size";
    too_many_bytes: TooManyBytes is "wrong-size";
    a_blob_that_is_not_there: NotHeld is "transfer-failed";
    an_impossible_report: ImpossibleReport is "impossible-report";
}

/// The counts of what was turned down beside the clients' own answers, which were all taken in.
async fn is_turned_down(lie: Lie, code: &str) {
    let (run, answers) = run_with(lie).await;
    for record in &run.records {
        assert_eq!(record.completed, 3, "{record:?}");
        assert!(record.failed.is_empty(), "{record:?}");
        assert_eq!(record.stray, BTreeMap::from([(code.to_owned(), 1)]));
    }
    let turned_down: Vec<_> = answers.iter().filter_map(|(_, answer)| answer.as_ref().err()).collect();
    assert_eq!(turned_down.len(), 2, "{answers:?}");
    assert!(turned_down.iter().all(|reason| reason.code() == code));
    assert_eq!(answers.len(), 4, "{answers:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_update_for_a_round_that_is_over() {
    is_turned_down(Lie::EarlierRound, "wrong-round").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_update_in_one_round() {
    is_turned_down(Lie::Twice, "duplicate").await;
}

/// What was offered while the coordinator still gathered must not be fetched in place of the first round's update.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_update_before_the_first_round() {
    let (run, answers) = run_with(Lie::BeforeTheFirstRound).await;
    for record in &run.records {
        assert_eq!(record.completed, 3, "{record:?}");
        assert!(record.failed.is_empty(), "{record:?}");
    }
    let codes: Vec<_> = answers
        .iter()
        .map(|(round, answer)| (*round, answer.as_ref().map_err(Rejection::code)))
        .collect();
    assert_eq!(codes, [(0, Err("wrong-round")), (1, Ok(&())), (2, Ok(&()))]);
}
