//! A network that can be cut.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
};

use tokio::net::UdpSocket;

/// Carries datagrams between a client and a server, as many bytes as it is allowed to, then none.
pub(crate) struct Relay {
    address: String,
    left: Arc<AtomicU64>,
    carried_down: Arc<AtomicU64>,
}

impl Relay {
    pub(crate) async fn start(server: &str) -> Self {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let relay = Self {
            address: socket.local_addr().unwrap().to_string(),
            left: Arc::default(),
            carried_down: Arc::default(),
        };
        let (left, carried_down) = (relay.left.clone(), relay.carried_down.clone());
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
                let take = |left: u64| left.checked_sub(size as u64);
                if let (Some(to), Ok(_)) = (to, left.fetch_update(SeqCst, SeqCst, take)) {
                    if from == server {
                        carried_down.fetch_add(size as u64, SeqCst);
                    }
                    let _ = socket.send_to(&datagram[..size], to).await;
                }
            }
        });
        relay
    }

    /// The address to dial instead of the server's.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Allows so many bytes from now on.
    pub(crate) fn allow(&self, bytes: u64) {
        self.left.store(bytes, SeqCst);
    }

    /// The bytes that came through from the server.
    pub(crate) fn carried_down(&self) -> u64 {
        self.carried_down.load(SeqCst)
    }
}
