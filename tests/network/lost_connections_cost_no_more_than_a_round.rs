use std::{
    future::pending,
    time::{Duration, Instant},
};

use selvedge_client::{AgentError, Moment};
use selvedge_coordinator::{Outcome, Progress};
use selvedge_protocols::{
    message::{Task, ToClient, ToCoordinator},
    sections::{Section, pack},
    update::TrainingReport,
    wire::{BlobStore, Limits, Listener, connect, serve_streams},
};
use tokio::{sync::oneshot, task::spawn_blocking};

use crate::{
    federation::{Federation, all_finished, send},
    process::Process,
    relay::Relay,
};

/// Steps that take about so long on this machine.
fn steps_for(time: Duration) -> u32 {
    const TRIED: u32 = 2000;
    let trial = Federation::new(&["rounds=1", "clients=1", &steps(TRIED)]);
    let began = Instant::now();
    trial.simulate();
    let each = began.elapsed() / TRIED;
    (time.as_nanos() / each.as_nanos().max(1)) as u32
}

fn steps(steps: u32) -> String {
    format!("training={{ steps = {steps}, batch_size = 4, optimiser = {{ kind = \"sgd\", learning_rate = 0.01 }} }}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_killed_in_a_round_costs_its_update_and_can_come_back() {
    let long = steps(steps_for(Duration::from_secs(1)));
    let federation = Federation::new(&["rounds=100000", "network.idle_seconds=1.0", &long]);
    let (listener, address) = federation.listen();
    let mut agents = federation.agents(&address, 0..2);
    let mut victim = Process::client(&federation, &address, 2);
    let (all_are_back, stop) = oneshot::channel();
    let (lost_rounds, lost) = oneshot::channel();
    let (mut all_are_back, mut lost_rounds) = (Some(all_are_back), Some(lost_rounds));
    let mut without = 0;
    let play = async {
        spawn_blocking(move || {
            victim.until("round 1: training");
            victim.kill();
        })
        .await
        .unwrap();
        // The round it was killed in and another are through.
        lost.await.unwrap();
        Process::client(&federation, &address, 2)
    };
    let serving = federation.serve(listener, async { stop.await.unwrap() }, |progress| {
        let Progress::Record { record, .. } = progress else {
            return;
        };
        match record.completed {
            2 => without += 1,
            3 if without > 0 => {
                let _ = all_are_back.take().map(|tell| tell.send(()));
            }
            _ => {}
        }
        if without == 2 {
            let _ = lost_rounds.take().map(|tell| tell.send(()));
        }
    });
    let (_victim, run) = tokio::join!(play, serving);
    agents.iter_mut().for_each(|agent| agent.abort());
    assert_eq!(run.outcome, Outcome::Stopped);
    let first = &run.records[0];
    assert_eq!(
        (first.completed, first.selected, first.applied),
        (2, 3, true),
        "{first:?}"
    );
    assert_eq!(first.failed["disconnected"], 1);
    let second = &run.records[1];
    assert_eq!(
        (second.completed, second.selected, second.applied),
        (2, 2, true),
        "{second:?}"
    );
    let back = run.records.iter().skip(2).find(|record| record.completed == 3);
    assert!(back.unwrap().failed.is_empty(), "{back:?}");
}

/// Without what SCAFFOLD keeps on the client, the model would be another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_killed_and_started_anew_goes_on_with_what_its_algorithm_kept() {
    a_client_killed_and_started_anew_goes_on_with_what_it_kept("algorithm.kind=scaffold").await;
}

/// Without what was left unsent, it would be another too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_killed_and_started_anew_goes_on_with_what_its_filter_kept() {
    a_client_killed_and_started_anew_goes_on_with_what_it_kept("filters=[{ kind = 'top-k', share = 0.3 }]").await;
}

async fn a_client_killed_and_started_anew_goes_on_with_what_it_kept(set: &str) {
    let long = steps(steps_for(Duration::from_millis(300)));
    let federation = Federation::new(&["rounds=5", set, &long]);
    let (listener, address) = federation.listen();
    let agents = federation.agents(&address, 0..2);
    let mut victim = Process::client(&federation, &address, 2);
    let play = async {
        spawn_blocking(move || {
            victim.until("round 3: training");
            victim.kill();
        })
        .await
        .unwrap();
        Process::client(&federation, &address, 2)
    };
    let (run, anew) = tokio::join!(federation.serve(listener, pending(), |_| {}), play);
    let (ended, said) = anew.end();
    assert!(ended.success(), "{said}");
    all_finished(agents).await;
    assert_eq!(run.state, federation.simulate().state);
    // What is its own outlives the run.
    let kept = std::fs::read_dir(federation.path().join("selvedge-state")).unwrap();
    let names: Vec<_> = kept.map(|entry| entry.unwrap().file_name()).collect();
    let of_round_5 = |name: &std::ffi::OsString| name.to_string_lossy().ends_with(".5.kept");
    assert!(names.len() == 1 && names.iter().all(of_round_5), "{names:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_trains_longer_than_the_idle_limit_stays_connected() {
    let long = steps(steps_for(Duration::from_secs(4)));
    let federation = Federation::new(&["rounds=1", "clients=1", "network.idle_seconds=1.0", &long]);
    let (listener, address) = federation.listen();
    let agent = send(federation.agent(&address, 0));
    let run = federation.serve(listener, pending(), |_| {}).await;
    let (ended, moments) = agent.await.unwrap();
    ended.unwrap();
    let record = &run.records[0];
    assert!(
        record.seconds > 1.0,
        "the training was too short to show anything: {record:?}"
    );
    assert_eq!((record.completed, &run.notices), (1, &vec![]));
    let is_lost = |moment: &Moment| matches!(moment, Moment::Lost { .. });
    assert!(!moments.iter().any(is_lost), "{moments:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_whose_coordinator_is_killed_notices_and_gives_up_after_the_time_it_was_given() {
    let federation = Federation::new(&["network.idle_seconds=1.0"]);
    let (coordinator, address) = Process::coordinator(&federation, &[]);
    let mut agent = federation.agent(&address, 0);
    agent.give_up_after = Duration::from_secs(3);
    let (mut moments, mut coordinator) = (Vec::new(), Some(coordinator));
    let ended = agent
        .run(pending(), &mut |moment| {
            if let Moment::Joined { .. } = moment {
                coordinator.take().unwrap().kill();
            }
            moments.push(moment);
        })
        .await;
    let Some(Moment::Lost { error, .. }) = moments.get(1) else {
        panic!("{moments:?}");
    };
    assert!(
        error.contains("nothing was heard from it within the idle limit"),
        "{error}"
    );
    let error = ended.unwrap_err();
    assert!(matches!(error, AgentError::NoCoordinator { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_come_before_the_coordinator_wait_for_it() {
    let federation = Federation::new(&["rounds=1"]);
    let (listener, address) = federation.listen();
    drop(listener);
    let agents = federation.agents(&address, 0..3);
    let limits = Limits::from(&federation.description.network);
    let credentials = federation.credentials("coordinator");
    let listener = loop {
        // The first socket may not be closed yet.
        match Listener::bind(address.parse().unwrap(), &credentials, limits) {
            Ok(listener) => break listener,
            Err(_) => tokio::task::yield_now().await,
        }
    };
    let run = federation.serve(listener, pending(), |_| {}).await;
    all_finished(agents).await;
    assert_eq!(run.records[0].completed, 3);
}

/// A model of 16 MiB.
const LARGE: &str =
    "model={ input = [4], layers = [{ kind = \"dense\", units = 524288 }, { kind = \"dense\", units = 3 }] }";
const LARGE_BYTES: u64 = 16 << 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broadcast_that_is_cut_off_resumes_and_the_result_is_the_same() {
    let set = [
        "clients=1",
        "rounds=1",
        "training.epochs=1",
        "training.batch_size=120",
        "network.idle_seconds=1.0",
        LARGE,
    ];
    let federation = Federation::new(&set);
    let simulated = federation.simulate();
    let (listener, address) = federation.listen();
    let relay = Relay::start(&address).await;
    relay.allow(LARGE_BYTES / 4 * 3);
    let agent = federation.agent(relay.address(), 0);
    let taking_part = async {
        let ended = agent
            .run(pending(), &mut |moment| {
                if let Moment::Lost { .. } = moment {
                    relay.allow(u64::MAX);
                }
            })
            .await;
        ended.unwrap();
    };
    let (run, ()) = tokio::join!(federation.serve(listener, pending(), |_| {}), taking_part);
    assert_eq!(run.state, simulated.state);
    // What was sent again because it was lost on the way is counted too; begun anew it would be seven quarters.
    let carried = relay.carried_down();
    assert!(carried < LARGE_BYTES / 2 * 3, "{carried}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_update_that_is_cut_off_resumes_on_the_clients_next_connection() {
    let set = ["clients=1", "rounds=1", LARGE];
    let federation = Federation::new(&set);
    let (listener, address) = federation.listen();
    let layout = federation.description.model.layout().unwrap();
    let sections = [Section::new("parameters", vec![0.5; layout.parameter_count()])];
    let store = BlobStore::new(2 * LARGE_BYTES);
    let held = store.hold(pack(&sections).into()).unwrap();
    let client = async {
        let mut sent = Vec::new();
        for cut in [true, false] {
            let credentials = federation.credentials("client-0");
            let (link, mut control) = connect(&address, &credentials, Limits::default()).await.unwrap();
            let software = "cut off".into();
            control
                .writer
                .write(&ToCoordinator::Join {
                    software,
                    resources: Default::default(),
                    keeps_model: false,
                })
                .await
                .unwrap();
            let talk = async {
                loop {
                    match control.reader.read::<ToClient>().await.unwrap() {
                        ToClient::Task { round, .. } => {
                            let offer = ToCoordinator::Offer {
                                round,
                                task: Task::Train,
                                report: TrainingReport {
                                    examples: 1,
                                    steps: 1,
                                    loss: None,
                                    ..TrainingReport::default()
                                },
                                sections: sections.iter().map(Section::header).collect(),
                                blob: held.reference(),
                            };
                            control.writer.write(&offer).await.unwrap();
                        }
                        ToClient::Finished { .. } => return,
                        _ => {}
                    }
                }
            };
            let cut_off = async {
                while !cut || link.traffic().0 < LARGE_BYTES / 4 * 3 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            tokio::select! {
                () = talk => {}
                () = cut_off => {}
                error = serve_streams(&link, &store, None) => panic!("{error}"),
            }
            sent.push(link.traffic().0);
            link.close("cut").await;
        }
        sent
    };
    let (run, sent) = tokio::join!(federation.serve(listener, pending(), |_| {}), client);
    assert_eq!(run.records[0].completed, 1, "{:?}", run.records);
    assert!(sent[1] < LARGE_BYTES / 4 * 3, "{sent:?}");
}
