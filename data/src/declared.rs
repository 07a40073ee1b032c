//! Reads content whose header declares its size: never more than declared, never holding more than there is.

use std::io::{self, Read};

use crate::DataError;

/// Reads what follows a header of `header` bytes, up to `expected` bytes in all.
///
/// `known` is the whole length where it is known beforehand (it is not, of compressed content).
pub(crate) fn read(content: impl Read, header: u64, expected: u64, known: Option<u64>) -> Result<Vec<u8>, DataError> {
    match known {
        Some(found) if found < expected => return Err(DataError::Truncated { expected, found }),
        Some(found) if found > expected => return Err(DataError::Oversized { expected, found }),
        _ => {}
    }
    let body = expected.saturating_sub(header);
    let mut bytes = Vec::with_capacity(known.map_or(0, |_| body as usize));
    // One byte more than declared: to see that nothing follows, and to have a gzip stream's checksum checked.
    let outcome = content.take(body.saturating_add(1)).read_to_end(&mut bytes);
    let found = header + bytes.len() as u64;
    match outcome {
        Err(problem) if problem.kind() != io::ErrorKind::UnexpectedEof => Err(problem.into()),
        _ if found > expected => Err(DataError::Oversized { expected, found }),
        _ if found < expected => Err(DataError::Truncated { expected, found }),
        Err(problem) => Err(problem.into()),
        Ok(_) => Ok(bytes),
    }
}

/// Appends the next `count` bytes of `content` to the header.
pub(crate) fn append(content: &mut impl Read, count: usize, header: &mut Vec<u8>) -> Result<(), DataError> {
    let expected = (header.len() + count) as u64;
    let outcome = content.take(count as u64).read_to_end(header);
    match outcome {
        Err(problem) if problem.kind() != io::ErrorKind::UnexpectedEof => Err(problem.into()),
        _ if (header.len() as u64) < expected => Err(DataError::Truncated {
            expected,
            found: header.len() as u64,
        }),
        _ => Ok(()),
    }
}
