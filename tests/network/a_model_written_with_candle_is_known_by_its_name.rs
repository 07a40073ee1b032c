use std::future::pending;

use candle_nn::{linear, seq};
use selvedge_client::AgentError;
use selvedge_coordinator::Outcome;
use selvedge_models::CandleModule;
use selvedge_protocols::Registry;

use crate::federation::{Federation, all_finished, send};

const MODEL: &str = "model={ input = [4], layers = [{ kind = 'module', name = 'perceptron' }] }";

fn perceptron() -> CandleModule {
    CandleModule::new(|variables| {
        let (first, second) = (
            linear(4, 8, variables.pp("first"))?,
            linear(8, 3, variables.pp("second"))?,
        );
        Ok(seq().add(first).add_fn(|x| x.tanh()).add(second))
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn and_trained_by_clients_that_know_it_as_in_a_simulation() {
    let registry = Registry::new().with_named("perceptron", perceptron()).unwrap();
    let federation = Federation::knowing(registry, &[MODEL]);
    let simulated = federation.simulate();
    let (listener, address) = federation.listen();
    let agents = federation.agents(&address, 0..3);
    let served = federation.serve(listener, pending(), |_| {}).await;
    all_finished(agents).await;
    assert_eq!(
        (served.outcome, simulated.outcome),
        (Outcome::Completed, Outcome::Completed)
    );
    assert_eq!(served.state, simulated.state);
    let accuracy = served.records.last().and_then(|last| last.test_accuracy);
    assert!(accuracy > Some(0.5), "{accuracy:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn and_a_client_that_does_not_know_it_says_so_and_is_not_waited_for() {
    let registry = Registry::new().with_named("perceptron", perceptron()).unwrap();
    let federation = Federation::knowing(registry, &[MODEL, "network.start_with=2"]);
    let (listener, address) = federation.listen();
    let mut stranger = federation.agent(&address, 2);
    stranger.registry = Registry::new();
    let stranger = send(stranger);
    let agents = federation.agents(&address, 0..2);
    let served = federation.serve(listener, pending(), |_| {}).await;
    all_finished(agents).await;
    assert_eq!(served.outcome, Outcome::Completed);
    let (ended, _) = stranger.await.unwrap();
    let error = ended.unwrap_err();
    assert!(matches!(error, AgentError::Description(_)), "{error:?}");
    assert!(
        error.to_string().contains("there is no module `perceptron` here"),
        "{error}"
    );
}
