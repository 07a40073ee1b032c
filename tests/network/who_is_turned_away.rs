use std::future::pending;

use selvedge_client::{AgentError, Ending, Moment};
use selvedge_coordinator::Progress;
use selvedge_protocols::{
    CannotTrain, Requirements, Resources, Width,
    message::{ToClient, ToCoordinator},
    wire::{Limits, WireError, connect},
};
use tokio::sync::oneshot;

use crate::federation::{Federation, all_finished, send};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_authoritys_client_gives_up_and_the_run_goes_on() {
    let federation = Federation::new(&[]);
    let stranger = Federation::new(&[]);
    let (listener, address) = federation.listen();
    let refused = send(stranger.agent(&address, 0));
    let (tell, told) = oneshot::channel();
    let gate = async {
        let (ended, _) = refused.await.unwrap();
        let agents = federation.agents(&address, 0..3);
        tell.send(()).unwrap();
        (ended, agents)
    };
    let serving = async {
        let run = federation.serve(listener, pending(), |_| {}).await;
        told.await.unwrap();
        run
    };
    let ((ended, agents), run) = tokio::join!(gate, serving);
    let error = ended.unwrap_err();
    assert!(
        matches!(
            &error,
            AgentError::Wire(WireError::PeerCertificate { .. } | WireError::OwnCertificate { .. })
        ),
        "{error}"
    );
    all_finished(agents).await;
    assert!(run.notices[0].contains("was turned away"), "{:?}", run.notices);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_does_not_begin_by_joining_or_says_nonsense_later_is_cut_off_alone() {
    let federation = Federation::new(&[]);
    let (listener, address) = federation.listen();
    let misbehave = async {
        let credentials = federation.credentials("client-1");
        let (link, mut control) = connect(&address, &credentials, Limits::default()).await.unwrap();
        control.writer.write(&ToCoordinator::Leave).await.unwrap();
        let first = link.closed().await.to_string();
        let (link, mut control) = connect(&address, &credentials, Limits::default()).await.unwrap();
        let join = ToCoordinator::Join {
            software: "nonsense".into(),
            resources: Default::default(),
            keeps_model: false,
        };
        control.writer.write(&join).await.unwrap();
        assert!(matches!(control.reader.read().await.unwrap(), ToClient::Welcome { .. }));
        control.writer.write(&vec![u64::MAX; 4]).await.unwrap();
        let second = link.closed().await.to_string();
        (first, second, federation.agents(&address, 0..3))
    };
    let serving = federation.serve(listener, pending(), |_| {});
    let ((first, second, agents), run) = tokio::join!(misbehave, serving);
    assert!(first.contains("its first message was not that it joins"), "{first}");
    assert!(second.contains("cannot be read"), "{second}");
    all_finished(agents).await;
    assert!(run.records.iter().all(|record| record.completed == 3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_connection_under_one_name_takes_the_place_of_the_first() {
    let federation = Federation::new(&[]);
    let (listener, address) = federation.listen();
    let first = send(federation.agent(&address, 1));
    let (seen, waiting) = oneshot::channel();
    let mut seen = Some(seen);
    let rest = async {
        waiting.await.unwrap();
        let second = send(federation.agent(&address, 1));
        let (ended, _) = first.await.unwrap();
        let mut agents = federation.agents(&address, [0, 2]);
        agents.push(second);
        (ended, agents)
    };
    let serving = federation.serve(listener, pending(), |progress| {
        if let Progress::Waiting { clients: 1, .. } = progress
            && let Some(seen) = seen.take()
        {
            seen.send(()).unwrap();
        }
    });
    let ((ended, agents), run) = tokio::join!(rest, serving);
    let error = ended.unwrap_err();
    assert!(
        matches!(&error, AgentError::TurnedAway(reason) if reason.contains("client-1")),
        "{error}"
    );
    all_finished(agents).await;
    assert!(
        run.records.iter().all(|record| record.completed == 3),
        "{:?}",
        run.records
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_is_stopped_says_that_it_leaves() {
    let federation = Federation::new(&["network.start_with=2", "rounds=1"]);
    let (listener, address) = federation.listen();
    let leaver = federation.agent(&address, 0);
    let leave = async {
        let (joined, leave) = oneshot::channel();
        let mut joined = Some(joined);
        let stop = async { leave.await.unwrap() };
        let ended = leaver
            .run(stop, &mut |moment| {
                if let (Moment::Joined { .. }, Some(joined)) = (moment, joined.take()) {
                    joined.send(()).unwrap();
                }
            })
            .await;
        assert_eq!(ended.unwrap(), Ending::Stopped);
        federation.agents(&address, [1, 2])
    };
    let serving = federation.serve(listener, pending(), |_| {});
    let (agents, run) = tokio::join!(leave, serving);
    all_finished(agents).await;
    assert_eq!(run.notices, ["client-0 has left"]);
    assert_eq!(run.records[0].selected, 2);
}

/// Two clients report enough memory, for one width each, and a third too little for any.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_has_too_little_memory_for_the_smallest_sub_model_is_told_so_and_the_others_get_what_fits() {
    let federation = Federation::new(&[
        "sub_models.plan.kind=static",
        "sub_models.capacities=[{ width = 1.0 }, { width = 0.5 }]",
        "network.start_with=2",
    ]);
    let parts = federation.description.parts().unwrap();
    let requirements = Requirements::of(&parts, &federation.description).unwrap();
    let width = |memory| {
        let resources = Resources {
            memory: Some(memory),
            ..Resources::default()
        };
        requirements.largest_width(&resources)
    };
    // Of 4 -> 8 -> 3 and of 4 -> 4 -> 3 the second has 35 parameters; 6 values of each, 8 examples of 4 + 4 + 4 + 3 values.
    let (small, enough) = (4 * (6 * 35 + 8 * 15), 1 << 20);
    assert_eq!(width(small), Ok(Width(0.5)));
    let (width_of_smallest, given) = (Width(0.5), small - 1);
    let refused = CannotTrain::Memory {
        width: width_of_smallest,
        needed: small,
        given,
    };
    assert_eq!(width(given), Err(refused));
    let (listener, address) = federation.listen();
    let with = |number: usize, memory: u64| {
        let mut agent = federation.agent(&address, number);
        agent.memory = Some(memory);
        send(agent)
    };
    let turned_away = with(2, small - 1);
    let agents = vec![with(0, enough), with(1, small)];
    let turned_away = async { turned_away.await.unwrap().0 };
    let (run, refused) = tokio::join!(federation.serve(listener, pending(), |_| {}), turned_away);
    all_finished(agents).await;
    let AgentError::TurnedAway(reason) = refused.unwrap_err() else {
        panic!("it was not turned away")
    };
    assert!(
        reason.contains("the smallest sub-model, of width 1/2, takes"),
        "{reason}"
    );
    assert!(
        run.notices
            .iter()
            .any(|notice| notice.contains("client-2 is turned away")),
        "{:?}",
        run.notices
    );
    for record in &run.records {
        let widths: Vec<_> = record
            .widths
            .iter()
            .map(|width| (width.width, width.completed))
            .collect();
        assert_eq!(widths, [(Width(1.0), 1), (Width(0.5), 1)]);
    }
}
