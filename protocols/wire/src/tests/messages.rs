//! Control frames, and noticing that a peer is gone.

use super::*;

#[tokio::test]
async fn a_frame_over_the_limit_is_refused_by_its_length_alone() {
    let ((server, _control), (client, _)) = linked(LIMITS).await;
    let (mut send, _receive) = client.connection().open_bi().await.unwrap();
    let length = u32::try_from(FRAME_BYTES_MAX + 1).unwrap();
    send.write_all(&length.to_le_bytes()).await.unwrap();
    let (_send, receive) = server.connection().accept_bi().await.unwrap();
    let mut reader = FrameReader::new(receive, server.as_peer().clone());
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
    let (written, read) = tokio::join!(at_client.writer.write(&largest), at_server.reader.read::<String>());
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
    let mut reader = FrameReader::new(receive, server.as_peer().clone());
    let error = reader.read::<String>().await.unwrap_err();
    assert!(matches!(error, WireError::Stalled { .. }));
}

#[tokio::test]
async fn reading_can_be_cancelled_without_losing_a_byte() {
    let ((server, _a), (client, _b)) = linked(LIMITS).await;
    let (mut send, _receive) = client.connection().open_bi().await.unwrap();
    let bytes = frame(client.as_peer(), "in three pieces").unwrap();
    send.write_all(&bytes[..2]).await.unwrap();
    let (_send, receive) = server.connection().accept_bi().await.unwrap();
    let mut reader = FrameReader::new(receive, server.as_peer().clone());
    for piece in [&bytes[2..9], &bytes[9..]] {
        let cancelled = tokio::time::timeout(Duration::from_millis(50), reader.read::<String>());
        assert!(cancelled.await.is_err());
        send.write_all(piece).await.unwrap();
    }
    assert_eq!(reader.read::<String>().await.unwrap(), "in three pieces");
}

#[tokio::test]
async fn idle_peers_stay_linked_and_vanished_ones_are_noticed() {
    let limits = SHORT;
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
