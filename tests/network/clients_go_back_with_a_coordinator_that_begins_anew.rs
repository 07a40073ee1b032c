//! The coordinator is the test's, so that it goes back when the test says so; the client is real.

use bytes::Bytes;
use selvedge_client::Moment;
use selvedge_models::Weights;
use selvedge_protocols::{
    Broadcast, Card, Shape, Vectors, Width,
    message::{Task, ToClient, ToCoordinator},
    wire::{BlobStore, Control, Link, Listener, Partial, pull, serve_streams},
};

use crate::federation::{Federation, send};

/// A coordinator, from one of its beginnings until it is gone.
struct Coordinator {
    link: Link,
    control: Control,
    store: BlobStore,
}

impl Coordinator {
    /// Begins, and lets the client join.
    async fn begin(federation: &Federation, listener: &Listener, beginning: u64) -> Self {
        let (link, mut control) = listener.accept().await.unwrap().complete().await.unwrap();
        let join = control.reader.read().await.unwrap();
        assert!(matches!(join, ToCoordinator::Join { .. }));
        let mut coordinator = Self {
            link,
            control,
            store: BlobStore::new(u64::MAX),
        };
        let welcome = ToClient::Welcome {
            run: "run".into(),
            description: federation.description.to_toml(),
            beginning,
        };
        coordinator.say(welcome).await;
        coordinator
    }

    async fn say(&mut self, message: ToClient) {
        self.control.writer.write(&message).await.unwrap();
    }

    async fn accept(&mut self, round: u32, resumable: &[u32]) {
        let resumable = resumable.to_vec();
        self.say(ToClient::Accepted { round, resumable }).await;
    }

    /// Has the client train, and fetches its update.
    async fn train(&mut self, round: u32, broadcast: &Broadcast) -> Bytes {
        let held = self.store.hold(broadcast.pack().into()).unwrap();
        let task = ToClient::Task {
            round,
            task: Task::Train,
            card: Card::new(0, 0, Width::WHOLE, Vec::new()),
            sections: broadcast.headers(),
            blob: held.reference(),
        };
        self.say(task).await;
        let update = async {
            let offered = self.control.reader.read().await.unwrap();
            let ToCoordinator::Offer { round: of, blob, .. } = offered else {
                panic!("{offered:?}");
            };
            assert_eq!(of, round);
            pull(&self.link, &mut Partial::new(blob, u64::MAX).unwrap())
                .await
                .unwrap()
        };
        tokio::select! {
            update = update => update,
            error = serve_streams(&self.link, &self.store, None) => panic!("{error}"),
        }
    }

    async fn vanish(self) {
        self.link.close("this coordinator is gone").await;
    }
}

/// What SCAFFOLD broadcasts: all parameters have this value.
fn broadcast(federation: &Federation, value: f32) -> Broadcast {
    let parts = federation.description.parts().unwrap();
    let mut weights = Weights::zeros(parts.layout());
    weights.parameters.fill(value);
    let count = weights.parameters.len();
    let mut vectors = Vectors::new();
    for &(name, shape) in federation.description.algorithm.broadcast_vectors() {
        assert_eq!(shape, Shape::Parameters);
        vectors.insert(name, shape, vec![0.0; count]);
    }
    let bare = Broadcast::bare(weights);
    Broadcast { vectors, ..bare }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn and_train_again_what_they_trained_before_or_offer_what_they_still_hold() {
    let federation = Federation::new(&["algorithm.kind=scaffold", "clients=1"]);
    let (listener, address) = federation.listen();
    let mut agent = federation.agent(&address, 0);
    agent.state = Some(federation.path().join("state"));
    let sent = send(agent.clone());
    let [first, second, another] = [0.1, 0.2, 0.3].map(|value| broadcast(&federation, value));

    let mut coordinator = Coordinator::begin(&federation, &listener, 1).await;
    coordinator.train(1, &first).await;
    coordinator.accept(1, &[1]).await;
    let update = coordinator.train(2, &second).await;
    coordinator.accept(2, &[1]).await;
    coordinator.train(3, &first).await;
    coordinator.vanish().await;

    // Back after round 1: the client begins with what it kept then, not with what it kept of round 2.
    // Whether it is told so or only asked.
    let mut coordinator = Coordinator::begin(&federation, &listener, 2).await;
    assert!(coordinator.train(2, &second).await == update);
    coordinator.vanish().await;
    // Once more, before that was accepted: what is held is the same.
    let mut coordinator = Coordinator::begin(&federation, &listener, 3).await;
    coordinator.accept(1, &[1]).await;
    assert!(coordinator.train(2, &second).await == update);
    coordinator.vanish().await;
    // And when the model is another, so is the update.
    let mut coordinator = Coordinator::begin(&federation, &listener, 4).await;
    coordinator.accept(1, &[1]).await;
    assert!(coordinator.train(2, &another).await != update);
    let reason = "that is all".into();
    coordinator.say(ToClient::Finished { reason, model: None }).await;
    let (ended, moments) = sent.await.unwrap();
    ended.unwrap();
    let is_begun = |moment: &&Moment| matches!(moment, Moment::Begun { .. });
    assert_eq!(moments.iter().filter(is_begun).count(), 5, "{moments:?}");

    // A process of its own later, when the run was over for the last.
    let sent = send(agent);
    let mut coordinator = Coordinator::begin(&federation, &listener, 5).await;
    coordinator.accept(1, &[1]).await;
    assert!(coordinator.train(2, &second).await == update);
    // What was kept of round 1 makes a difference.
    coordinator.accept(0, &[]).await;
    assert!(coordinator.train(2, &second).await != update);
    sent.abort();
}
