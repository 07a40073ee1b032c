//! A small federation on one machine: examples, certificates, a coordinator, agents.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    sync::Arc,
    time::{Duration, SystemTime},
};

use selvedge_client::{Agent, AgentError, Ending, Moment, Supply};
use selvedge_coordinator::{Outcome, Progress, RoundRecord, Server, server::run_id};
use selvedge_data::TrainAndTest;
use selvedge_protocols::{
    ClientName, Description, Registry, ServerState,
    wire::{
        Credentials, Existing, Limits, Listener, Validity,
        certificates::{COORDINATOR, issue, new_authority},
    },
};
use selvedge_simulations::Simulation;
use tempfile::TempDir;
use tokio::task::JoinHandle;

const DESCRIPTION: &str = r#"
rounds = 3
clients = 3
data = { source = "csv", train = "train.csv", test = "test.csv", label = "label" }
partition = { kind = "dirichlet", alpha = 2.0 }
network = { idle_seconds = 20.0 }

[model]
input = [4]
layers = [{ kind = "dense", units = 8 }, { kind = "relu" }, { kind = "dense", units = 3 }]

[training]
epochs = 2
batch_size = 4
optimiser = { kind = "sgd", learning_rate = 0.1 }
"#;

/// A folder with a description (`run.toml`), its examples, and certificates.
pub(crate) struct Federation {
    folder: TempDir,
    pub(crate) description: Arc<Description>,
    split: TrainAndTest,
    registry: Registry,
}

/// What a run came to.
pub(crate) struct Run {
    pub(crate) state: ServerState,
    pub(crate) outcome: Outcome,
    pub(crate) records: Vec<RoundRecord>,
    pub(crate) notices: Vec<String>,
}

impl Federation {
    /// The federation of the description above, with changes.
    pub(crate) fn new(set: &[&str]) -> Self {
        Self::knowing(Registry::new(), set)
    }

    /// One whose programs know what is registered.
    pub(crate) fn knowing(registry: Registry, set: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        // What is written is what is changed, so that processes read it too.
        let set: Vec<_> = set.iter().map(|text| text.parse().unwrap()).collect();
        let description = Description::parse_with(&registry, DESCRIPTION, "test", &set).unwrap();
        fs::write(folder.path().join("run.toml"), description.to_toml()).unwrap();
        fs::write(folder.path().join("train.csv"), table(0, 120)).unwrap();
        fs::write(folder.path().join("test.csv"), table(1000, 1300)).unwrap();
        let split = description.data.load(folder.path()).unwrap();
        let certs = folder.path().join("certs");
        new_authority(&certs, &[], two_days(), Existing::Keep).unwrap();
        let federation = Self {
            folder,
            description: Arc::new(description),
            split,
            registry,
        };
        for number in 0..federation.description.clients {
            federation.issue(ClientName::numbered(number).as_str());
        }
        federation
    }

    /// Issues a client's certificate.
    pub(crate) fn issue(&self, name: &str) {
        issue(&self.path().join("certs"), name, two_days(), Existing::Keep).unwrap();
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn credentials(&self, name: &str) -> Credentials {
        let certs = self.path().join("certs");
        Credentials::from_folder(&certs, name, SystemTime::now()).unwrap()
    }

    pub(crate) fn simulate(&self) -> Run {
        let dealt = self.description.deal(&self.split.train).unwrap();
        let simulation = Simulation {
            description: self.description.clone(),
            train: &self.split.train,
            test: self.split.test.as_ref(),
            shares: &dealt.shares,
            held_out: &dealt.held_out,
            workers: 2,
            initial: None,
            resume: None,
            snapshots: false,
            stop: None,
        };
        let (mut records, mut notices) = (Vec::new(), Vec::new());
        let (state, outcome) = simulation
            .run(&mut |progress| {
                note(progress, &mut records, &mut notices);
            })
            .unwrap();
        Run {
            state,
            outcome,
            records,
            notices,
        }
    }

    /// An open door, and its address.
    pub(crate) fn listen(&self) -> (Listener, String) {
        let limits = Limits::from(&self.description.network);
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let listener = Listener::bind(any, &self.credentials(COORDINATOR), limits).unwrap();
        let address = listener.local_address().unwrap().to_string();
        (listener, address)
    }

    /// Serves the run to its end, or until `stop`.
    pub(crate) async fn serve(
        &self,
        listener: Listener,
        stop: impl Future<Output = ()>,
        mut watch: impl FnMut(&Progress<'_>),
    ) -> Run {
        let began = SystemTime::now();
        let server = Server {
            description: self.description.clone(),
            run: run_id(&self.description, began),
            began,
            test: self.split.test.clone().map(Arc::new),
            initial: None,
            resume: None,
            snapshots: false,
            listener,
        };
        let (mut records, mut notices) = (Vec::new(), Vec::new());
        let mut observe = |progress: Progress<'_>| {
            watch(&progress);
            note(progress, &mut records, &mut notices);
        };
        let (state, outcome) = server.serve(stop, &mut observe).await.unwrap();
        Run {
            state,
            outcome,
            records,
            notices,
        }
    }

    pub(crate) fn agent(&self, address: &str, number: usize) -> Agent {
        Agent {
            coordinator: address.into(),
            credentials: self.credentials(ClientName::numbered(number).as_str()),
            supply: Supply::Dealt(Arc::new(self.split.train.clone())),
            registry: self.registry.clone(),
            memory: None,
            speed: None,
            state: None,
            keep_model: None,
            give_up_after: Duration::from_secs(60),
        }
    }

    /// Sends agents of these numbers out.
    pub(crate) fn agents(&self, address: &str, numbers: impl IntoIterator<Item = usize>) -> Vec<Sent> {
        let agents = numbers.into_iter().map(|number| self.agent(address, number));
        agents.map(send).collect()
    }
}

/// An agent that was sent out: how its work ended, and its moments.
pub(crate) type Sent = JoinHandle<(Result<Ending, AgentError>, Vec<Moment>)>;

pub(crate) fn send(agent: Agent) -> Sent {
    tokio::spawn(async move {
        let mut moments = Vec::new();
        let ended = agent
            .run(std::future::pending(), &mut |moment| moments.push(moment))
            .await;
        (ended, moments)
    })
}

/// All agents were told that the run is over.
pub(crate) async fn all_finished(agents: Vec<Sent>) {
    for agent in agents {
        let (ended, moments) = agent.await.unwrap();
        let expected = Ending::Finished("all rounds are done".into());
        assert_eq!(ended.unwrap(), expected, "{moments:?}");
    }
}

fn two_days() -> Validity {
    Validity::days(SystemTime::now(), 2)
}

/// Examples of three classes, apart but not too far.
fn table(from: u32, to: u32) -> String {
    let mut text = String::from("a,b,c,d,label\n");
    for number in from..to {
        let class = number % 3;
        let noise = |k: u32| f64::from((number * (7 + 4 * k) + 13 * k) % 17) / 17.0 - 0.5;
        let centre = |k: u32| if k == class { 1.0 } else { 0.0 };
        for k in 0..4 {
            text += &format!("{:.4},", centre(k) + noise(k));
        }
        text += &format!("{class}\n");
    }
    text
}

fn note(progress: Progress<'_>, records: &mut Vec<RoundRecord>, notices: &mut Vec<String>) {
    match progress {
        Progress::Record { record, .. } => records.push(record.clone()),
        Progress::Notice(notice) => notices.push(notice.into()),
        _ => {}
    }
}
