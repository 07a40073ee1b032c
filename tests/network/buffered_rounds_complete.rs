//! Over the network too the model moves every few updates, in the order in which they arrive.

use std::future::pending;

use selvedge_coordinator::Outcome;

use crate::federation::{Federation, Run, all_finished};

async fn served(set: &[&str]) -> Run {
    let federation = Federation::new(&[&["clients=5", "rounds=12", "evaluation.every=3"], set].concat());
    let (listener, address) = federation.listen();
    let agents = federation.agents(&address, 0..5);
    let served = federation.serve(listener, pending(), |_| {}).await;
    all_finished(agents).await;
    assert_eq!((served.outcome, served.records.len()), (Outcome::Completed, 12));
    for (at, record) in served.records.iter().enumerate() {
        assert_eq!(
            (record.round as usize, record.completed, record.applied),
            (at + 1, 2, true),
            "{record:?}"
        );
        assert!(record.failed.is_empty(), "{record:?}");
        assert!(record.stray.is_empty(), "{record:?}");
        assert_eq!(record.test_loss.is_some(), (at + 1) % 3 == 0);
    }
    served
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_all_clients_under_way() {
    let served = served(&["buffer.size=2"]).await;
    let losses: Vec<f64> = served.records.iter().filter_map(|record| record.test_loss).collect();
    assert!(losses.last() < losses.first(), "{losses:?}");
    // Five are under way, and two move the model: three of them are behind at least once.
    let measured = served.records.iter().flat_map(|record| record.client_metrics.values());
    let stale = measured.filter(|metrics| metrics["buffer.staleness"] > 0.0).count();
    assert!(stale >= 3, "{stale}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_some_clients_under_way_who_evaluate_too() {
    let served = served(&[
        "buffer.size=2",
        "cohort.size=3",
        "filters=[{ kind = \"clip\", norm = 5.0 }, { kind = \"bf16\" }]",
        "algorithm.kind=ditto",
        "evaluation.by_clients=true",
        "evaluation.holdout=0.3",
    ])
    .await;
    for record in served.records.iter().filter(|record| record.round % 3 == 0) {
        assert!(
            record.clients_loss.is_some() && record.evaluation_failed.is_empty(),
            "{record:?}"
        );
    }
}
