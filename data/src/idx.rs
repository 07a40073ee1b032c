//! The IDX format of MNIST: a magic number, the dimensions, then the values, big-endian.
//! <http://yann.lecun.com/exdb/mnist/> (section "the IDX file format").

use std::io::Read;
use std::path::Path;

use crate::{DataError, compression, declared};

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
        read(opened.content, (!opened.compressed).then_some(opened.file_bytes))
    };
    read().map_err(|problem| problem.in_file(path))
}

/// Reads IDX from `content`, whose whole length is `known` unless it is compressed.
///
/// No more is held than the content turns out to be, whatever the header says, and no more is read than the
/// header says, whatever the content goes on to be.
pub(crate) fn read(mut content: impl Read, known: Option<u64>) -> Result<Idx, DataError> {
    let mut header = Vec::new();
    declared::append(&mut content, 4, &mut header)?;
    let [0, 0, kind, dimensions] = header[..] else {
        return Err(DataError::Format(
            "not an IDX file: it does not begin with two zero bytes".into(),
        ));
    };
    if kind != UNSIGNED_BYTE {
        let problem = format!("IDX values of type 0x{kind:02x}; only unsigned bytes (0x08) are supported");
        return Err(DataError::Format(problem));
    }
    if dimensions == 0 {
        return Err(DataError::Format("an IDX file without dimensions".into()));
    }
    declared::append(&mut content, 4 * usize::from(dimensions), &mut header)?;
    let shape: Vec<usize> = header[4..]
        .chunks_exact(4)
        .map(|size| size.iter().fold(0, |value, &byte| (value << 8) | usize::from(byte)))
        .collect();
    let expected = shape
        .iter()
        .try_fold(1_u64, |product, &size| product.checked_mul(size as u64))
        .and_then(|size| size.checked_add(header.len() as u64))
        .filter(|&expected| usize::try_from(expected).is_ok())
        .ok_or_else(|| DataError::Format(format!("IDX dimensions {shape:?} are beyond all memory")))?;
    let bytes = declared::read(content, header.len() as u64, expected, known)?;
    Ok(Idx { shape, bytes })
}

/// The type code of unsigned bytes, third in the magic number.
const UNSIGNED_BYTE: u8 = 0x08;

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::{Compression, write::GzEncoder};

    use super::*;

    /// An IDX file of `shape`, its header followed by `count` bytes 0, 1, 2, …
    fn idx(shape: &[u32], count: usize) -> Vec<u8> {
        let mut content = vec![0, 0, UNSIGNED_BYTE, shape.len() as u8];
        shape.iter().for_each(|size| content.extend(size.to_be_bytes()));
        content.extend((0..count).map(|byte| byte as u8));
        content
    }

    fn gzipped(content: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(content).unwrap();
        encoder.finish().unwrap()
    }

    /// What reading a file of `content` gives, and the error's words without the folder.
    fn read_content(content: &[u8]) -> Result<Idx, String> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("labels.idx");
        std::fs::write(&file, content).unwrap();
        read_file(&file).map_err(|error| error.to_string().replace(&format!("{}/", folder.path().display()), ""))
    }

    #[test]
    fn plain_and_gzipped_files_are_told_apart_by_their_first_bytes() {
        let content = idx(&[2, 1, 3], 6);
        let expected = Idx {
            shape: vec![2, 1, 3],
            bytes: vec![0, 1, 2, 3, 4, 5],
        };
        assert_eq!(
            read_content(&content),
            Ok(Idx {
                shape: vec![2, 1, 3],
                bytes: vec![0, 1, 2, 3, 4, 5]
            })
        );
        assert_eq!(read_content(&gzipped(&content)), Ok(expected));
    }

    #[test]
    fn a_truncated_file_says_how_many_bytes_were_expected_and_found() {
        let error = "labels.idx: truncated: 16 bytes expected, but the data ends after 13";
        assert_eq!(read_content(&idx(&[8], 5)).unwrap_err(), error);
        assert_eq!(read_content(&gzipped(&idx(&[8], 5))).unwrap_err(), error);
        let error = "labels.idx: truncated: 16 bytes expected, but the data ends after 6";
        assert_eq!(read_content(&idx(&[1, 1, 1], 1)[..6]).unwrap_err(), error);
        assert!(read_content(&[]).unwrap_err().contains("ends after 0"));
    }

    #[test]
    fn an_oversized_file_says_how_many_bytes_were_expected_and_found() {
        let error = "labels.idx: oversized: 16 bytes expected, but there are at least";
        assert_eq!(read_content(&idx(&[8], 20)).unwrap_err(), format!("{error} 28"));
        assert_eq!(
            read_content(&gzipped(&idx(&[8], 20))).unwrap_err(),
            format!("{error} 17")
        );
    }

    #[test]
    fn a_gzip_stream_that_is_cut_off_or_damaged_is_an_error() {
        // Bytes that do not compress, so that a cut falls into the middle of them.
        let mut content = idx(&[5000], 0);
        content.extend((0..5000_u32).map(|value| (value.wrapping_mul(2_654_435_761) >> 13) as u8));
        let whole = gzipped(&content);
        assert!(
            read_content(&whole[..whole.len() / 2])
                .unwrap_err()
                .contains("truncated: 5008 bytes expected")
        );
        let mut damaged = whole;
        let last = damaged.len() - 6;
        damaged[last] ^= 1;
        assert!(
            read_content(&damaged).unwrap_err().contains("corrupt"),
            "the checksum is looked at"
        );
    }

    #[test]
    fn a_header_of_huge_dimensions_is_refused_before_anything_is_allocated() {
        assert!(
            read_content(&idx(&[u32::MAX; 4], 0))
                .unwrap_err()
                .contains("beyond all memory")
        );
        assert!(read_content(&idx(&[u32::MAX, 8], 9)).unwrap_err().contains("truncated"));
        assert!(
            read_content(&gzipped(&idx(&[u32::MAX, 8], 9)))
                .unwrap_err()
                .contains("truncated")
        );
    }

    #[test]
    fn no_more_of_a_gzip_bomb_is_unpacked_than_the_header_declares() {
        let mut content = idx(&[8], 8);
        content.resize(50_000_000, 0);
        let error = read_content(&gzipped(&content)).unwrap_err();
        assert!(
            error.ends_with("oversized: 16 bytes expected, but there are at least 17"),
            "{error}"
        );
    }

    #[test]
    fn other_files_are_not_taken_for_idx() {
        assert!(read_content(b"label,pixel\n").unwrap_err().contains("not an IDX file"));
        assert!(
            read_content(&[0, 0, 0x0d, 1, 0, 0, 0, 0])
                .unwrap_err()
                .contains("type 0x0d")
        );
        assert!(
            read_content(&[0, 0, UNSIGNED_BYTE, 0])
                .unwrap_err()
                .contains("without dimensions")
        );
        assert!(
            read_file(Path::new("absent.idx"))
                .unwrap_err()
                .to_string()
                .starts_with("absent.idx: ")
        );
        assert!(
            read_file(Path::new("/"))
                .unwrap_err()
                .to_string()
                .contains("not a file")
        );
    }
}
