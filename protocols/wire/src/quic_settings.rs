//! What both ends settle before they shake hands: TLS, versions, windows, time limits.

use std::{sync::Arc, time::Duration};

use quinn::{
    IdleTimeout, TransportConfig,
    congestion::CubicConfig,
    crypto::rustls::{QuicClientConfig, QuicServerConfig},
};
use rustls::{
    client::Resumption,
    server::{NoServerSessionStorage, WebPkiClientVerifier},
    sign::SingleCertAndKey,
    version::TLS13,
};

use super::certificates::Credentials;

/// The protocol and its version, agreed on in the handshake (ALPN).
pub const PROTOCOL: &str = "selvedge/2";

/// Streams that either side may have open at a time: the control stream, and 15 of blobs and steps.
pub(super) const STREAMS_MAX: u32 = 16;
/// What may be under way on one stream and on one link, in bytes: 40 MB/s at 100 ms of round trip.
const STREAM_WINDOW: u32 = 4 << 20;
const LINK_WINDOW: u32 = 8 << 20;
/// What may be under way before anything is known of the path: about one step's smashed data. Steps come in bursts with
/// pauses between them, in which a window that began at the usual 15 kB hardly grows.
const INITIAL_WINDOW: u64 = 1 << 20;
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

fn transport(limits: Limits) -> Result<Arc<TransportConfig>, String> {
    let mut congestion = CubicConfig::default();
    congestion.initial_window(INITIAL_WINDOW);
    let mut transport = TransportConfig::default();
    let idle =
        IdleTimeout::try_from(limits.idle).map_err(|_| format!("an idle limit of {:?} is too long", limits.idle))?;
    transport
        .max_idle_timeout(Some(idle))
        .keep_alive_interval(Some(limits.idle / 3))
        .max_concurrent_bidi_streams(STREAMS_MAX.into())
        .max_concurrent_uni_streams(0u32.into())
        .datagram_receive_buffer_size(None)
        .stream_receive_window(STREAM_WINDOW.into())
        .receive_window(LINK_WINDOW.into())
        .send_window(LINK_WINDOW.into())
        .congestion_controller_factory(Arc::new(congestion));
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
        .with_client_cert_resolver(Arc::new(SingleCertAndKey::from(credentials.certified.clone())));
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
    let verifier = WebPkiClientVerifier::builder_with_provider(credentials.roots.clone(), provider())
        .build()
        .map_err(|error| error.to_string())?;
    let mut tls = rustls::ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .map_err(|error| error.to_string())?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(credentials.certified.clone())));
    tls.alpn_protocols = vec![protocol.into()];
    tls.session_storage = Arc::new(NoServerSessionStorage {});
    tls.send_tls13_tickets = 0;
    let tls = QuicServerConfig::try_from(tls).map_err(|error| error.to_string())?;
    let mut config = quinn::ServerConfig::with_crypto(Arc::new(tls));
    config.transport_config(transport(limits)?);
    Ok(config)
}
