//! An algorithm that Selvedge does not have, in a simulation and in a federation over QUIC on this machine's loopback: both
//! give the same model and the same records, byte for byte.
//!
//!     cargo run --manifest-path examples/own-algorithm/Cargo.toml

mod own_ditto;

use std::{
    future::pending,
    net::{Ipv4Addr, SocketAddr},
    ops::ControlFlow,
    sync::Arc,
    time::{Duration, SystemTime},
};

use own_ditto::OwnDitto;
use selvedge::{
    Agent, Algorithm, Dataset, Description, Federation, Inputs, Progress, Registry, RoundRecord, Server, Supply,
    Targets,
    coordinator::server::run_id,
    protocols::wire::{
        Credentials, Existing, Limits, Listener, Validity,
        certificates::{COORDINATOR, issue, new_authority},
    },
};

const DESCRIPTION: &str = r#"
    rounds = 4
    clients = 3
    data = { source = "memory" }
    model = { input = [2], layers = [{ kind = "dense", units = 8 }, { kind = "tanh" }, { kind = "dense", units = 2 }] }
    algorithm = { kind = "own-ditto", lambda = 0.5 }
    partition = { kind = "shards", per_client = 1 }
    evaluation = { by_clients = true, holdout = 0.2 }
    training = { epochs = 2, optimiser = { kind = "sgd", learning_rate = 0.3 } }
"#;

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn data() -> Result<Dataset, Failure> {
    let inputs: Vec<f32> = (0..600).map(|at| (at as f32 * 0.7).sin()).collect();
    let labels = inputs.chunks(2).map(|point| u32::from(point[0] > point[1])).collect();
    Ok(Dataset::new(
        Inputs::Floats(inputs),
        vec![2],
        Targets::Classes { labels, classes: 2 },
    )?)
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let registry = Registry::new().with::<dyn Algorithm, OwnDitto>()?;
    let description = Description::parse_with(&registry, DESCRIPTION, "the description", &[])?;
    let data = data()?;
    let mut simulated = Federation::new(description.clone(), data.clone())
        .tested_on(data.clone())
        .run(|_| ControlFlow::Continue(()))?;

    let folder = tempfile::tempdir()?;
    let two_days = Validity::days(SystemTime::now(), 2);
    new_authority(folder.path(), &[], two_days, Existing::Keep)?;
    let credentials = |name: &str| Credentials::from_folder(folder.path(), name, SystemTime::now());
    let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let listener = Listener::bind(loopback, &credentials(COORDINATOR)?, Limits::from(&description.network))?;
    let address = listener.local_address()?.to_string();
    let mut agents = Vec::new();
    for number in 0..description.clients {
        let name = format!("client-{number}");
        issue(folder.path(), &name, two_days, Existing::Keep)?;
        let agent = Agent {
            coordinator: address.clone(),
            credentials: credentials(&name)?,
            supply: Supply::Dealt(Arc::new(data.clone())),
            registry: registry.clone(),
            memory: None,
            speed: None,
            state: None,
            keep_model: None,
            give_up_after: Duration::from_secs(60),
        };
        agents.push(tokio::spawn(async move { agent.run(pending(), &mut |_| {}).await }));
    }
    let began = SystemTime::now();
    let server = Server {
        run: run_id(&description, began),
        began,
        description: Arc::new(description),
        test: Some(Arc::new(data)),
        initial: None,
        resume: None,
        snapshots: false,
        listener,
    };
    let mut records: Vec<RoundRecord> = Vec::new();
    let mut observe = |progress: Progress<'_>| {
        if let Progress::Record { record, .. } = progress {
            records.push(record.clone());
        }
    };
    let (state, _) = server.serve(pending(), &mut observe).await?;
    for agent in agents {
        agent.await??;
    }

    // How long it took is all that may differ.
    for record in simulated.records.iter_mut().chain(&mut records) {
        record.seconds = 0.0;
    }
    if state.weights != simulated.weights || records != simulated.records {
        return Err("the simulation and the network do not agree".into());
    }
    for record in &records {
        let distances = record
            .client_metrics
            .values()
            .filter_map(|metrics| metrics.get("algorithm.distance"));
        let distances: Vec<f64> = distances.copied().collect();
        println!(
            "round {}: clients' own accuracy {:.2?}, distances {distances:.2?}",
            record.round, record.clients_accuracy
        );
    }
    println!("simulated and over the network: {}", state.weights.blake3());
    Ok(())
}
