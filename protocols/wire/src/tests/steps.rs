//! Steps: whole, both ways, broken off, too large, unwanted.

use std::pin::pin;

use quinn::{RecvStream, SendStream};
use tokio::{
    sync::mpsc::{Receiver, channel},
    time::{Instant, timeout},
};

use super::*;

const LARGE: usize = 20 << 20;

/// A link whose coordinator takes steps, and what it takes.
struct Split {
    client: Link,
    server: Link,
    taken: Receiver<Steps>,
    _controls: (Control, Control),
}

async fn split(limits: Limits) -> Split {
    let ((server, a), (client, b)) = linked(limits).await;
    let (taker, taken) = channel(1);
    let link = server.clone();
    tokio::spawn(async move { serve_streams(&link, &BlobStore::new(0), Some(taker)).await });
    Split {
        client,
        server,
        taken,
        _controls: (a, b),
    }
}

impl Split {
    /// Both ends of a new stream: (coordinator's, client's).
    async fn steps(&mut self) -> (Steps, Steps) {
        let at_client = open_steps(&self.client).await.unwrap();
        (self.taken.recv().await.unwrap(), at_client)
    }

    /// A stream of steps on which these bytes were sent, and its reader.
    async fn raw(&mut self, bytes: &[u8]) -> (StepReader, SendStream, RecvStream) {
        let (mut send, receive) = self.client.connection().open_bi().await.unwrap();
        send.write_all(&[StreamKind::Steps as u8]).await.unwrap();
        send.write_all(bytes).await.unwrap();
        let steps = self.taken.recv().await.unwrap();
        (steps.reader, send, receive)
    }

    /// A step as it is sent, whose payload may be other than was announced.
    fn step(&self, announced: u64, payload: &[u8]) -> Vec<u8> {
        let message = frame(self.client.as_peer(), "a step").unwrap();
        [&message[..], &announced.to_le_bytes(), payload].concat()
    }
}

async fn read(reader: &mut StepReader, limit: u64) -> Result<(String, Bytes), WireError> {
    reader.read(|_| limit).await
}

#[tokio::test]
async fn steps_arrive_whole_and_in_order_both_ways() {
    let mut split = split(LIMITS).await;
    let (mut at_server, mut at_client) = split.steps().await;
    let payloads = [0, 1, 6 << 20, 0, 70_000].map(content);
    let send = async |writer: &mut StepWriter| {
        for (number, payload) in payloads.iter().enumerate() {
            writer
                .write(&(number, payload.len() as u64), payload.clone())
                .await
                .unwrap();
        }
    };
    let receive = async |reader: &mut StepReader| {
        for (number, payload) in payloads.iter().enumerate() {
            // The message says how much may follow it.
            let got = reader.read(|(_, bytes): &(usize, u64)| *bytes).await;
            let ((heard, _), got) = got.unwrap();
            assert_eq!(heard, number);
            assert!(got == payload);
        }
    };
    tokio::join!(
        send(&mut at_server.writer),
        send(&mut at_client.writer),
        receive(&mut at_server.reader),
        receive(&mut at_client.reader),
    );
    // Then one side has no more to say, and the other still has.
    drop(at_client.writer);
    let error = read(&mut at_server.reader, 0).await.unwrap_err();
    assert!(matches!(error, WireError::ClosedByPeer { .. }), "{error}");
    at_server.writer.write("the last", Bytes::new()).await.unwrap();
    let (heard, _) = read(&mut at_client.reader, 0).await.unwrap();
    assert_eq!(heard, "the last");
}

#[tokio::test]
async fn a_payload_over_its_limit_is_refused_before_it_is_allocated() {
    let mut split = split(LIMITS).await;
    // No machine could allocate the second and third.
    for (announced, allowed) in [(101, 100), (u64::MAX, 100), (u64::MAX, u64::MAX), (1, 0)] {
        let step = split.step(announced, b"x");
        let (mut reader, _send, _receive) = split.raw(&step).await;
        // The stream stays useless.
        for _ in 0..2 {
            let error = read(&mut reader, allowed).await.unwrap_err();
            assert!(
                matches!(error, WireError::PayloadTooLarge { bytes, limit, .. } if (bytes, limit) == (announced, allowed)),
                "{error}"
            );
            assert_eq!(error.code(), "E-WIRE-PAYLOAD-SIZE");
            assert!(!error.is_transient());
        }
    }
    let step = split.step(4, b"just");
    let (mut reader, _send, _receive) = split.raw(&step).await;
    let (_, payload) = read(&mut reader, 4).await.unwrap();
    assert_eq!(payload, &b"just"[..]);
}

#[tokio::test]
async fn a_step_that_stops_half_way_is_given_up() {
    let mut split = split(SHORT).await;
    let step = split.step(1000, &[7; 10]);
    for length in [2, step.len() - 12, step.len()] {
        let (mut reader, mut send, _receive) = split.raw(&step[..length]).await;
        let begun = Instant::now();
        let error = read(&mut reader, 1000).await.unwrap_err();
        assert!(matches!(error, WireError::Stalled { .. }), "{error}");
        assert!(begun.elapsed() < 2 * SHORT.idle);

        // Ended there rather than silent there.
        let (mut reader, mut other, _receive) = split.raw(&step[..length]).await;
        other.finish().unwrap();
        let error = read(&mut reader, 1000).await.unwrap_err();
        assert!(matches!(error, WireError::ClosedByPeer { .. }), "{error}");
        send.finish().unwrap();
    }
}

#[tokio::test]
async fn a_message_of_another_kind_is_malformed() {
    let mut split = split(LIMITS).await;
    let step = split.step(0, b"");
    let (mut reader, _send, _receive) = split.raw(&step).await;
    let error = reader.read(|_: &[u64; 30]| 0).await.unwrap_err();
    assert_eq!(error.code(), "E-WIRE-MALFORMED");
}

#[tokio::test]
async fn reading_steps_can_be_cancelled_without_losing_a_byte() {
    let mut split = split(LIMITS).await;
    let bytes = split.step(300, &content(300));
    let (mut reader, mut send, _receive) = split.raw(&bytes[..2]).await;
    let head = bytes.len() - 300;
    let cuts = [2, head - 4, head, head + 100, bytes.len()];
    for cut in cuts.windows(2) {
        let cancelled = timeout(Duration::from_millis(50), read(&mut reader, 300));
        assert!(cancelled.await.is_err());
        send.write_all(&bytes[cut[0]..cut[1]]).await.unwrap();
    }
    let (message, payload) = read(&mut reader, 300).await.unwrap();
    assert_eq!(message, "a step");
    assert_eq!(payload, content(300));
}

#[tokio::test]
async fn a_write_that_is_cancelled_ends_the_stream_on_both_sides() {
    let mut split = split(LIMITS).await;
    let (mut at_server, mut at_client) = split.steps().await;
    let large = at_client.writer.write("large", content(LARGE));
    let cancelled = timeout(Duration::from_millis(50), large);
    assert!(cancelled.await.is_err(), "nobody reads it");
    let error = at_client.writer.write("next", Bytes::new()).await.unwrap_err();
    assert!(matches!(error, WireError::ClosedHere { .. }), "{error}");
    drop(at_client);
    let error = read(&mut at_server.reader, LARGE as u64).await.unwrap_err();
    assert!(matches!(error, WireError::ClosedByPeer { .. }), "{error}");
}

#[tokio::test]
async fn a_peer_that_reads_no_steps_is_noticed() {
    let mut split = split(SHORT).await;
    let (at_server, mut at_client) = split.steps().await;
    let error = at_client.writer.write("large", content(LARGE)).await.unwrap_err();
    assert!(matches!(error, WireError::Stalled { .. }), "{error}");
    drop((at_server, at_client));

    let (at_server, mut at_client) = split.steps().await;
    drop(at_server);
    let error = at_client.writer.write("large", content(LARGE)).await.unwrap_err();
    assert!(matches!(error, WireError::ClosedByPeer { .. }), "{error}");
}

#[tokio::test]
async fn a_link_that_ends_wakes_the_reader() {
    let mut split = split(LIMITS).await;
    let (mut at_server, _at_client) = split.steps().await;
    let (error, ()) = tokio::join!(read(&mut at_server.reader, 0), split.client.close("done for today"));
    let error = error.unwrap_err();
    assert!(
        matches!(&error, WireError::ClosedByPeer { reason, .. } if reason == "done for today"),
        "{error}"
    );
    // And whoever waits for streams.
    assert!(split.taken.recv().await.is_none());
}

#[tokio::test]
async fn blobs_and_messages_pass_while_a_large_payload_is_under_way() {
    let mut split = split(LIMITS).await;
    let (mut at_server, mut at_client) = split.steps().await;
    let (large, whole) = (content(LARGE), content(6 << 20));
    let store = BlobStore::new(6 << 20);
    let held = store.hold(whole.clone()).unwrap();
    let mut partial = Partial::new(held.reference(), held.reference().bytes).unwrap();
    // Nobody reads the payload yet, so that it cannot end.
    let mut writing = pin!(at_client.writer.write("large", large.clone()));
    let pulled = tokio::select! {
        written = &mut writing => panic!("{written:?}"),
        ended = serve_streams(&split.client, &store, None) => panic!("{ended}"),
        pulled = async {
            let (a, b) = &mut split._controls;
            b.writer.write("hello").await.unwrap();
            assert_eq!(a.reader.read::<String>().await.unwrap(), "hello");
            pull(&split.server, &mut partial).await
        } => pulled,
    };
    assert!(pulled.unwrap() == whole);
    let (written, got) = tokio::join!(writing, read(&mut at_server.reader, LARGE as u64));
    written.unwrap();
    assert!(got.unwrap().1 == large);
}

#[tokio::test]
async fn a_side_that_takes_no_steps_refuses_them() {
    let ((server, _a), (client, _b)) = linked(LIMITS).await;
    let store = BlobStore::new(10);
    let held = store.hold(content(10)).unwrap();
    let (gone, _) = channel(1);
    for taker in [None, Some(gone)] {
        let talk = async {
            let mut steps = open_steps(&client).await.unwrap();
            let error = read(&mut steps.reader, 0).await.unwrap_err();
            assert!(matches!(error, WireError::StepsRefused { .. }), "{error}");
            let error = steps.writer.write("large", content(LARGE)).await.unwrap_err();
            assert!(matches!(error, WireError::StepsRefused { .. }), "{error}");
            let mut partial = Partial::new(held.reference(), 10).unwrap();
            pull(&client, &mut partial).await.unwrap()
        };
        let pulled = tokio::select! {
            pulled = talk => pulled,
            ended = serve_streams(&server, &store, taker) => panic!("{ended}"),
        };
        assert_eq!(pulled, content(10));
    }
}

#[tokio::test]
async fn streams_for_which_there_is_no_room_are_refused() {
    let mut split = split(SHORT).await;
    // As many as QUIC lets a client open beside the control stream.
    let mut opened = Vec::new();
    for _ in 1..quic_settings::STREAMS_MAX {
        opened.push(open_steps(&split.client).await.unwrap());
    }
    let mut refused = 0;
    for steps in &mut opened {
        match timeout(2 * SHORT.idle, read(&mut steps.reader, 0)).await {
            Ok(Err(WireError::StepsRefused { .. })) => refused += 1,
            Ok(other) => panic!("{other:?}"),
            Err(_) => {}
        }
    }
    assert_eq!(refused, opened.len() - 1);
    assert!(split.taken.try_recv().is_ok());
    assert!(split.taken.try_recv().is_err());
}

#[tokio::test]
async fn a_newer_stream_comes_after_the_older() {
    const LAST: u32 = 9;
    let mut split = split(LIMITS).await;
    let mut opened = Vec::new();
    for number in 0..=LAST {
        let mut steps = open_steps(&split.client).await.unwrap();
        steps.writer.write(&number, Bytes::new()).await.unwrap();
        opened.push(steps);
    }
    let mut newest = None;
    while newest != Some(LAST) {
        let mut steps = split.taken.recv().await.unwrap();
        let (number, _) = steps.reader.read(|_: &u32| 0).await.unwrap();
        assert!(newest < Some(number), "{number} after {newest:?}");
        newest = Some(number);
    }
}
