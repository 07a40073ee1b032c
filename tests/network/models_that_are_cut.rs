use std::future::pending;

use bytes::Bytes;
use selvedge_coordinator::Outcome;
use selvedge_protocols::{
    Rejection,
    message::{ToClient, ToCoordinator},
    split::{Exchange, FromClient, FromServer},
    wire::{BlobStore, Limits, Steps, WireError, connect, open_steps, serve_streams},
};
use tokio::{join, task::spawn_blocking};

use crate::{
    federation::{Federation, all_finished},
    process::Process,
};

fn training(steps: u32) -> String {
    format!("training={{ steps = {steps}, batch_size = 4, optimiser = {{ kind = \"sgd\", learning_rate = 0.01 }} }}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_killed_in_the_middle_of_its_steps_costs_the_others_nothing_and_comes_back() {
    const STEPS: u32 = 400;
    for method in [
        "{ kind = 'parallel' }",
        "{ kind = 'gapsl', refresh = 2, sketch = 8 }",
        "{ kind = 'splitfed-v1' }",
    ] {
        let split = format!("split={{ method = {method}, cut = 1, step_seconds = 60.0 }}");
        let federation = Federation::new(&["rounds=4", &split, &training(STEPS)]);
        let (listener, address) = federation.listen();
        let agents = federation.agents(&address, 0..2);
        let mut victim = Process::client(&federation, &address, 2);
        let play = async {
            spawn_blocking(move || {
                victim.until("round 2: training");
                victim.kill();
            })
            .await
            .unwrap();
            Process::client(&federation, &address, 2)
        };
        let (run, anew) = join!(federation.serve(listener, pending(), |_| {}), play);
        let (ended, said) = anew.end();
        assert!(ended.success(), "{said}");
        all_finished(agents).await;
        assert_eq!(run.outcome, Outcome::Completed);
        for record in &run.records {
            let steps = record.steps.as_ref().unwrap();
            assert_eq!(steps.made, u64::from(STEPS), "{method}: {record:?}");
            // It was awaited once when it was killed, if it was at all, and for nothing that came after.
            let lost: usize = steps.lost.values().sum();
            assert!(lost <= usize::from(record.round == 2), "{method}: {record:?}");
            assert!(record.completed >= 2 && record.applied, "{method}: {record:?}");
        }
        let last = run.records.last().unwrap();
        assert_eq!((last.completed, &last.failed), (3, &Default::default()), "{method}");
        assert!(
            last.stitched.len() == 3 || method.contains("splitfed"),
            "{method}: {last:?}"
        );
    }
}

/// What a client that lies does in its steps.
#[derive(Clone, Copy, Debug)]
enum Lie {
    /// A payload larger than any of the run's.
    TooLarge,
    /// A message that is none.
    NoMessage,
    /// It opens its stream, and says nothing.
    Silent,
    /// Not a word about the steps, not even a stream.
    Absent,
    /// NaN in every step.
    NaN,
}

/// Joins as client-2, and lies in the steps of every round until the run is over.
async fn lie(federation: &Federation, address: &str, lie: Lie) {
    let limits = Limits::from(&federation.description.network);
    let (link, mut control) = connect(address, &federation.credentials("client-2"), limits)
        .await
        .unwrap();
    let store = BlobStore::new(u64::MAX);
    let join = ToCoordinator::Join {
        software: "test".into(),
        resources: Default::default(),
        keeps_model: false,
    };
    control.writer.write(&join).await.unwrap();
    let told = async {
        let mut streams = Vec::new();
        loop {
            match control.reader.read().await {
                Ok(ToClient::Task { round, .. }) => {
                    if let Lie::Absent = lie {
                        continue;
                    }
                    let Steps { reader, mut writer } = open_steps(&link).await.unwrap();
                    let enter = FromClient::Enter { round, examples: 40 };
                    let send = |step| FromClient::Send {
                        round,
                        step,
                        exchange: Exchange::Smashed,
                        examples: 4,
                    };
                    let nan = || Bytes::from([&[0; 16][..], &f32::NAN.to_le_bytes().repeat(4 * 8)].concat());
                    match lie {
                        Lie::TooLarge => {
                            writer.write(&enter, Bytes::new()).await.unwrap();
                            let large = Bytes::from(vec![0; federation.description.largest_step() as usize + 1]);
                            let _ = writer.write(&send(1), large).await;
                        }
                        Lie::NoMessage => {
                            writer.write(&enter, Bytes::new()).await.unwrap();
                            let _ = writer.write("no message", Bytes::new()).await;
                        }
                        Lie::NaN => {
                            writer.write(&enter, Bytes::new()).await.unwrap();
                            for step in 1..=5 {
                                let _ = writer.write(&send(step), nan()).await;
                            }
                        }
                        Lie::Silent | Lie::Absent => {}
                    }
                    streams.push((reader, writer));
                }
                Ok(ToClient::Finished { .. }) | Err(_) => return,
                Ok(_) => {}
            }
        }
    };
    tokio::select! {
        () = told => {}
        _ = serve_streams(&link, &store, None) => {}
    }
    link.close("").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_lies_in_its_steps_costs_the_others_nothing() {
    for lying in [Lie::TooLarge, Lie::NoMessage, Lie::NaN, Lie::Silent, Lie::Absent] {
        let split = "split={ method = { kind = 'parallel' }, cut = 2, step_seconds = 0.3 }";
        let federation = Federation::new(&["rounds=2", "cohort.deadline_seconds=1.5", split, &training(5)]);
        let (listener, address) = federation.listen();
        let agents = federation.agents(&address, 0..2);
        let (run, ()) = join!(
            federation.serve(listener, pending(), |_| {}),
            lie(&federation, &address, lying)
        );
        all_finished(agents).await;
        assert_eq!(run.outcome, Outcome::Completed);
        for record in &run.records {
            let steps = record.steps.as_ref().unwrap();
            assert_eq!((record.completed, steps.made), (2, 5), "{lying:?}: {record:?}");
            let counted = match lying {
                Lie::TooLarge => "wrong-size",
                Lie::NoMessage => "wrong-shape",
                Lie::NaN => "not-finite",
                Lie::Silent | Lie::Absent => continue,
            };
            assert!(steps.lost.contains_key(counted), "{lying:?}: {record:?}");
        }
        let expected = Rejection::Deadline.code();
        assert!(
            run.records.iter().all(|record| record.failed.contains_key(expected)),
            "{lying:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_without_steps_takes_none() {
    let federation = Federation::new(&["clients=1", "rounds=1", "cohort.deadline_seconds=1.0"]);
    let (listener, address) = federation.listen();
    let peer = async {
        let limits = Limits::from(&federation.description.network);
        let (link, mut control) = connect(&address, &federation.credentials("client-0"), limits)
            .await
            .unwrap();
        let join = ToCoordinator::Join {
            software: "test".into(),
            resources: Default::default(),
            keeps_model: false,
        };
        control.writer.write(&join).await.unwrap();
        let mut steps = open_steps(&link).await.unwrap();
        let refused = steps.reader.read::<FromServer>(|_| 0).await;
        assert!(matches!(refused, Err(WireError::StepsRefused { .. })), "{refused:?}");
        while control.reader.read::<ToClient>().await.is_ok() {}
    };
    let (run, ()) = join!(federation.serve(listener, pending(), |_| {}), peer);
    assert_eq!(run.records[0].completed, 0);
}
