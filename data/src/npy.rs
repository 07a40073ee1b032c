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
        read(opened.content, (!opened.compressed).then_some(opened.file_bytes))
    };
    read().map_err(|problem| problem.in_file(path))
}

/// Reads one array of a .npz archive (from `numpy.savez` or `savez_compressed`).
pub(crate) fn read_from_archive(path: &Path, array: &str) -> Result<Array, DataError> {
    let format = |problem: ZipError| DataError::Format(format!("not a sound .npz archive: {problem}"));
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
        .ok_or_else(|| DataError::Format(format!("an array of shape {:?} is beyond all memory", header.shape)))?;
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
                text.trim_end().escape_debug()
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
        let type_code = type_code.ok_or_else(|| unsupported("of records"))?.to_owned();
        let order = after("fortran_order").ok_or_else(damaged)?;
        let fortran_order = order.starts_with("True");
        if !fortran_order && !order.starts_with("False") {
            return Err(damaged());
        }
        let shape = after("shape")
            .and_then(|shape| shape.strip_prefix('(')?.split_once(')'))
            .ok_or_else(damaged)?
            .0;
        let sizes = shape.split(',').map(str::trim).filter(|size| !size.is_empty());
        let shape = sizes.map(str::parse).collect::<Result<_, _>>().map_err(|_| damaged())?;
        Ok(Self {
            type_code,
            fortran_order,
            shape,
        })
    }

    fn item_bytes(&self) -> Result<usize, DataError> {
        let sized = ["b1", "u1", "i1", "u2", "i2", "u4", "i4", "f4", "u8", "i8", "f8"];
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
        Ok(match self.type_code.trim_start_matches(['<', '>', '|', '=']) {
            "u1" => Values::Bytes(self.in_c_order(bytes.to_vec())),
            "b1" => Values::Integers(numbers!(u8, i64::from)),
            "i1" => Values::Integers(numbers!(i8, i64::from)),
            "u2" => Values::Integers(numbers!(u16, i64::from)),
            "i2" => Values::Integers(numbers!(i16, i64::from)),
            "u4" => Values::Integers(numbers!(u32, i64::from)),
            "i4" => Values::Integers(numbers!(i32, i64::from)),
            "u8" => Values::Integers(numbers!(u64, |value| i64::try_from(value).unwrap_or(i64::MAX))),
            "i8" => Values::Integers(numbers!(i64, |value| value)),
            "f4" => Values::Floats(numbers!(f32, |value| value)),
            "f8" => Values::Floats(numbers!(f64, |value| value as f32)),
            _ => return Err(unsupported(&format!("of type `{}`", self.type_code))),
        })
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
        (0..stored.len()).map(|position| stored[place_of(position)]).collect()
    }
}

fn unsupported(what: &str) -> DataError {
    DataError::Format(format!(
        "an array {what}; booleans, integers, and floats of 32 or 64 bits are supported"
    ))
}

#[cfg(test)]
mod tests;
