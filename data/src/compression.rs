//! Opens a file that may be gzipped, told by its first bytes and not by its name.

use std::fs::{self, File};
use std::io::{self, BufReader, Read, Seek};
use std::path::Path;

use flate2::read::MultiGzDecoder;

/// An opened file.
pub(crate) struct Opened {
    /// The content, decompressed.
    pub(crate) content: Box<dyn Read>,
    /// The length of the file itself.
    pub(crate) file_bytes: u64,
    /// Whether the file is gzipped, so that its length is not the content's.
    pub(crate) compressed: bool,
}

pub(crate) fn open(path: &Path) -> io::Result<Opened> {
    // Looked at before it is opened: opening a pipe waits for somebody to write into it.
    let metadata = fs::metadata(path)?;
    if !metadata.is_file() {
        return Err(io::Error::other("not a file"));
    }
    let mut file = File::open(path)?;
    let mut magic = Vec::new();
    file.by_ref().take(2).read_to_end(&mut magic)?;
    file.rewind()?;
    let compressed = magic == GZIP_MAGIC;
    let file = BufReader::new(file);
    let content: Box<dyn Read> = if compressed {
        Box::new(MultiGzDecoder::new(file))
    } else {
        Box::new(file)
    };
    Ok(Opened {
        content,
        file_bytes: metadata.len(),
        compressed,
    })
}

impl Opened {
    /// The content for a reader that takes all there is: what is compressed may not grow beyond all measure.
    pub(crate) fn bounded(self) -> impl Read {
        let left = if self.compressed {
            MOST_GROWTH * self.file_bytes.max(4096)
        } else {
            u64::MAX
        };
        Bounded {
            content: self.content,
            left,
        }
    }
}

/// How many times its size a compressed file may unpack to. Tables of data stay below; gzip can do 1000.
const MOST_GROWTH: u64 = 200;

struct Bounded {
    content: Box<dyn Read>,
    left: u64,
}

impl Read for Bounded {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.content.read(into)?;
        self.left = self.left.checked_sub(count as u64).ok_or_else(|| {
            io::Error::other(format!(
                "unpacks to more than {MOST_GROWTH} times its size; unpack it first if it is sound"
            ))
        })?;
        Ok(count)
    }
}

/// The first two bytes of every gzip stream (RFC 1952, section 2.3.1).
pub(crate) const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
