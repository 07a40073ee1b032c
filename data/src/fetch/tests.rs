use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::PathBuf;
use std::thread;

use flate2::{Compression, write::GzEncoder};

use super::*;

const CONTENT: &[u8] = b"sixteen bytes ok";

/// A file that is small enough for a test.
fn published() -> PublishedFile {
    let blake3 = blake3::hash(CONTENT).to_hex().to_string().leak();
    PublishedFile {
        name: "small-ubyte",
        bytes: CONTENT.len() as u64,
        blake3,
    }
}

fn gzipped(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

/// A folder to fetch from with the file `name`, and an empty one to fetch into.
fn folders(name: &str, content: &[u8]) -> (tempfile::TempDir, tempfile::TempDir) {
    let (from, into) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(from.path().join(name), content).unwrap();
    (from, into)
}

fn fetch_from(places: &[&str], into: &Path) -> Result<(), Vec<String>> {
    published().fetch(places, into, &mut |_| {})
}

fn names_in(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into())
        .collect()
}

/// Serves `answers`, one connection each, and gives the address and the paths that were asked for.
fn serve(answers: Vec<Vec<u8>>) -> (String, thread::JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/sets", listener.local_addr().unwrap());
    let server = thread::spawn(move || {
        let answer = |answer: Vec<u8>| {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map(Result::unwrap);
            let path = lines.next().unwrap().split(' ').nth(1).unwrap().to_owned();
            assert!(lines.any(|line| line.is_empty()), "the request has an end");
            stream.write_all(&answer).unwrap();
            path
        };
        answers.into_iter().map(answer).collect()
    });
    (address, server)
}

fn ok(body: &[u8]) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

#[test]
fn a_file_is_taken_plain_or_gzipped_and_stored_plain() {
    for (name, content) in [("small-ubyte", CONTENT.to_vec()), ("small-ubyte.gz", gzipped(CONTENT))] {
        let (from, into) = folders(name, &content);
        let mut last = 0;
        let place = from.path().to_str().unwrap();
        published()
            .fetch(&[place], into.path(), &mut |progress| last = progress.bytes)
            .unwrap();
        assert_eq!(last, CONTENT.len() as u64);
        assert_eq!(fs::read(into.path().join("small-ubyte")).unwrap(), CONTENT);
        assert_eq!(names_in(into.path()), [PathBuf::from("small-ubyte")]);
    }
}

#[test]
fn a_sound_file_is_left_alone_and_a_damaged_one_replaced() {
    let (from, into) = folders("small-ubyte", CONTENT);
    fs::write(into.path().join("small-ubyte"), CONTENT).unwrap();
    fetch_from(&["/nowhere"], into.path()).unwrap();
    fs::write(into.path().join("small-ubyte"), b"fifteen and odd!").unwrap();
    fetch_from(&[from.path().to_str().unwrap()], into.path()).unwrap();
    assert_eq!(fs::read(into.path().join("small-ubyte")).unwrap(), CONTENT);
}

#[test]
fn wrong_content_is_refused_and_leaves_nothing_behind() {
    let endless = gzipped(&[]).repeat(10_000);
    let cases: [(&[u8], &str); 5] = [
        (b"sixteen bytes no", "is not that of the published file"),
        (b"short", "truncated: 16 bytes expected, but the data ends after 5"),
        (b"more than sixteen bytes", "oversized: 16 bytes expected"),
        (&gzipped(&[0; 1_000_000]), "oversized: 16 bytes expected"),
        (&endless, "unexpected end of file"),
    ];
    for (content, expected) in cases {
        let (from, into) = folders("small-ubyte", content);
        let failures = fetch_from(&[from.path().to_str().unwrap()], into.path()).unwrap_err();
        assert_eq!(
            failures.len(),
            2,
            "the gzipped file is missing, and the plain one wrong"
        );
        assert!(failures[1].contains(expected), "{failures:?}");
        assert!(names_in(into.path()).is_empty());
    }
}

#[test]
fn the_next_place_is_tried_when_one_fails() {
    let missing = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_vec();
    let cut_off = ok(&gzipped(CONTENT)).split_at(70).0.to_vec();
    let (address, server) = serve(vec![missing, cut_off, ok(&gzipped(CONTENT))]);
    let into = tempfile::tempdir().unwrap();
    fetch_from(&[&address, &format!("{address}/")], into.path()).unwrap();
    assert_eq!(fs::read(into.path().join("small-ubyte")).unwrap(), CONTENT);
    let asked = ["/sets/small-ubyte.gz", "/sets/small-ubyte", "/sets/small-ubyte.gz"];
    assert_eq!(server.join().unwrap(), asked);
}

#[test]
fn when_every_place_fails_the_error_says_what_to_do() {
    let into = tempfile::tempdir().unwrap();
    // Nothing listens there any more.
    let address = format!(
        "http://{}",
        TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
    );
    let error = fetch(WellKnownSet::FashionMnist, Some(&address), into.path(), &mut |_| {}).unwrap_err();
    let text = error.to_string();
    assert!(
        text.starts_with(&format!(
            "train-images-idx3-ubyte could not be fetched:\n  {address}/train-images"
        )),
        "{text}"
    );
    assert!(
        text.contains("run `selvedge data fetch fashion-mnist --from FOLDER-OR-URL`"),
        "{text}"
    );
}
