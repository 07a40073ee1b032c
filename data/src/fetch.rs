//! Fetches MNIST and Fashion-MNIST from their public homes, from a mirror, or from a folder.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;
use std::time::Duration;

use flate2::read::MultiGzDecoder;
use ureq::Agent;

use crate::compression::GZIP_MAGIC;
use crate::{DataError, WellKnownSet};

/// How far fetching has come; reported every few hundred kilobytes.
#[derive(Debug, Clone, Copy)]
pub struct FetchProgress<'a> {
    /// The file's usual name.
    pub file: &'a str,
    /// Where it comes from.
    pub from: &'a str,
    /// Bytes of its unpacked content so far.
    pub bytes: u64,
    /// Bytes of its unpacked content in all.
    pub of: u64,
}

/// Brings the four files of `set` into the folder `into`, unpacked, under their usual names.
///
/// They come from `from` (a folder, or an `https://` or `http://` address that the files' names are appended to),
/// or else from the set's public homes, one after the other. Files are taken plain or gzipped. Each must have
/// exactly the published content, whatever the place; it is written aside and renamed when it has. A file that is
/// there already, and sound, is left alone. Every wait has an end, and no more is read than the file should hold.
///
/// # Errors
/// When no place gives a file: each place, what was wrong there, and what to do instead.
pub fn fetch(
    set: WellKnownSet,
    from: Option<&str>,
    into: &Path,
    progress: &mut dyn FnMut(FetchProgress<'_>),
) -> Result<(), DataError> {
    let (files, homes) = match set {
        WellKnownSet::Mnist => (&MNIST, MNIST_HOMES),
        WellKnownSet::FashionMnist => (&FASHION_MNIST, FASHION_MNIST_HOMES),
    };
    fs::create_dir_all(into).map_err(|problem| DataError::from(problem).in_file(into))?;
    let places = match from {
        Some(place) => &[place][..],
        None => homes,
    };
    files.iter().try_for_each(|file| {
        file.fetch(places, into, progress)
            .map_err(|failures| DataError::NotFetched {
                file: file.name,
                set: set.name(),
                into: into.to_path_buf(),
                failures,
            })
    })
}

/// A file by its usual name, with the size and BLAKE3 hash of its unpacked content.
struct PublishedFile {
    name: &'static str,
    bytes: u64,
    blake3: &'static str,
}

/// The content whose published MD5 sums are 6bbc9ace…, a25bea73…, 2646ac64… and 27ae3e4e….
const MNIST: [PublishedFile; 4] = [
    PublishedFile {
        name: "train-images-idx3-ubyte",
        bytes: 47_040_016,
        blake3: "c6e6fd8c67d07c8a9b7bffa7dd0413ff4b8af241607b049b7721107f379df9fd",
    },
    PublishedFile {
        name: "train-labels-idx1-ubyte",
        bytes: 60_008,
        blake3: "8ebcfdf2fe191516f9cb37fceb75d2d19289d91ee92026534ed45e44144b5642",
    },
    PublishedFile {
        name: "t10k-images-idx3-ubyte",
        bytes: 7_840_016,
        blake3: "f8d502322cd9f186e155a74a3dff598ed56c1a7b5a5c8d312749ac47c4a2bec7",
    },
    PublishedFile {
        name: "t10k-labels-idx1-ubyte",
        bytes: 10_008,
        blake3: "6d43ea317fa8f5851bb85404bb7358defd48b0294cf31f60cdcde8106fe2c3ad",
    },
];

/// The content whose published MD5 sums are f4a8712d…, 9018921c…, 8181f547… and 15d48437….
const FASHION_MNIST: [PublishedFile; 4] = [
    PublishedFile {
        name: "train-images-idx3-ubyte",
        bytes: 47_040_016,
        blake3: "feaca08b36e07f8d504641a929bff1554884ef73964323e44e59e39a986b4c9e",
    },
    PublishedFile {
        name: "train-labels-idx1-ubyte",
        bytes: 60_008,
        blake3: "b4d9ea8013b029ef778c95ea7de31195ef443589877589523ad330db2829ebd6",
    },
    PublishedFile {
        name: "t10k-images-idx3-ubyte",
        bytes: 7_840_016,
        blake3: "a19b8c1e5f798e5a6fa7229093b630c04a620179497a1fa3a71e7334fb59a30b",
    },
    PublishedFile {
        name: "t10k-labels-idx1-ubyte",
        bytes: 10_008,
        blake3: "0a067399ed18bcc9d7dc26832b3b8e4481abf2d33fee04c611e90b9061296b90",
    },
];

const MNIST_HOMES: &[&str] = &[
    "https://ossci-datasets.s3.amazonaws.com/mnist",
    "https://storage.googleapis.com/cvdf-datasets/mnist",
];

const FASHION_MNIST_HOMES: &[&str] = &[
    "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion",
    "https://storage.googleapis.com/tensorflow/tf-keras-datasets",
];

impl PublishedFile {
    /// Fetches the file from the first place that has it; otherwise what was wrong with each.
    fn fetch(
        &self,
        places: &[&str],
        into: &Path,
        progress: &mut dyn FnMut(FetchProgress<'_>),
    ) -> Result<(), Vec<String>> {
        let whole = into.join(self.name);
        if File::open(&whole).is_ok_and(|there| self.receive(there, &mut io::sink(), &mut |_| {}).is_ok()) {
            return Ok(());
        }
        let aside = into.join(format!("{}.part", self.name));
        let mut failures = Vec::new();
        for place in places {
            for name in [format!("{}.gz", self.name), self.name.to_owned()] {
                let from = format!("{}/{name}", place.trim_end_matches('/'));
                let mut attempt = || {
                    let content = open(&from)?;
                    let mut file = File::create(&aside)?;
                    let report = &mut |bytes| {
                        progress(FetchProgress {
                            file: self.name,
                            from: &from,
                            bytes,
                            of: self.bytes,
                        })
                    };
                    self.receive(content, &mut file, report)?;
                    file.sync_all()?;
                    Ok::<_, DataError>(fs::rename(&aside, &whole)?)
                };
                match attempt() {
                    Ok(()) => return Ok(()),
                    Err(problem) => failures.push(format!("{from}: {problem}")),
                }
                // What is left of a failed attempt; there may be none, and it is overwritten by the next.
                let _ = fs::remove_file(&aside);
            }
        }
        Err(failures)
    }

    /// Copies `content`, unpacked, and checks that it is this file's.
    fn receive(&self, content: impl Read, into: &mut impl Write, report: &mut dyn FnMut(u64)) -> Result<(), DataError> {
        // Packed content is no larger than unpacked, but for a few bytes: an endless stream ends here.
        let mut content = content.take(self.bytes + 65_536);
        let mut start = Vec::new();
        content.by_ref().take(2).read_to_end(&mut start)?;
        let packed = start == GZIP_MAGIC;
        let content = io::Cursor::new(start).chain(content);
        let mut content: Box<dyn Read> = if packed {
            Box::new(MultiGzDecoder::new(content))
        } else {
            Box::new(content)
        };
        let (mut hasher, mut chunk, mut found) = (blake3::Hasher::new(), vec![0; 1 << 18], 0);
        loop {
            let count = match content.read(&mut chunk) {
                Ok(0) => break,
                Ok(count) => count,
                Err(problem) if problem.kind() == io::ErrorKind::Interrupted => continue,
                Err(problem) => return Err(problem.into()),
            };
            found += count as u64;
            if found > self.bytes {
                return Err(DataError::Oversized {
                    expected: self.bytes,
                    found,
                });
            }
            hasher.update(&chunk[..count]);
            into.write_all(&chunk[..count])?;
            report(found);
        }
        if found < self.bytes {
            return Err(DataError::Truncated {
                expected: self.bytes,
                found,
            });
        }
        if hasher.finalize().to_hex().as_str() != self.blake3 {
            return Err(DataError::Format(
                "the content is not that of the published file".into(),
            ));
        }
        Ok(())
    }
}

/// Opens an address or a file.
fn open(from: &str) -> Result<Box<dyn Read>, DataError> {
    if !from.starts_with("https://") && !from.starts_with("http://") {
        return Ok(Box::new(File::open(from)?));
    }
    let agent: Agent = Agent::config_builder()
        // Without a secure start, none can be kept; with one, a redirection must not leave it.
        .https_only(from.starts_with("https://"))
        .timeout_connect(Some(Duration::from_secs(20)))
        .timeout_recv_response(Some(Duration::from_secs(30)))
        .timeout_global(Some(Duration::from_secs(900)))
        .build()
        .into();
    let response = agent
        .get(from)
        .call()
        .map_err(|problem| DataError::Format(problem.to_string()))?;
    Ok(Box::new(response.into_body().into_reader()))
}

#[cfg(test)]
mod tests;
