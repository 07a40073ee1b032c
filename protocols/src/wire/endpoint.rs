//! Links: dialling a coordinator, and listening for clients.

use std::{
    fmt,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use quinn::{
    Connection, ConnectionError, Endpoint, IdleTimeout, Incoming, RecvStream, SendStream,
    TransportConfig, VarInt,
    crypto::rustls::{QuicClientConfig, QuicServerConfig},
};
use rustls::{
    client::Resumption,
    pki_types::CertificateDer,
    server::{NoServerSessionStorage, WebPkiClientVerifier},
    sign::SingleCertAndKey,
    version::TLS13,
};
use tokio::{net::lookup_host, time::timeout};

use super::{
    certificates::{COORDINATOR, Credentials, PeerIdentity},
    error::{CertificateFault, WireError, explain, explain_read, explain_write},
    frame::{FrameReader, FrameWriter, StreamKind},
};

/// The protocol and its version, agreed on in the handshake (ALPN).
pub const PROTOCOL: &str = "selvedge/1";

/// Streams that either side may have open at a time: the control stream and 15 blobs.
pub(super) const STREAMS_MAX: u32 = 16;
/// What may be under way on one stream and on one link, in bytes: 40 MB/s at 100 ms of round trip.
const STREAM_WINDOW: u32 = 4 << 20;
const LINK_WINDOW: u32 = 8 << 20;
/// Messages go before tensors.
const CONTROL_PRIORITY: i32 = 1;

const CLOSE_DONE: VarInt = VarInt::from_u32(0);
const CLOSE_REFUSED: VarInt = VarInt::from_u32(1);

/// The two time limits of the wire. (The third, a round's deadline, is the engine's.)
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// From dialling to a link that is ready, name resolution included. Default 10 s.
    pub connect: Duration,
    /// The longest silence of a peer, and of a transfer or frame under way. Default 30 s. The
    /// runtime keeps links alive by itself while the processor trains on other threads.
    pub idle: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            idle: Duration::from_secs(30),
        }
    }
}

/// A live connection to a verified peer. Cheap to clone; ends when closed or when the last clone
/// and the last of its streams are gone.
#[derive(Clone)]
pub struct Link {
    connection: Connection,
    peer: Arc<PeerIdentity>,
    label: Arc<str>,
    limits: Limits,
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
        &self.peer
    }

    /// The peer's address at this moment; it changes when a device changes networks.
    pub fn remote_address(&self) -> SocketAddr {
        self.connection.remote_address()
    }

    /// Bytes sent to and received from the peer in UDP datagrams, all overhead included.
    pub fn traffic(&self) -> (u64, u64) {
        let stats = self.connection.stats();
        (stats.udp_tx.bytes, stats.udp_rx.bytes)
    }

    /// Waits until the link has ended and says why.
    pub async fn closed(&self) -> WireError {
        explain(&self.label, self.connection.closed().await)
    }

    /// Ends the link, telling the peer the reason. On the dialling side, waits until that is sent.
    pub async fn close(&self, reason: &str) {
        self.connection.close(CLOSE_DONE, reason.as_bytes());
        if let Some(endpoint) = &self.endpoint {
            let _ = timeout(self.limits.connect, endpoint.wait_idle()).await;
        }
    }

    /// The peer as errors name it: name and address.
    pub(super) fn label(&self) -> &Arc<str> {
        &self.label
    }

    pub(super) fn limits(&self) -> Limits {
        self.limits
    }

    pub(super) fn connection(&self) -> &Connection {
        &self.connection
    }

    fn new(
        connection: Connection,
        endpoint: Option<Endpoint>,
        limits: Limits,
    ) -> Result<Self, WireError> {
        let address = connection.remote_address();
        // The chain has passed verification; what it says may still not be a name we know.
        let peer = connection
            .peer_identity()
            .and_then(|chain| chain.downcast::<Vec<CertificateDer<'static>>>().ok())
            .and_then(|chain| chain.first().map(PeerIdentity::of))
            .unwrap_or_else(|| Err("the handshake left no certificate".to_owned()));
        let is_coordinator = matches!(&peer, Ok(peer) if peer.name == COORDINATOR);
        match peer {
            Ok(peer) if is_coordinator == endpoint.is_some() => Ok(Self {
                connection,
                label: format!("{peer} ({address})").into(),
                peer: Arc::new(peer),
                limits,
                endpoint,
            }),
            other => {
                let detail = other.err().unwrap_or_else(|| "unexpected name".to_owned());
                connection.close(
                    CLOSE_REFUSED,
                    b"your certificate carries no acceptable name",
                );
                Err(WireError::PeerCertificate {
                    peer: address.to_string(),
                    fault: CertificateFault::Unacceptable,
                    detail,
                })
            }
        }
    }

    fn control(&self, send: SendStream, receive: RecvStream) -> Control {
        let _ = send.set_priority(CONTROL_PRIORITY); // Fails only if the stream is gone.
        let (label, idle) = (&self.label, self.limits.idle);
        Control {
            reader: FrameReader::new(receive, label.clone(), idle),
            writer: FrameWriter::new(send, label.clone(), idle),
        }
    }

    async fn open_control(&self) -> Result<Control, WireError> {
        let kind = [StreamKind::Control as u8];
        let (mut send, mut receive) = self
            .connection
            .open_bi()
            .await
            .map_err(|error| explain(&self.label, error))?;
        send.write_all(&kind)
            .await
            .map_err(|error| explain_write(&self.label, error))?;
        expect_kind(&self.label, &mut receive).await?;
        Ok(self.control(send, receive))
    }

    async fn accept_control(&self) -> Result<Control, WireError> {
        let (mut send, mut receive) = self
            .connection
            .accept_bi()
            .await
            .map_err(|error| explain(&self.label, error))?;
        expect_kind(&self.label, &mut receive).await?;
        send.write_all(&[StreamKind::Control as u8])
            .await
            .map_err(|error| explain_write(&self.label, error))?;
        Ok(self.control(send, receive))
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Link({})", self.label)
    }
}

/// The control stream begins with its kind, both ways. In TLS 1.3 a client is done before the
/// coordinator has looked at its certificate: the echo tells it that it is let in.
async fn expect_kind(label: &str, receive: &mut RecvStream) -> Result<(), WireError> {
    let mut kind = [0];
    match receive.read(&mut kind).await {
        Ok(Some(1)) if StreamKind::from_byte(kind[0]) == Some(StreamKind::Control) => Ok(()),
        Ok(_) => Err(WireError::Protocol {
            peer: label.to_owned(),
            detail: "its first stream is not for control".to_owned(),
        }),
        Err(error) => Err(explain_read(label, error)),
    }
}

/// Dials a coordinator at `HOST:PORT`. Returns when the coordinator has accepted our certificate.
///
/// A name with several addresses is tried at each in turn.
///
/// # Errors
/// [`WireError::Address`], [`WireError::Unreachable`], [`WireError::Version`],
/// [`WireError::PeerCertificate`], [`WireError::OwnCertificate`].
pub async fn connect(
    server: &str,
    credentials: &Credentials,
    limits: Limits,
) -> Result<(Link, Control), WireError> {
    let unusable = |detail: String| WireError::Address {
        address: server.to_owned(),
        detail,
    };
    let Some((host, _)) = server.rsplit_once(':') else {
        return Err(unusable("it must be HOST:PORT".to_owned()));
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let config = client_config(credentials, PROTOCOL, limits).map_err(unusable)?;
    let addresses: Vec<SocketAddr> = timeout(limits.connect, lookup_host(server))
        .await
        .map_err(|_| unusable("its name cannot be resolved in time".to_owned()))?
        .map_err(|error| unusable(error.to_string()))?
        .collect();
    let share = limits.connect / u32::try_from(addresses.len().max(1)).unwrap_or(u32::MAX);
    let mut outcome = Err(WireError::Unreachable {
        address: server.to_owned(),
        after: limits.connect,
    });
    for address in addresses {
        match timeout(share, dial(address, host, config.clone(), limits)).await {
            Ok(Err(error @ WireError::Address { .. })) => outcome = Err(error),
            Ok(answered) => return answered,
            Err(_) => {}
        }
    }
    outcome
}

async fn dial(
    address: SocketAddr,
    host: &str,
    config: quinn::ClientConfig,
    limits: Limits,
) -> Result<(Link, Control), WireError> {
    let unusable = |detail: String| WireError::Address {
        address: address.to_string(),
        detail,
    };
    let any: SocketAddr = match address {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let endpoint = Endpoint::client(any).map_err(|error| unusable(error.to_string()))?;
    let connection = endpoint
        .connect_with(config, address, host)
        .map_err(|error| unusable(error.to_string()))?
        .await
        .map_err(|error| match error {
            ConnectionError::TimedOut => WireError::Unreachable {
                address: address.to_string(),
                after: limits.idle,
            },
            other => explain(&address.to_string(), other),
        })?;
    let link = Link::new(connection, Some(endpoint), limits)?;
    let control = link.open_control().await?;
    Ok((link, control))
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
    pub fn bind(
        address: SocketAddr,
        credentials: &Credentials,
        limits: Limits,
    ) -> Result<Self, WireError> {
        let unusable = |detail: String| WireError::Address {
            address: address.to_string(),
            detail,
        };
        let config = server_config(credentials, PROTOCOL, limits).map_err(unusable)?;
        let endpoint =
            Endpoint::server(config, address).map_err(|error| unusable(error.to_string()))?;
        Ok(Self { endpoint, limits })
    }

    /// The address that was taken.
    ///
    /// # Errors
    /// [`WireError::Address`].
    pub fn local_address(&self) -> Result<SocketAddr, WireError> {
        self.endpoint
            .local_addr()
            .map_err(|error| WireError::Address {
                address: "of the listener".to_owned(),
                detail: error.to_string(),
            })
    }

    /// Waits for the next one to knock; `None` once closed. Complete each arrival on a task of its
    /// own, so that a slow one keeps nobody waiting.
    pub async fn accept(&self) -> Option<Arrival> {
        let incoming = self.endpoint.accept().await?;
        Some(Arrival {
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
pub struct Arrival {
    incoming: Incoming,
    limits: Limits,
}

impl Arrival {
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
            .map_err(|error| explain(&address.to_string(), error))?;
            let link = Link::new(connection, None, limits)?;
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

fn transport(limits: Limits) -> Result<Arc<TransportConfig>, String> {
    let mut transport = TransportConfig::default();
    let idle = IdleTimeout::try_from(limits.idle)
        .map_err(|_| format!("an idle limit of {:?} is too long", limits.idle))?;
    transport
        .max_idle_timeout(Some(idle))
        .keep_alive_interval(Some(limits.idle / 3))
        .max_concurrent_bidi_streams(STREAMS_MAX.into())
        .max_concurrent_uni_streams(0u32.into())
        .datagram_receive_buffer_size(None)
        .stream_receive_window(STREAM_WINDOW.into())
        .receive_window(LINK_WINDOW.into())
        .send_window(LINK_WINDOW.into());
    Ok(Arc::new(transport))
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

// Sessions are never resumed: each link checks both certificates, dates included.

pub(super) fn client_config(
    credentials: &Credentials,
    protocol: &str,
    limits: Limits,
) -> Result<quinn::ClientConfig, String> {
    let mut tls = rustls::ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .map_err(|error| error.to_string())?
        .with_root_certificates(credentials.roots.clone())
        .with_client_cert_resolver(Arc::new(SingleCertAndKey::from(
            credentials.certified.clone(),
        )));
    tls.alpn_protocols = vec![protocol.into()];
    tls.resumption = Resumption::disabled();
    let tls = QuicClientConfig::try_from(tls).map_err(|error| error.to_string())?;
    let mut config = quinn::ClientConfig::new(Arc::new(tls));
    config.transport_config(transport(limits)?);
    Ok(config)
}

pub(super) fn server_config(
    credentials: &Credentials,
    protocol: &str,
    limits: Limits,
) -> Result<quinn::ServerConfig, String> {
    let verifier =
        WebPkiClientVerifier::builder_with_provider(credentials.roots.clone(), provider())
            .build()
            .map_err(|error| error.to_string())?;
    let mut tls = rustls::ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .map_err(|error| error.to_string())?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(
            credentials.certified.clone(),
        )));
    tls.alpn_protocols = vec![protocol.into()];
    tls.session_storage = Arc::new(NoServerSessionStorage {});
    tls.send_tls13_tickets = 0;
    let tls = QuicServerConfig::try_from(tls).map_err(|error| error.to_string())?;
    let mut config = quinn::ServerConfig::with_crypto(Arc::new(tls));
    config.transport_config(transport(limits)?);
    Ok(config)
}
