//! Who is let in, and what the others are told.

use super::*;

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
    let mut tls = rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
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
        ended.explain("the coordinator")
    };
    let (server, client) = tokio::join!(arrive(&listener), bare);
    let server = server.unwrap_err();
    assert_eq!(fault(&server), Some(CertificateFault::Missing), "{server}");
    assert!(matches!(&client, WireError::OwnCertificate { .. }), "{client}");
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
async fn a_certificate_that_expires_while_loaded_is_refused_by_the_coordinator() {
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
    assert_eq!(fault(&server.unwrap_err()), Some(CertificateFault::WrongRole));
    assert_eq!(client.unwrap_err().code(), "E-WIRE-CERT-ROLE");

    let ada = credentials(folder.path(), "ada");
    let impostor = Listener::bind(LOOPBACK, &ada, LIMITS).unwrap();
    let address = impostor.local_address().unwrap().to_string();
    let (server, client) = tokio::join!(arrive(&impostor), connect(&address, &ada, LIMITS));
    assert!(matches!(client.unwrap_err(), WireError::PeerCertificate { .. }));
    assert!(matches!(server.unwrap_err(), WireError::OwnCertificate { .. }));
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
    assert!(client.to_string().contains("federation.example"), "{client}");
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
    let client = client.unwrap_err().explain("the coordinator");
    assert!(matches!(client, WireError::Version { .. }), "{client}");

    let config = server_config(&credentials(folder.path(), COORDINATOR), "selvedge/99", LIMITS).unwrap();
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
    assert!(matches!(error, WireError::Stalled { doing: "joining", .. }));
}

#[tokio::test]
async fn a_name_with_several_addresses_is_reached_at_the_one_that_answers() {
    let folder = authority();
    // "localhost" is often ::1 too, where nobody listens.
    let (listener, address) = listen(folder.path(), LIMITS);
    let dialled = address.replace("127.0.0.1", "localhost");
    let ada = credentials(folder.path(), "ada");
    let (server, client) = tokio::join!(arrive(&listener), connect(&dialled, &ada, LIMITS));
    assert_eq!(server.unwrap().0.peer().name, "ada");
    assert_eq!(client.unwrap().0.peer().name, COORDINATOR);
}
