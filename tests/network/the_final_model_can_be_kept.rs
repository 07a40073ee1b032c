use std::{fs, future::pending, path::PathBuf};

use selvedge_client::{Ending, Moment};

use crate::{
    federation::{Federation, all_finished, send},
    process::Process,
};

#[test]
fn by_each_client_that_wants_it_byte_for_byte() {
    let federation = Federation::new(&["algorithm.kind=scaffold"]);
    let (coordinator, address) = Process::coordinator(&federation, &["--out", "served"]);
    let clients = [0, 1, 2].map(|number| match number {
        2 => Process::client(&federation, &address, number),
        _ => Process::client_with(
            &federation,
            &address,
            number,
            &["--keep-model", &format!("kept-{number}")],
        ),
    });
    for (number, client) in clients.into_iter().enumerate() {
        let (status, said) = client.end();
        assert!(status.success(), "{said}");
        assert_eq!(said.contains("the final model"), number != 2, "{said}");
    }
    let (status, said) = coordinator.end();
    assert!(status.success(), "{said}");
    let path = federation.path();
    let model = fs::read(path.join("served/model.safetensors")).unwrap();
    for number in [0, 1] {
        assert!(
            fs::read(path.join(format!("kept-{number}"))).unwrap() == model,
            "of client {number}"
        );
    }
}

/// Runs a federation of which client 0 wants to keep the model in this file, and gives how that ended and its moments.
async fn run(federation: &Federation, file: PathBuf) -> (Result<Ending, selvedge_client::AgentError>, Vec<Moment>) {
    let (listener, address) = federation.listen();
    let mut agent = federation.agent(&address, 0);
    agent.keep_model = Some(file);
    let sent = send(agent);
    let others = federation.agents(&address, 1..3);
    federation.serve(listener, pending(), |_| {}).await;
    all_finished(others).await;
    sent.await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_clients_have_layers_or_fronts_of_their_own_there_is_none_and_that_is_said() {
    let personal = "algorithm={ kind = \"fedper\", personal = [\"2\"] }";
    let fronts = "split={ method = { kind = \"parallel\" }, cut = 2 }";
    let steps = "training={ steps = 2, batch_size = 8, optimiser = { kind = \"sgd\", learning_rate = 0.1 } }";
    for set in [&[personal][..], &[fronts, steps]] {
        let federation = Federation::new(set);
        let file = federation.path().join("kept");
        let (ended, moments) = run(&federation, file.clone()).await;
        assert_eq!(ended.unwrap(), Ending::Finished("all rounds are done".into()));
        let is_said = matches!(moments.last(), Some(Moment::NoModel { reason }) if reason.contains("no one model"));
        assert!(is_said && !file.exists(), "{moments:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unless_it_cannot_be_written_which_is_an_error_and_costs_the_others_nothing() {
    let federation = Federation::new(&[]);
    let file = federation.path().join("no such folder").join("kept");
    let (ended, _) = run(&federation, file.clone()).await;
    let error = ended.unwrap_err();
    assert_eq!(error.code(), "E-CLIENT-MODEL");
    assert!(error.to_string().contains(&file.display().to_string()), "{error}");
}
