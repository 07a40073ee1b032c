//! Real QUIC on loopback: what works, and every bad case of the wire.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use quinn::Endpoint;
use tempfile::TempDir;
use tokio::net::UdpSocket;

use super::{
    certificates::{COORDINATOR, is_client_name, issue, new_authority},
    error::Explain,
    frame::frame,
    quic_settings::{client_config, server_config},
    *,
};

mod admission;
mod blobs;
mod files;
mod messages;
mod steps;

const LIMITS: Limits = Limits {
    connect: Duration::from_secs(20),
    idle: Duration::from_secs(20),
};
/// For what must be noticed; long enough for a busy machine.
const SHORT: Limits = Limits {
    connect: Duration::from_secs(2),
    idle: Duration::from_secs(2),
};
const LOOPBACK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

fn year() -> Validity {
    Validity::days(SystemTime::now(), 365)
}

fn authority() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    new_authority(folder.path(), &[], year(), Existing::Keep).unwrap();
    issue(folder.path(), "ada", year(), Existing::Keep).unwrap();
    folder
}

fn credentials(folder: &Path, name: &str) -> Credentials {
    Credentials::from_folder(folder, name, SystemTime::now()).unwrap()
}

fn listen(folder: &Path, limits: Limits) -> (Listener, String) {
    let listener = Listener::bind(LOOPBACK, &credentials(folder, COORDINATOR), limits).unwrap();
    let address = listener.local_address().unwrap().to_string();
    (listener, address)
}

async fn arrive(listener: &Listener) -> Result<(Link, Control), WireError> {
    listener.accept().await.unwrap().complete().await
}

/// What the coordinator and the client get when the client dials.
type Both = (Result<(Link, Control), WireError>, Result<(Link, Control), WireError>);

async fn meet(folder: &Path, client: &Credentials) -> Both {
    let (listener, address) = listen(folder, LIMITS);
    tokio::join!(arrive(&listener), connect(&address, client, LIMITS))
}

/// Both ends of a link: (coordinator's, client's).
async fn linked(limits: Limits) -> ((Link, Control), (Link, Control)) {
    let folder = authority();
    let (listener, address) = listen(folder.path(), limits);
    let ada = credentials(folder.path(), "ada");
    let (server, client) = tokio::join!(arrive(&listener), connect(&address, &ada, limits));
    (server.unwrap(), client.unwrap())
}

fn content(bytes: usize) -> Bytes {
    (0..bytes).map(|i| (i * i / 7 + i) as u8).collect()
}

fn fault(error: &WireError) -> Option<CertificateFault> {
    match error {
        WireError::PeerCertificate { fault, .. } | WireError::OwnCertificate { fault, .. } => Some(*fault),
        _ => None,
    }
}

/// A network between a client and `server` that carries so many bytes, then none: the address to
/// dial instead, and the bytes left.
async fn lossy(server: &str) -> (String, Arc<AtomicU64>) {
    let left = Arc::new(AtomicU64::new(u64::MAX));
    let budget = left.clone();
    let socket = UdpSocket::bind(LOOPBACK).await.unwrap();
    let address = socket.local_addr().unwrap().to_string();
    let server: SocketAddr = server.parse().unwrap();
    tokio::spawn(async move {
        let mut client = None;
        let mut datagram = [0; 65536];
        while let Ok((size, from)) = socket.recv_from(&mut datagram).await {
            let to = if from == server {
                client
            } else {
                client = Some(from);
                Some(server)
            };
            let after = budget.load(Ordering::SeqCst).checked_sub(size as u64);
            if let (Some(to), Some(after)) = (to, after) {
                let _ = socket.send_to(&datagram[..size], to).await;
                budget.fetch_min(after, Ordering::SeqCst);
            }
        }
    });
    (address, left)
}
