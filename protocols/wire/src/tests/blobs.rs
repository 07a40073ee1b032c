//! Blobs: whole, broken, resumed, forged.

use super::*;

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
        ended = serve_streams(&server, &store, None) => panic!("{ended}"),
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
        ended = serve_streams(&server, &at_server, None) => panic!("{ended}"),
        ended = serve_streams(&client, &at_client, None) => panic!("{ended}"),
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
        ended = serve_streams(&server, &store, None) => panic!("{ended}"),
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
async fn a_blob_that_was_withdrawn_is_told_to_be_gone() {
    let ((server, _a), (client, _b)) = linked(LIMITS).await;
    let store = BlobStore::new(1 << 20);
    let held = store.hold(content(10)).unwrap();
    let mut partial = Partial::new(held.reference(), 10).unwrap();
    drop(held);
    let got = tokio::select! {
        got = pull(&client, &mut partial) => got,
        ended = serve_streams(&server, &store, None) => panic!("{ended}"),
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
                serve_streams(&holder, &store, None)
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

#[tokio::test]
async fn nonsense_on_a_stream_costs_that_stream_and_not_the_link() {
    let ((server, _a), (client, _b)) = linked(LIMITS).await;
    let store = BlobStore::new(1 << 20);
    let held = store.hold(content(10)).unwrap();
    let past_the_end = [
        &[StreamKind::Blob as u8][..],
        &frame(client.as_peer(), &(held.reference().hash, 11u64)).unwrap(),
    ];
    let nonsense = [
        b"\xff".to_vec(),
        vec![StreamKind::Control as u8],
        vec![StreamKind::Blob as u8, 255, 255, 255, 255],
        vec![StreamKind::Blob as u8, 1, 0, 0, 0, 7],
        past_the_end.concat(),
    ];
    let talk = async {
        for bytes in nonsense {
            let (mut send, mut receive) = client.connection().open_bi().await.unwrap();
            send.write_all(&bytes).await.unwrap();
            let error = receive.read(&mut [0]).await.unwrap_err();
            assert!(matches!(error, quinn::ReadError::Reset(_)), "{bytes:?}");
        }
        let mut partial = Partial::new(held.reference(), 10).unwrap();
        pull(&client, &mut partial).await.unwrap()
    };
    let got = tokio::select! {
        got = talk => got,
        ended = serve_streams(&server, &store, None) => panic!("{ended}"),
    };
    assert_eq!(got, content(10));
}
