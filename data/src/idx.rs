//! The IDX format of MNIST: a magic number, the dimensions, then the values, big-endian.
//! <http://yann.lecun.com/exdb/mnist/> (section "the IDX file format").

use std::io::{self, Read};
use std::path::Path;

use crate::{DataError, compression};

/// The content of an IDX file of unsigned bytes.
#[derive(Debug, PartialEq)]
pub(crate) struct Idx {
    pub(crate) shape: Vec<usize>,
    pub(crate) bytes: Vec<u8>,
}

/// Reads an IDX file of unsigned bytes, plain or gzipped.
pub(crate) fn read_file(path: &Path) -> Result<Idx, DataError> {
    let read = || {
        let opened = compression::open(path)?;
        read(
            opened.content,
            (!opened.compressed).then_some(opened.file_bytes),
        )
    };
    read().map_err(|problem| problem.in_file(path))
}

/// Reads IDX from `content`, whose whole length is `known` unless it is compressed.
///
/// No more is held than the content turns out to be, whatever the header says, and no more is read than the
/// header says, whatever the content goes on to be.
pub(crate) fn read(mut content: impl Read, known: Option<u64>) -> Result<Idx, DataError> {
    let mut header = Vec::new();
    read_exactly(&mut content, 4, &mut header)?;
    let [0, 0, kind, dimensions] = header[..] else {
        return Err(DataError::Format(
            "not an IDX file: it does not begin with two zero bytes".into(),
        ));
    };
    if kind != UNSIGNED_BYTE {
        let problem =
            format!("IDX values of type 0x{kind:02x}; only unsigned bytes (0x08) are supported");
        return Err(DataError::Format(problem));
    }
    if dimensions == 0 {
        return Err(DataError::Format("an IDX file without dimensions".into()));
    }
    read_exactly(&mut content, 4 * usize::from(dimensions), &mut header)?;
    let shape: Vec<usize> = header[4..]
        .chunks_exact(4)
        .map(|size| {
            size.iter()
                .fold(0, |value, &byte| (value << 8) | usize::from(byte))
        })
        .collect();
    let expected = shape
        .iter()
        .try_fold(1_u64, |product, &size| product.checked_mul(size as u64))
        .and_then(|size| size.checked_add(header.len() as u64))
        .filter(|&expected| usize::try_from(expected).is_ok())
        .ok_or_else(|| {
            DataError::Format(format!("IDX dimensions {shape:?} are beyond all memory"))
        })?;
    match known {
        Some(found) if found < expected => return Err(DataError::Truncated { expected, found }),
        Some(found) if found > expected => return Err(DataError::Oversized { expected, found }),
        _ => {}
    }
    let mut bytes = Vec::with_capacity(known.map_or(0, |_| expected as usize - header.len()));
    // One byte more than declared: to see that nothing follows, and to have a gzip stream's checksum checked.
    let outcome = content
        .take(expected - header.len() as u64 + 1)
        .read_to_end(&mut bytes);
    let found = (header.len() + bytes.len()) as u64;
    match outcome {
        Err(problem) if problem.kind() != io::ErrorKind::UnexpectedEof => Err(problem.into()),
        _ if found > expected => Err(DataError::Oversized { expected, found }),
        _ if found < expected => Err(DataError::Truncated { expected, found }),
        Err(problem) => Err(problem.into()),
        Ok(_) => Ok(Idx { shape, bytes }),
    }
}

/// The type code of unsigned bytes, third in the magic number.
const UNSIGNED_BYTE: u8 = 0x08;

/// Appends `count` bytes of `content` to the header.
fn read_exactly(
    content: &mut impl Read,
    count: usize,
    header: &mut Vec<u8>,
) -> Result<(), DataError> {
    let expected = header.len() + count;
    let outcome = content.take(count as u64).read_to_end(header);
    match outcome {
        Err(problem) if problem.kind() != io::ErrorKind::UnexpectedEof => Err(problem.into()),
        _ if header.len() < expected => Err(DataError::Truncated {
            expected: expected as u64,
            found: header.len() as u64,
        }),
        _ => Ok(()),
    }
}
