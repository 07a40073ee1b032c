//! The .npy format of NumPy, versions 1 to 3, and arrays inside .npz archives.
//! <https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>
//!
//! Read here rather than by a library because the libraries found believe the header: they allocate its declared
//! length, and multiply its dimensions, unchecked.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use zip::ZipArchive;
use zip::result::ZipError;

use crate::{DataError, compression, declared};

/// An array, in C order.
#[derive(Debug, PartialEq)]
pub(crate) struct Array {
    pub(crate) shape: Vec<usize>,
    pub(crate) values: Values,
}

/// The values of an array; those types are kept apart that are used differently.
#[derive(Debug, PartialEq)]
pub(crate) enum Values {
    Bytes(Vec<u8>),
    Integers(Vec<i64>),
    Floats(Vec<f32>),
}

/// Reads a .npy file, plain or gzipped.
pub(crate) fn read_file(path: &Path) -> Result<Array, DataError> {
    let read = || {
        let opened = compression::open(path)?;
        read(
            opened.content,
            (!opened.compressed).then_some(opened.file_bytes),
        )
    };
    read().map_err(|problem| problem.in_file(path))
}

/// Reads one array of a .npz archive (from `numpy.savez` or `savez_compressed`).
pub(crate) fn read_from_archive(path: &Path, array: &str) -> Result<Array, DataError> {
    let format =
        |problem: ZipError| DataError::Format(format!("not a sound .npz archive: {problem}"));
    let read = || {
        let mut archive = ZipArchive::new(BufReader::new(File::open(path)?)).map_err(format)?;
        let arrays = archive
            .file_names()
            .filter_map(|name| Some(name.ok()?.trim_end_matches(".npy").to_owned()))
            .collect::<Vec<_>>()
            .join(", ");
        match archive.by_name(&format!("{array}.npy")) {
            Ok(content) => read(content, None),
            Err(ZipError::FileNotFound) => Err(DataError::Format(format!(
                "no array `{array}` in the archive; there are: {arrays}"
            ))),
            Err(problem) => Err(format(problem)),
        }
    };
    read().map_err(|problem| problem.in_file(path))
}

/// Reads .npy from `content`, whose whole length is `known` unless it is compressed.
fn read(mut content: impl Read, known: Option<u64>) -> Result<Array, DataError> {
    let mut start = Vec::new();
    declared::append(&mut content, 8, &mut start)?;
    let Some([version, _]) = start.strip_prefix(b"\x93NUMPY") else {
        return Err(DataError::Format(
            "not a .npy file: it does not begin with \\x93NUMPY".into(),
        ));
    };
    let length_bytes = match version {
        1 => 2,
        2 | 3 => 4,
        _ => {
            return Err(DataError::Format(format!(
                ".npy version {version} is unknown; 1 to 3 are supported"
            )));
        }
    };
    declared::append(&mut content, length_bytes, &mut start)?;
    let length = start[8..]
        .iter()
        .rev()
        .fold(0, |length, &byte| (length << 8) | usize::from(byte));
    if length > LONGEST_HEADER {
        return Err(DataError::Format(format!(
            "a .npy header of {length} bytes; at most {LONGEST_HEADER} are read"
        )));
    }
    let text_begins = start.len();
    declared::append(&mut content, length, &mut start)?;
    let header = Header::parse(&String::from_utf8_lossy(&start[text_begins..]))?;
    let expected = header
        .shape
        .iter()
        .try_fold(header.item_bytes()? as u64, |product, &size| {
            product.checked_mul(size as u64)
        })
        .and_then(|size| size.checked_add(start.len() as u64))
        .filter(|&expected| usize::try_from(expected).is_ok())
        .ok_or_else(|| {
            DataError::Format(format!(
                "an array of shape {:?} is beyond all memory",
                header.shape
            ))
        })?;
    let bytes = declared::read(content, start.len() as u64, expected, known)?;
    let values = header.values(&bytes)?;
    Ok(Array {
        shape: header.shape,
        values,
    })
}

/// The longest header that is read; NumPy's own are about 120 bytes.
const LONGEST_HEADER: usize = 1 << 16;

/// What the header's Python literal says.
#[derive(Debug)]
struct Header {
    /// Byte order, kind and size, such as `<f4`.
    type_code: String,
    fortran_order: bool,
    shape: Vec<usize>,
}

impl Header {
    /// Parses `{'descr': '<f4', 'fortran_order': False, 'shape': (60000, 784), }`.
    fn parse(text: &str) -> Result<Self, DataError> {
        let damaged = || {
            DataError::Format(format!(
                "the .npy header cannot be read: {}",
                text.trim_end()
            ))
        };
        let after = |key: &str| {
            let (_, value) = text.split_once(&format!("'{key}':"))?;
            Some(value.trim_start())
        };
        let kind = after("descr").ok_or_else(damaged)?;
        let type_code = kind
            .strip_prefix('\'')
            .and_then(|kind| kind.split_once('\''))
            .map(|(code, _)| code);
        let type_code = type_code
            .ok_or_else(|| unsupported("of records"))?
            .to_owned();
        let order = after("fortran_order").ok_or_else(damaged)?;
        let fortran_order = order.starts_with("True");
        if !fortran_order && !order.starts_with("False") {
            return Err(damaged());
        }
        let shape = after("shape")
            .and_then(|shape| shape.strip_prefix('(')?.split_once(')'))
            .ok_or_else(damaged)?
            .0;
        let sizes = shape
            .split(',')
            .map(str::trim)
            .filter(|size| !size.is_empty());
        let shape = sizes
            .map(str::parse)
            .collect::<Result<_, _>>()
            .map_err(|_| damaged())?;
        Ok(Self {
            type_code,
            fortran_order,
            shape,
        })
    }

    fn item_bytes(&self) -> Result<usize, DataError> {
        let sized = [
            "b1", "u1", "i1", "u2", "i2", "u4", "i4", "f4", "u8", "i8", "f8",
        ];
        let code = self.type_code.trim_start_matches(['<', '>', '|', '=']);
        if !sized.contains(&code) {
            return Err(unsupported(&format!("of type `{}`", self.type_code)));
        }
        Ok(usize::from(code.as_bytes()[1] - b'0'))
    }

    /// The values in C order.
    fn values(&self, bytes: &[u8]) -> Result<Values, DataError> {
        let big = self.type_code.starts_with('>');
        macro_rules! numbers {
            ($kind:ty, $into:expr) => {{
                let items = bytes.as_chunks::<{ size_of::<$kind>() }>().0;
                let number = |item: &[u8; size_of::<$kind>()]| {
                    let number = if big {
                        <$kind>::from_be_bytes(*item)
                    } else {
                        <$kind>::from_le_bytes(*item)
                    };
                    $into(number)
                };
                self.in_c_order(items.iter().map(number).collect())
            }};
        }
        Ok(
            match self.type_code.trim_start_matches(['<', '>', '|', '=']) {
                "u1" => Values::Bytes(self.in_c_order(bytes.to_vec())),
                "b1" => Values::Integers(numbers!(u8, i64::from)),
                "i1" => Values::Integers(numbers!(i8, i64::from)),
                "u2" => Values::Integers(numbers!(u16, i64::from)),
                "i2" => Values::Integers(numbers!(i16, i64::from)),
                "u4" => Values::Integers(numbers!(u32, i64::from)),
                "i4" => Values::Integers(numbers!(i32, i64::from)),
                "u8" => {
                    Values::Integers(numbers!(u64, |value| i64::try_from(value).unwrap_or(i64::MAX)))
                }
                "i8" => Values::Integers(numbers!(i64, |value| value)),
                "f4" => Values::Floats(numbers!(f32, |value| value)),
                "f8" => Values::Floats(numbers!(f64, |value| value as f32)),
                _ => return Err(unsupported(&format!("of type `{}`", self.type_code))),
            },
        )
    }

    /// Brings values from the order they are stored in, which may have the first index run fastest, to C order.
    fn in_c_order<T: Copy>(&self, stored: Vec<T>) -> Vec<T> {
        if !self.fortran_order || self.shape.len() < 2 {
            return stored;
        }
        let place_of = |mut position: usize| {
            let mut place = 0;
            // Digits of the position, last index first; a stored index counts the product of the sizes before it.
            for (axis, &size) in self.shape.iter().enumerate().rev() {
                place += position % size * self.shape[..axis].iter().product::<usize>();
                position /= size;
            }
            place
        };
        (0..stored.len())
            .map(|position| stored[place_of(position)])
            .collect()
    }
}

fn unsupported(what: &str) -> DataError {
    DataError::Format(format!(
        "an array {what}; booleans, integers, and floats of 32 or 64 bits are supported"
    ))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use zip::write::SimpleFileOptions;

    use super::*;

    /// A .npy file of version 1.
    pub(super) fn npy(type_code: &str, fortran_order: &str, shape: &str, body: &[u8]) -> Vec<u8> {
        let header = format!(
            "{{'descr': '{type_code}', 'fortran_order': {fortran_order}, 'shape': {shape}, }}\n"
        );
        let length = (header.len() as u16).to_le_bytes();
        [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes(), body].concat()
    }

    fn read_all(content: &[u8]) -> Result<Array, String> {
        read(content, Some(content.len() as u64)).map_err(|error| error.to_string())
    }

    #[test]
    fn every_supported_type_is_read_in_either_byte_order() {
        let one_two = |type_code: &str, body: &[u8]| {
            read_all(&npy(type_code, "False", "(2,)", body))
                .unwrap()
                .values
        };
        assert_eq!(one_two("|u1", &[1, 2]), Values::Bytes(vec![1, 2]));
        let integers = Values::Integers(vec![1, -2]);
        assert_eq!(one_two("|i1", &[1, 254]), integers);
        assert_eq!(
            one_two("<i2", &[1_i16, -2].map(i16::to_le_bytes).concat()),
            integers
        );
        assert_eq!(
            one_two(">i4", &[1_i32, -2].map(i32::to_be_bytes).concat()),
            integers
        );
        assert_eq!(
            one_two("<i8", &[1_i64, -2].map(i64::to_le_bytes).concat()),
            integers
        );
        assert_eq!(one_two("|b1", &[0, 1]), Values::Integers(vec![0, 1]));
        assert_eq!(
            one_two("<u2", &[1, 0, 0, 1]),
            Values::Integers(vec![1, 256])
        );
        assert_eq!(
            one_two(">u4", &[0, 0, 0, 1, 0, 0, 1, 0]),
            Values::Integers(vec![1, 256])
        );
        assert_eq!(
            one_two("<u8", &[1, u64::MAX].map(u64::to_le_bytes).concat()),
            Values::Integers(vec![1, i64::MAX])
        );
        let floats = Values::Floats(vec![0.5, -2.0]);
        assert_eq!(
            one_two("<f4", &[0.5_f32, -2.0].map(f32::to_le_bytes).concat()),
            floats
        );
        assert_eq!(
            one_two(">f8", &[0.5_f64, -2.0].map(f64::to_be_bytes).concat()),
            floats
        );
    }

    #[test]
    fn fortran_order_becomes_c_order() {
        // [[[0, 1, 2], [3, 4, 5]], [[6, 7, 8], [9, 10, 11]]] with the first index fastest.
        let stored = [0, 6, 3, 9, 1, 7, 4, 10, 2, 8, 5, 11];
        let array = read_all(&npy("|u1", "True", "(2, 2, 3)", &stored)).unwrap();
        assert_eq!(
            array,
            Array {
                shape: vec![2, 2, 3],
                values: Values::Bytes((0..12).collect())
            }
        );
    }

    #[test]
    fn sizes_are_checked_against_the_header() {
        let whole = npy("<f4", "False", "(2, 3)", &[0; 24]);
        let (length, short) = (whole.len(), whole.len() - 1);
        let error = format!("truncated: {length} bytes expected, but the data ends after {short}");
        assert_eq!(read_all(&whole[..short]).unwrap_err(), error);
        assert!(
            read_all(&[&whole[..], &[0]].concat())
                .unwrap_err()
                .starts_with("oversized")
        );
        assert!(read_all(&whole[..20]).unwrap_err().starts_with("truncated"));
        let huge = npy("<f8", "False", "(4294967296, 4294967296)", &[]);
        assert!(read_all(&huge).unwrap_err().contains("beyond all memory"));
    }

    #[test]
    fn what_is_not_supported_is_said() {
        assert!(
            read_all(b"PK\x03\x04....")
                .unwrap_err()
                .contains("not a .npy file")
        );
        assert!(
            read_all(&npy("<c8", "False", "(1,)", &[0; 8]))
                .unwrap_err()
                .contains("of type `<c8`")
        );
        assert!(
            read_all(&npy("|O", "False", "(1,)", &[0; 8]))
                .unwrap_err()
                .contains("of type `|O`")
        );
        assert!(
            read_all(&npy("<f4", "Maybe", "(1,)", &[0; 4]))
                .unwrap_err()
                .contains("cannot be read")
        );
        assert!(
            read_all(&npy("<f4", "False", "(-1,)", &[0; 4]))
                .unwrap_err()
                .contains("cannot be read")
        );
        assert!(
            read_all(b"\x93NUMPY\x09\x00\x00\x00")
                .unwrap_err()
                .contains("version 9")
        );
        assert!(
            read_all(b"\x93NUMPY\x02\x00\xff\xff\xff\xff")
                .unwrap_err()
                .contains("a .npy header of 4294967295")
        );
        let records = b"\x93NUMPY\x01\x00\x40\x00{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}   ";
        assert!(read_all(records).unwrap_err().contains("of records"));
    }

    #[test]
    fn an_archive_gives_its_arrays_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data.npz");
        let mut archive = zip::ZipWriter::new(File::create(&path).unwrap());
        for (name, method) in [
            ("x", zip::CompressionMethod::Deflated),
            ("y", zip::CompressionMethod::Stored),
        ] {
            archive
                .start_file(
                    format!("{name}.npy"),
                    SimpleFileOptions::default().compression_method(method),
                )
                .unwrap();
            archive
                .write_all(&npy("|u1", "False", "(3,)", &[1, 2, 3]))
                .unwrap();
        }
        archive.finish().unwrap();
        let expected = Array {
            shape: vec![3],
            values: Values::Bytes(vec![1, 2, 3]),
        };
        assert_eq!(read_from_archive(&path, "x").unwrap(), expected);
        assert_eq!(read_from_archive(&path, "y").unwrap(), expected);
        let error = read_from_archive(&path, "z").unwrap_err().to_string();
        assert!(
            error.ends_with("data.npz: no array `z` in the archive; there are: x, y"),
            "{error}"
        );
        std::fs::write(&path, [0; 100]).unwrap();
        assert!(
            read_from_archive(&path, "x")
                .unwrap_err()
                .to_string()
                .contains("not a sound .npz archive")
        );
    }
}
