//! Links: dialling a coordinator, and listening for clients.

use std::{
    fmt, io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use quinn::{
    Connection, ConnectionError, Endpoint, EndpointConfig, Incoming, RecvStream, SendStream, TokioRuntime, VarInt,
};
use rustls::pki_types::CertificateDer;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::{net::lookup_host, task::JoinSet, time::timeout};

use super::{
    certificates::{COORDINATOR, Credentials, PeerIdentity},
    error::{CertificateFault, Explain, WireError},
    frame::{FrameReader, FrameWriter, StreamKind},
    peer::Peer,
    quic_settings::{Limits, PROTOCOL, client_config, server_config},
};

/// Messages go before tensors.
const CONTROL_PRIORITY: i32 = 1;

const CLOSE_DONE: VarInt = VarInt::from_u32(0);
const CLOSE_REFUSED: VarInt = VarInt::from_u32(1);

/// A live connection to a verified peer. Cheap to clone; ends when closed or when the last clone
/// and the last of its streams are gone.
#[derive(Clone)]
pub struct Link {
    connection: Connection,
    identity: Arc<PeerIdentity>,
    peer: Peer,
    /// The dialling side's socket.
    endpoint: Option<Endpoint>,
}

/// The control stream, both ways.
#[derive(Debug)]
pub struct Control {
    /// Messages from the peer.
    pub reader: FrameReader,
    /// Messages to the peer.
    pub writer: FrameWriter,
}

impl Link {
    /// Who the peer is, by its verified certificate.
    pub fn peer(&self) -> &PeerIdentity {
        &self.identity
    }

    /// Bytes sent to and received from the peer in UDP datagrams, all overhead included.
    pub fn traffic(&self) -> (u64, u64) {
        let stats = self.connection.stats();
        (stats.udp_tx.bytes, stats.udp_rx.bytes)
    }

    /// How long a message to the peer and its answer take, by what was seen so far.
    pub fn round_trip(&self) -> Duration {
        self.connection.rtt()
    }

    /// Waits until the link has ended and says why.
    pub async fn closed(&self) -> WireError {
        self.connection.closed().await.explain(&self.peer.label)
    }

    /// Ends the link, telling the peer the reason. On the dialling side, waits until that is sent.
    pub async fn close(&self, reason: &str) {
        self.connection.close(CLOSE_DONE, reason.as_bytes());
        if let Some(endpoint) = &self.endpoint {
            let _ = timeout(self.peer.idle, endpoint.wait_idle()).await;
        }
    }

    pub(super) fn as_peer(&self) -> &Peer {
        &self.peer
    }

    pub(super) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// The handshake is done and the chain has passed verification; what it says may still not be
    /// a name we know.
    fn new(connection: Connection, endpoint: Option<Endpoint>, idle: Duration) -> Result<Self, WireError> {
        let address = connection.remote_address();
        let identity = connection
            .peer_identity()
            .and_then(|chain| chain.downcast::<Vec<CertificateDer<'static>>>().ok())
            .and_then(|chain| chain.first().map(PeerIdentity::of))
            .unwrap_or_else(|| Err("the handshake left no certificate".to_owned()))
            .and_then(|identity| match (identity.name == COORDINATOR) == endpoint.is_some() {
                true => Ok(identity),
                false => Err(format!("\"{identity}\" is a name of the other role")),
            });
        match identity {
            Ok(identity) => Ok(Self {
                connection,
                peer: Peer {
                    label: format!("{identity} ({address})").into(),
                    idle,
                },
                identity: Arc::new(identity),
                endpoint,
            }),
            Err(detail) => {
                connection.close(CLOSE_REFUSED, b"your certificate carries no acceptable name");
                Err(WireError::PeerCertificate {
                    peer: address.to_string(),
                    fault: CertificateFault::Unacceptable,
                    detail,
                })
            }
        }
    }

    // The control stream begins with its kind, both ways. In TLS 1.3 a client is done before the
    // coordinator has looked at its certificate: the echo tells it that it is let in.

    async fn open_control(&self) -> Result<Control, WireError> {
        const DOING: &str = "letting us in";
        let opened = self.connection.open_bi();
        let (mut send, mut receive) = self.peer.within(DOING, opened).await?;
        let kind = [StreamKind::Control as u8];
        self.peer.within(DOING, send.write_all(&kind)).await?;
        StreamKind::Control.expect(&self.peer, &mut receive).await?;
        Ok(self.control(send, receive))
    }

    async fn accept_control(&self) -> Result<Control, WireError> {
        const DOING: &str = "joining";
        let opened = self.connection.accept_bi();
        let (mut send, mut receive) = self.peer.within(DOING, opened).await?;
        StreamKind::Control.expect(&self.peer, &mut receive).await?;
        let kind = [StreamKind::Control as u8];
        self.peer.within(DOING, send.write_all(&kind)).await?;
        Ok(self.control(send, receive))
    }

    fn control(&self, send: SendStream, receive: RecvStream) -> Control {
        let _ = send.set_priority(CONTROL_PRIORITY); // Fails only if the stream is gone.
        Control {
            reader: FrameReader::new(receive, self.peer.clone()),
            writer: FrameWriter::new(send, self.peer.clone()),
        }
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Link({})", self.peer.label)
    }
}

/// Dials a coordinator at `HOST:PORT`. Returns when the coordinator has accepted our certificate.
///
/// A name with several addresses is tried at all of them at once; the first to answer counts.
///
/// # Errors
/// [`WireError::Address`], [`WireError::Unreachable`], [`WireError::Version`],
/// [`WireError::PeerCertificate`], [`WireError::OwnCertificate`].
pub async fn connect(server: &str, credentials: &Credentials, limits: Limits) -> Result<(Link, Control), WireError> {
    let config = client_config(credentials, PROTOCOL, limits).map_err(|detail| unusable(server, detail))?;
    timeout(limits.connect, dial(server, config, limits.idle))
        .await
        .unwrap_or_else(|_| {
            Err(WireError::Unreachable {
                address: server.to_owned(),
                after: limits.connect,
            })
        })
}

async fn dial(server: &str, config: quinn::ClientConfig, idle: Duration) -> Result<(Link, Control), WireError> {
    let Some((host, _)) = server.rsplit_once(':') else {
        return Err(unusable(server, "it must be HOST:PORT"));
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let addresses = lookup_host(server).await.map_err(|error| unusable(server, error))?;
    let mut handshakes = JoinSet::new();
    for address in addresses {
        handshakes.spawn(shake_hands(address, host.to_owned(), config.clone(), idle));
    }
    let mut failure = unusable(server, "its name has no address");
    while let Some(shaken) = handshakes.join_next().await {
        match shaken.unwrap_or_else(|error| Err(unusable(server, error))) {
            // Only here does it become a link: the coordinator never sees two.
            Ok((connection, endpoint)) => {
                let link = Link::new(connection, Some(endpoint), idle)?;
                let control = link.open_control().await?;
                return Ok((link, control));
            }
            Err(error @ (WireError::Address { .. } | WireError::Unreachable { .. })) => {
                failure = error;
            }
            Err(error) => return Err(error),
        }
    }
    Err(failure)
}

async fn shake_hands(
    address: SocketAddr,
    host: String,
    config: quinn::ClientConfig,
    idle: Duration,
) -> Result<(Connection, Endpoint), WireError> {
    let any: SocketAddr = match address {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let endpoint = endpoint(any, None).map_err(|error| unusable(address, error))?;
    let connecting = endpoint
        .connect_with(config, address, &host)
        .map_err(|error| unusable(address, error))?;
    match connecting.await {
        Ok(connection) => Ok((connection, endpoint)),
        Err(ConnectionError::TimedOut) => Err(WireError::Unreachable {
            address: address.to_string(),
            after: idle,
        }),
        Err(error) => Err(error.explain(&address.to_string())),
    }
}

fn unusable(address: impl ToString, detail: impl ToString) -> WireError {
    WireError::Address {
        address: address.to_string(),
        detail: detail.to_string(),
    }
}

/// What the system is asked to hold of datagrams that were not read yet, in bytes: some steps of some clients. What it holds
/// by default is lost in the bursts in which tensors come, and has to be sent again.
const SOCKET_BUFFER: usize = 4 << 20;

/// An end of QUIC connections at this address.
fn endpoint(address: SocketAddr, server: Option<quinn::ServerConfig>) -> io::Result<Endpoint> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    if address.is_ipv6() && server.is_none() {
        socket.set_only_v6(false)?;
    }
    // The system may allow less, and then does with less.
    let _ = socket.set_recv_buffer_size(SOCKET_BUFFER);
    let _ = socket.set_send_buffer_size(SOCKET_BUFFER);
    socket.bind(&address.into())?;
    Endpoint::new(EndpointConfig::default(), server, socket.into(), Arc::new(TokioRuntime))
}

/// A coordinator's open door.
#[derive(Debug)]
pub struct Listener {
    endpoint: Endpoint,
    limits: Limits,
}

impl Listener {
    /// Opens the door at an address; port 0 takes any free one.
    ///
    /// # Errors
    /// [`WireError::Address`].
    pub fn bind(address: SocketAddr, credentials: &Credentials, limits: Limits) -> Result<Self, WireError> {
        let config = server_config(credentials, PROTOCOL, limits).map_err(|detail| unusable(address, detail))?;
        let endpoint = endpoint(address, Some(config)).map_err(|error| unusable(address, error))?;
        Ok(Self { endpoint, limits })
    }

    /// The address that was taken.
    ///
    /// # Errors
    /// [`WireError::Address`].
    pub fn local_address(&self) -> Result<SocketAddr, WireError> {
        self.endpoint
            .local_addr()
            .map_err(|error| unusable("of the listener", error))
    }

    /// Waits for the next one to knock; `None` once closed. Complete each arrival on a task of its
    /// own, so that a slow one keeps nobody waiting.
    pub async fn accept(&self) -> Option<Caller> {
        let incoming = self.endpoint.accept().await?;
        Some(Caller {
            incoming,
            limits: self.limits,
        })
    }

    /// Ends all links, telling the peers the reason, and waits until that is sent.
    pub async fn close(&self, reason: &str) {
        self.endpoint.close(CLOSE_DONE, reason.as_bytes());
        let _ = timeout(self.limits.connect, self.endpoint.wait_idle()).await;
    }
}

/// Somebody who knocks: not verified yet.
#[derive(Debug)]
pub struct Caller {
    incoming: Incoming,
    limits: Limits,
}

impl Caller {
    /// Where it comes from.
    pub fn address(&self) -> SocketAddr {
        self.incoming.remote_address()
    }

    /// Verifies the client and opens its control stream, within the connect limit.
    ///
    /// # Errors
    /// [`WireError::PeerCertificate`], [`WireError::OwnCertificate`], [`WireError::Version`],
    /// [`WireError::Stalled`], [`WireError::Protocol`].
    pub async fn complete(self) -> Result<(Link, Control), WireError> {
        let (address, limits) = (self.address(), self.limits);
        let complete = async {
            let connection = match self.incoming.accept() {
                Ok(connecting) => connecting.await,
                Err(error) => Err(error),
            }
            .map_err(|error| error.explain(&address.to_string()))?;
            let link = Link::new(connection, None, limits.idle)?;
            let control = link.accept_control().await?;
            Ok((link, control))
        };
        timeout(limits.connect, complete).await.unwrap_or_else(|_| {
            Err(WireError::Stalled {
                peer: address.to_string(),
                doing: "joining",
                after: limits.connect,
            })
        })
    }
}
