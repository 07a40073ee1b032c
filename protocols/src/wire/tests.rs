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
    endpoint::{client_config, server_config},
    error::explain,
    frame::frame,
    *,
};

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
type Both = (
    Result<(Link, Control), WireError>,
    Result<(Link, Control), WireError>,
);

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
        WireError::PeerCertificate { fault, .. } | WireError::OwnCertificate { fault, .. } => {
            Some(*fault)
        }
        _ => None,
    }
}

#[tokio::test]
async fn a_client_is_known_by_the_name_in_its_certificate() {
    let ((server, mut at_server), (client, mut at_client)) = linked(LIMITS).await;
    assert_eq!(server.peer().name, "ada");
    assert_eq!(client.peer().name, COORDINATOR);
    at_client.writer.write("hello").await.unwrap();
    let heard: String = at_server.reader.read().await.unwrap();
    assert_eq!(heard, "hello");
    at_server.writer.write(&(1u8, vec![2u64])).await.unwrap();
    let heard: (u8, Vec<u64>) = at_client.reader.read().await.unwrap();
    assert_eq!(heard, (1, vec![2]));
    client.close("done for today").await;
    let error = at_server.reader.read::<String>().await.unwrap_err();
    assert!(matches!(&error, WireError::ClosedByPeer { reason, .. } if reason == "done for today"));
}

#[tokio::test]
async fn a_fingerprint_is_stable_and_changes_with_the_certificate() {
    let folder = authority();
    let ada = credentials(folder.path(), "ada");
    let (server, _client) = meet(folder.path(), &ada).await;
    assert_eq!(server.unwrap().0.peer(), ada.identity());
    issue(folder.path(), "ada", year(), Existing::Replace).unwrap();
    let renewed = credentials(folder.path(), "ada");
    assert_eq!(renewed.identity().name, ada.identity().name);
    assert_ne!(renewed.identity().fingerprint, ada.identity().fingerprint);
}

#[tokio::test]
async fn a_client_without_a_certificate_is_refused() {
    let folder = authority();
    let (listener, address) = listen(folder.path(), LIMITS);
    let mut tls = rustls::ClientConfig::builder_with_provider(Arc::new(
        rustls::crypto::ring::default_provider(),
    ))
    .with_protocol_versions(&[&rustls::version::TLS13])
    .unwrap()
    .with_root_certificates(credentials(folder.path(), "ada").roots)
    .with_no_client_auth();
    tls.alpn_protocols = vec![PROTOCOL.into()];
    let tls = quinn::crypto::rustls::QuicClientConfig::try_from(tls).unwrap();
    let endpoint = Endpoint::client(LOOPBACK).unwrap();
    let bare = async {
        let connecting = endpoint
            .connect_with(
                quinn::ClientConfig::new(Arc::new(tls)),
                address.parse().unwrap(),
                "localhost",
            )
            .unwrap();
        let ended = match connecting.await {
            Ok(connection) => connection.closed().await,
            Err(error) => error,
        };
        explain("the coordinator", ended)
    };
    let (server, client) = tokio::join!(arrive(&listener), bare);
    let server = server.unwrap_err();
    assert_eq!(fault(&server), Some(CertificateFault::Missing), "{server}");
    assert!(
        matches!(&client, WireError::OwnCertificate { .. }),
        "{client}"
    );
    assert_eq!(client.code(), "E-WIRE-CERT-MISSING");
}

#[tokio::test]
async fn a_stranger_is_refused_in_both_directions() {
    let (ours, theirs) = (authority(), authority());
    let stranger = credentials(theirs.path(), "ada");

    // The client trusts its own authority only: it refuses the coordinator.
    let (server, client) = meet(ours.path(), &stranger).await;
    let (server, client) = (server.unwrap_err(), client.unwrap_err());
    assert_eq!(fault(&client), Some(CertificateFault::OtherAuthority));
    assert!(matches!(client, WireError::PeerCertificate { .. }));
    assert_eq!(fault(&server), Some(CertificateFault::OtherAuthority));
    assert!(matches!(server, WireError::OwnCertificate { .. }));

    // It is made to trust ours: then the coordinator refuses it.
    let intruder = Credentials::load(
        &theirs.path().join("ada.pem"),
        &theirs.path().join("ada.key"),
        &ours.path().join("authority.pem"),
        SystemTime::now(),
    )
    .unwrap();
    let (server, client) = meet(ours.path(), &intruder).await;
    let (server, client) = (server.unwrap_err(), client.unwrap_err());
    assert_eq!(server.code(), "E-WIRE-CERT-AUTHORITY");
    assert!(matches!(server, WireError::PeerCertificate { .. }));
    assert_eq!(client.code(), "E-WIRE-CERT-AUTHORITY");
    assert!(matches!(client, WireError::OwnCertificate { .. }));
}

#[tokio::test]
async fn an_expired_certificate_is_refused_here_with_its_date_and_there_with_its_reason() {
    let folder = authority();
    let past = SystemTime::UNIX_EPOCH + Duration::from_secs(1_600_000_000);
    let then = Validity {
        from: past,
        until: past + Duration::from_secs(60),
    };
    issue(folder.path(), "bob", then, Existing::Keep).unwrap();
    let load = |now| {
        Credentials::load(
            &folder.path().join("bob.pem"),
            &folder.path().join("bob.key"),
            &folder.path().join("authority.pem"),
            now,
        )
    };
    let error = load(SystemTime::now()).unwrap_err();
    assert!(
        matches!(&error, WireError::Expired { since, .. } if since == "2020-09-13 12:27 UTC"),
        "{error}"
    );
}

#[tokio::test]
async fn a_certificate_that_expires_while_loaded_is_refused_by_the_coordinator() {
    let folder = authority();
    // As a device with a wrong clock would load it: the authority is as old as the certificate.
    let past = SystemTime::UNIX_EPOCH + Duration::from_secs(1_600_000_000);
    let old = tempfile::tempdir().unwrap();
    let then = Validity {
        from: past,
        until: SystemTime::now() + Duration::from_secs(3600),
    };
    new_authority(old.path(), &[], then, Existing::Keep).unwrap();
    let expired = Validity {
        from: past,
        until: past + Duration::from_secs(60),
    };
    issue(old.path(), "bob", expired, Existing::Keep).unwrap();
    let bob = Credentials::from_folder(old.path(), "bob", past).unwrap();
    drop(folder);
    let (server, client) = meet(old.path(), &bob).await;
    let (server, client) = (server.unwrap_err(), client.unwrap_err());
    assert_eq!(server.code(), "E-WIRE-CERT-DATE");
    assert!(matches!(server, WireError::PeerCertificate { .. }));
    assert_eq!(client.code(), "E-WIRE-CERT-DATE");
    assert!(matches!(client, WireError::OwnCertificate { .. }));
}

#[tokio::test]
async fn a_client_certificate_cannot_play_coordinator_nor_the_reverse() {
    let folder = authority();
    let (server, client) = meet(folder.path(), &credentials(folder.path(), COORDINATOR)).await;
    assert_eq!(
        fault(&server.unwrap_err()),
        Some(CertificateFault::WrongRole)
    );
    assert_eq!(client.unwrap_err().code(), "E-WIRE-CERT-ROLE");

    let ada = credentials(folder.path(), "ada");
    let impostor = Listener::bind(LOOPBACK, &ada, LIMITS).unwrap();
    let address = impostor.local_address().unwrap().to_string();
    let (server, client) = tokio::join!(arrive(&impostor), connect(&address, &ada, LIMITS));
    assert!(matches!(
        client.unwrap_err(),
        WireError::PeerCertificate { .. }
    ));
    assert!(matches!(
        server.unwrap_err(),
        WireError::OwnCertificate { .. }
    ));
}

#[tokio::test]
async fn a_coordinator_under_another_host_name_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let hosts = ["federation.example".to_owned()];
    new_authority(folder.path(), &hosts, year(), Existing::Keep).unwrap();
    issue(folder.path(), "ada", year(), Existing::Keep).unwrap();
    let (server, client) = meet(folder.path(), &credentials(folder.path(), "ada")).await;
    let client = client.unwrap_err();
    assert_eq!(fault(&client), Some(CertificateFault::WrongHost));
    assert!(
        client.to_string().contains("federation.example"),
        "{client}"
    );
    assert_eq!(server.unwrap_err().code(), "E-WIRE-CERT-HOST");
}

#[tokio::test]
async fn another_version_of_the_protocol_is_told_so_on_both_sides() {
    let folder = authority();
    let (listener, address) = listen(folder.path(), LIMITS);
    let config = client_config(&credentials(folder.path(), "ada"), "selvedge/99", LIMITS).unwrap();
    let endpoint = Endpoint::client(LOOPBACK).unwrap();
    let newer = endpoint
        .connect_with(config, address.parse().unwrap(), "localhost")
        .unwrap();
    let (server, client) = tokio::join!(arrive(&listener), newer);
    assert!(matches!(server, Err(WireError::Version { .. })));
    let client = explain("the coordinator", client.unwrap_err());
    assert!(matches!(client, WireError::Version { .. }), "{client}");

    let config = server_config(
        &credentials(folder.path(), COORDINATOR),
        "selvedge/99",
        LIMITS,
    )
    .unwrap();
    let newer = Endpoint::server(config, LOOPBACK).unwrap();
    let address = newer.local_addr().unwrap().to_string();
    let accept = async {
        match newer.accept().await.unwrap().accept() {
            Ok(connecting) => connecting.await.is_err(),
            Err(_) => true,
        }
    };
    let ada = credentials(folder.path(), "ada");
    let (refused, client) = tokio::join!(accept, connect(&address, &ada, LIMITS));
    assert!(refused);
    assert_eq!(client.unwrap_err().code(), "E-WIRE-VERSION");
}

#[tokio::test]
async fn an_address_where_nobody_listens_is_named_after_the_connect_limit() {
    let folder = authority();
    let silent = UdpSocket::bind(LOOPBACK).await.unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let limits = Limits {
        connect: Duration::from_millis(300),
        ..LIMITS
    };
    let error = connect(&address, &credentials(folder.path(), "ada"), limits)
        .await
        .unwrap_err();
    assert!(matches!(&error, WireError::Unreachable { address: named, .. } if *named == address));
    assert!(error.is_transient());
    for nonsense in ["no-port", "localhost:", "127.0.0.1:99999"] {
        let error = connect(nonsense, &credentials(folder.path(), "ada"), limits)
            .await
            .unwrap_err();
        assert_eq!(error.code(), "E-WIRE-ADDRESS", "{nonsense}");
    }
}

#[tokio::test]
async fn one_that_knocks_and_says_nothing_is_let_go() {
    let folder = authority();
    let (listener, address) = listen(folder.path(), SHORT);
    let config = client_config(&credentials(folder.path(), "ada"), PROTOCOL, LIMITS).unwrap();
    let endpoint = Endpoint::client(LOOPBACK).unwrap();
    let silent = endpoint
        .connect_with(config, address.parse().unwrap(), "localhost")
        .unwrap();
    let (server, _connection) = tokio::join!(arrive(&listener), silent);
    let error = server.unwrap_err();
    assert!(matches!(
        error,
        WireError::Stalled {
            doing: "joining",
            ..
        }
    ));
}

#[tokio::test]
async fn a_frame_over_the_limit_is_refused_by_its_length_alone() {
    let ((server, _control), (client, _)) = linked(LIMITS).await;
    let (mut send, _receive) = client.connection().open_bi().await.unwrap();
    let length = u32::try_from(FRAME_BYTES_MAX + 1).unwrap();
    send.write_all(&length.to_le_bytes()).await.unwrap();
    let (_send, receive) = server.connection().accept_bi().await.unwrap();
    let mut reader = FrameReader::new(receive, server.label().clone(), LIMITS.idle);
    let error = reader.read::<String>().await.unwrap_err();
    assert!(matches!(
        error,
        WireError::FrameTooLarge { bytes, limit, .. }
            if bytes == FRAME_BYTES_MAX + 1 && limit == FRAME_BYTES_MAX
    ));
}

#[tokio::test]
async fn a_message_over_the_limit_is_not_sent_and_the_next_one_is() {
    let ((_server, mut at_server), (_client, mut at_client)) = linked(LIMITS).await;
    let large = "x".repeat(FRAME_BYTES_MAX);
    let error = at_client.writer.write(&large).await.unwrap_err();
    assert_eq!(error.code(), "E-WIRE-UNSENDABLE");
    let largest = "x".repeat(FRAME_BYTES_MAX - 8);
    let (written, read) = tokio::join!(
        at_client.writer.write(&largest),
        at_server.reader.read::<String>()
    );
    written.unwrap();
    assert_eq!(read.unwrap(), largest);
}

#[tokio::test]
async fn a_message_of_another_kind_is_malformed_and_the_next_one_is_read() {
    let ((_server, mut at_server), (_client, mut at_client)) = linked(LIMITS).await;
    at_client.writer.write(&[7u8; 30]).await.unwrap();
    at_client.writer.write("well formed").await.unwrap();
    let error = at_server.reader.read::<(u8, u8)>().await.unwrap_err();
    assert_eq!(error.code(), "E-WIRE-MALFORMED");
    let next: String = at_server.reader.read().await.unwrap();
    assert_eq!(next, "well formed");
}

#[tokio::test]
async fn a_frame_that_is_never_completed_is_given_up() {
    let ((server, _a), (client, _b)) = linked(SHORT).await;
    let (mut send, _receive) = client.connection().open_bi().await.unwrap();
    send.write_all(&[100, 0, 0, 0, 1, 2, 3]).await.unwrap();
    let (_send, receive) = server.connection().accept_bi().await.unwrap();
    let mut reader = FrameReader::new(receive, server.label().clone(), SHORT.idle);
    let error = reader.read::<String>().await.unwrap_err();
    assert!(matches!(error, WireError::Stalled { .. }));
}

#[tokio::test]
async fn reading_can_be_cancelled_without_losing_a_byte() {
    let ((server, _a), (client, _b)) = linked(LIMITS).await;
    let (mut send, _receive) = client.connection().open_bi().await.unwrap();
    let bytes = frame("", "in three pieces").unwrap();
    send.write_all(&bytes[..2]).await.unwrap();
    let (_send, receive) = server.connection().accept_bi().await.unwrap();
    let mut reader = FrameReader::new(receive, server.label().clone(), LIMITS.idle);
    for piece in [&bytes[2..9], &bytes[9..]] {
        let cancelled = tokio::time::timeout(Duration::from_millis(50), reader.read::<String>());
        assert!(cancelled.await.is_err());
        send.write_all(piece).await.unwrap();
    }
    assert_eq!(reader.read::<String>().await.unwrap(), "in three pieces");
}

#[tokio::test]
async fn idle_peers_stay_linked_and_vanished_ones_are_noticed() {
    let limits = Limits {
        idle: Duration::from_millis(900),
        ..LIMITS
    };
    let folder = authority();
    let (listener, address) = listen(folder.path(), limits);
    let (dialled, cut) = lossy(&address).await;
    let ada = credentials(folder.path(), "ada");
    let (server, client) = tokio::join!(arrive(&listener), connect(&dialled, &ada, limits));
    let ((server, mut at_server), (client, mut at_client)) = (server.unwrap(), client.unwrap());

    // Longer than the idle limit, with nothing said: keep-alives hold the link.
    tokio::time::sleep(2 * limits.idle).await;
    at_client.writer.write("still here").await.unwrap();
    let heard: String = at_server.reader.read().await.unwrap();
    assert_eq!(heard, "still here");

    cut.store(0, Ordering::SeqCst);
    let (a, b) = tokio::join!(at_server.reader.read::<String>(), client.closed());
    assert!(matches!(a, Err(WireError::Lost { .. })));
    assert!(matches!(b, WireError::Lost { .. }));
    assert!(matches!(server.closed().await, WireError::Lost { .. }));
}

#[tokio::test]
async fn a_blob_larger_than_any_frame_or_window_arrives_while_messages_pass() {
    let ((server, mut at_server), (client, mut at_client)) = linked(LIMITS).await;
    let whole = content(40 << 20);
    let store = BlobStore::new(64 << 20);
    let held = store.hold(whole.clone()).unwrap();
    let mut partial = Partial::new(held.reference(), whole.len() as u64).unwrap();
    let messages = async {
        for number in 0..20u32 {
            at_client.writer.write(&number).await.unwrap();
            assert_eq!(at_server.reader.read::<u32>().await.unwrap(), number);
        }
    };
    let (got, ()) = tokio::select! {
        both = async { tokio::join!(pull(&client, &mut partial), messages) } => both,
        ended = serve_blobs(&server, &store) => panic!("{ended}"),
    };
    assert!(got.unwrap() == whole);
}

#[tokio::test]
async fn blobs_travel_both_ways_at_once_and_empty_ones_too() {
    let ((server, _a), (client, _b)) = linked(LIMITS).await;
    let (down, up) = (content(3 << 20), content(0));
    let (at_server, at_client) = (BlobStore::new(9 << 20), BlobStore::new(9 << 20));
    let held_down = at_server.hold(down.clone()).unwrap();
    let held_up = at_client.hold(up.clone()).unwrap();
    let mut wanted_down = Partial::new(held_down.reference(), u64::MAX).unwrap();
    let mut wanted_up = Partial::new(held_up.reference(), 0).unwrap();
    let (got_down, got_up) = tokio::select! {
        both = async {
            tokio::join!(pull(&client, &mut wanted_down), pull(&server, &mut wanted_up))
        } => both,
        ended = serve_blobs(&server, &at_server) => panic!("{ended}"),
        ended = serve_blobs(&client, &at_client) => panic!("{ended}"),
    };
    assert!(got_down.unwrap() == down);
    assert!(got_up.unwrap() == up);
}

#[tokio::test]
async fn more_blobs_than_streams_are_served_in_turn() {
    let ((server, _a), (client, _b)) = linked(LIMITS).await;
    let store = BlobStore::new(u64::MAX);
    let mut all = tokio::task::JoinSet::new();
    let mut guards = Vec::new();
    for size in 0..100 {
        let held = store.hold(content(1000 + size)).unwrap();
        let (client, reference) = (client.clone(), held.reference());
        guards.push(held);
        all.spawn(async move {
            let mut partial = Partial::new(reference, 2000).unwrap();
            pull(&client, &mut partial).await.map(|got| got.len())
        });
    }
    let mut sizes: Vec<usize> = tokio::select! {
        sizes = all.join_all() => sizes.into_iter().map(Result::unwrap).collect(),
        ended = serve_blobs(&server, &store) => panic!("{ended}"),
    };
    sizes.sort_unstable();
    assert_eq!(sizes, (1000..1100).collect::<Vec<_>>());
}

/// A holder that answers every request with these bytes, whatever was asked.
async fn answer_with(link: &Link, bytes: &[u8]) -> ! {
    loop {
        let (mut send, _receive) = link.connection().accept_bi().await.unwrap();
        send.write_all(bytes).await.unwrap();
        send.finish().unwrap();
        let _ = send.stopped().await;
    }
}

async fn pull_from_liar(promised: BlobReference, sent: &[u8]) -> (WireError, u64) {
    let ((server, _a), (client, _b)) = linked(LIMITS).await;
    let mut partial = Partial::new(promised, promised.bytes).unwrap();
    let got = tokio::select! {
        got = pull(&client, &mut partial) => got,
        never = answer_with(&server, sent) => never,
    };
    (got.unwrap_err(), partial.received())
}

#[tokio::test]
async fn too_few_too_many_and_wrong_bytes_are_told_apart() {
    let whole = content(5000);
    let promised = BlobReference::of(&whole);
    let (error, _) = pull_from_liar(promised, &whole[..4000]).await;
    assert!(matches!(error, WireError::BlobTooShort { got: 4000, .. }));
    let (error, _) = pull_from_liar(promised, &[&whole[..], b"x"].concat()).await;
    assert!(matches!(error, WireError::BlobTooLong { .. }));
    let mut wrong = whole.to_vec();
    wrong[2500] ^= 1;
    let (error, kept) = pull_from_liar(promised, &wrong).await;
    assert!(matches!(error, WireError::BlobHash { .. }));
    assert_eq!(kept, 0, "wrong bytes must not be built upon");
}

#[tokio::test]
async fn a_blob_that_is_not_held_is_named_and_so_is_one_withdrawn() {
    let ((server, _a), (client, _b)) = linked(LIMITS).await;
    let store = BlobStore::new(1 << 20);
    let held = store.hold(content(10)).unwrap();
    let mut partial = Partial::new(held.reference(), 10).unwrap();
    drop(held);
    let got = tokio::select! {
        got = pull(&client, &mut partial) => got,
        ended = serve_blobs(&server, &store) => panic!("{ended}"),
    };
    assert!(matches!(got, Err(WireError::BlobNotHeld { .. })));
}

#[tokio::test]
async fn a_holder_that_sends_nothing_is_given_up() {
    let ((_server, _a), (client, _b)) = linked(SHORT).await;
    let mut partial = Partial::new(BlobReference::of(b"x"), 1).unwrap();
    let error = pull(&client, &mut partial).await.unwrap_err();
    assert!(matches!(error, WireError::Stalled { .. }));
    assert!(error.is_transient());
}

#[tokio::test]
async fn a_link_cut_half_way_resumes_in_each_direction_without_sending_all_again() {
    const SIZE: u64 = 4 << 20;
    let folder = authority();
    let (listener, address) = listen(folder.path(), SHORT);
    let ada = credentials(folder.path(), "ada");
    let whole = content(SIZE as usize);
    let store = BlobStore::new(SIZE);
    let held = store.hold(whole.clone()).unwrap();

    for client_pulls in [true, false] {
        let mut partial = Partial::new(held.reference(), SIZE).unwrap();
        let (lossy, budget) = lossy(&address).await;
        budget.store(SIZE / 2, Ordering::SeqCst);
        let mut dialled = &lossy;
        for attempt in 0..2 {
            let (server, client) = tokio::join!(arrive(&listener), connect(dialled, &ada, SHORT));
            let ((server, _a), (client, _b)) = (server.unwrap(), client.unwrap());
            let (puller, holder) = match client_pulls {
                true => (client, server),
                false => (server, client),
            };
            let kept = partial.received();
            let (got, _) = tokio::join!(
                async {
                    let got = pull(&puller, &mut partial).await;
                    puller.close("pulled").await;
                    got
                },
                serve_blobs(&holder, &store)
            );
            if attempt == 0 {
                assert!(got.unwrap_err().is_transient());
                let kept = partial.received();
                assert!(kept > SIZE / 4 && kept < SIZE, "{kept}");
                dialled = &address;
            } else {
                assert!(got.unwrap() == whole);
                let (_, received) = puller.traffic();
                assert!(received < SIZE - kept + SIZE / 8, "{received} after {kept}");
            }
        }
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

#[test]
fn a_blob_over_the_limit_is_refused_before_anything_is_asked() {
    let reference = BlobReference {
        hash: [0; 32],
        bytes: u64::MAX,
    };
    assert!(matches!(
        Partial::new(reference, 1000),
        Err(WireError::BlobTooLarge { limit: 1000, .. })
    ));
}

#[test]
fn a_store_holds_equal_contents_once_and_never_more_than_its_capacity() {
    let store = BlobStore::new(100);
    let first = store.hold(content(60)).unwrap();
    let second = store.hold(content(60)).unwrap();
    assert_eq!(store.held_bytes(), 60);
    assert!(matches!(
        store.hold(content(41)),
        Err(WireError::StoreFull {
            held: 60,
            capacity: 100,
            ..
        })
    ));
    let third = store.hold(content(40)).unwrap();
    drop(first);
    assert!(store.get(&second.reference().hash).is_some());
    drop((second, third));
    assert_eq!(store.held_bytes(), 0);
}

#[test]
fn clients_names_are_plain() {
    for good in ["a", "0", "edge-7", &"x".repeat(63)] {
        assert!(is_client_name(good), "{good}");
    }
    let long = "x".repeat(64);
    for bad in [
        "",
        "-a",
        "A",
        "a.b",
        "../a",
        "ä",
        "a b",
        "authority",
        "coordinator",
        &long,
    ] {
        assert!(!is_client_name(bad), "{bad}");
        let error = issue(Path::new("/"), bad, year(), Existing::Keep).unwrap_err();
        assert_eq!(error.code(), "E-WIRE-NAME");
    }
}

#[test]
fn nothing_is_overwritten_unasked() {
    let folder = authority();
    let before = fs::read(folder.path().join("ada.pem")).unwrap();
    for outcome in [
        issue(folder.path(), "ada", year(), Existing::Keep),
        new_authority(folder.path(), &[], year(), Existing::Keep),
    ] {
        assert!(matches!(outcome, Err(WireError::Exists { .. })));
    }
    assert_eq!(fs::read(folder.path().join("ada.pem")).unwrap(), before);
    issue(folder.path(), "ada", year(), Existing::Replace).unwrap();
    assert_ne!(fs::read(folder.path().join("ada.pem")).unwrap(), before);
    assert_eq!(
        fs::read_dir(folder.path()).unwrap().count(),
        6,
        "no file left aside"
    );
}

#[cfg(unix)]
#[test]
fn private_keys_are_readable_by_their_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let folder = authority();
    for entry in fs::read_dir(folder.path()).unwrap() {
        let path = entry.unwrap().path();
        let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        let is_key = path.extension().unwrap() == "key";
        assert_eq!(mode & 0o077 == 0, is_key, "{}: {mode:o}", path.display());
    }
}

#[test]
fn unusable_files_are_named() {
    let folder = authority();
    let load = |certificate: &str, key: &str| {
        let path = |name: &str| folder.path().join(name);
        let now = SystemTime::now();
        Credentials::load(&path(certificate), &path(key), &path("authority.pem"), now).unwrap_err()
    };
    let named = |error: &WireError, name: &str| {
        assert!(error.to_string().contains(name), "{error}");
    };
    let error = load("eve.pem", "ada.key");
    assert_eq!(error.code(), "E-WIRE-FILE");
    named(&error, "eve.pem");
    let error = load("ada.key", "ada.key");
    assert_eq!(error.code(), "E-WIRE-PEM");
    named(&error, "ada.key");
    let error = load("ada.pem", "ada.pem");
    assert_eq!(error.code(), "E-WIRE-PEM");
    let error = load("ada.pem", "coordinator.key");
    assert!(matches!(error, WireError::KeyMismatch { .. }));
    named(&error, "coordinator.key");
    let text = fs::read_to_string(folder.path().join("ada.pem")).unwrap();
    fs::write(folder.path().join("ada.pem"), &text[..text.len() / 2]).unwrap();
    let error = load("ada.pem", "ada.key");
    assert_eq!(error.code(), "E-WIRE-PEM");
    let then = Validity {
        from: SystemTime::now() + Duration::from_secs(86_400),
        until: SystemTime::now() + Duration::from_secs(2 * 86_400),
    };
    issue(folder.path(), "early", then, Existing::Keep).unwrap();
    let error = load("early.pem", "early.key");
    assert!(matches!(error, WireError::NotYetValid { .. }));
}
